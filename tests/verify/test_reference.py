"""The reference: it imports nothing of what it judges, and it agrees with attention as others wrote it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

import kvcalc.verify.reference
from kvcalc.verify.reference import formats
from kvcalc.verify.reference.attention import Sees, attention, index_scores, latent_attention
from kvcalc.verify.reference.compressor import compressed_rows, seen_rows, shared_row_attention
from kvcalc.verify.reference.quantized import given_attention
from kvcalc.verify.reference.rounding import UNIT, Bounded, gamma, sigmoid, silu

FOLDER = Path(kvcalc.verify.reference.__file__).parent
OWN = "kvcalc.verify.reference"
JUDGED = ("attention.py", "caches", "recurrences", "ggml_blocks.py", "codecs.py", "inputs.py", "layouts.py")


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_the_reference_imports_nothing_of_what_it_judges(path: Path) -> None:
    inside = {name for name in imported(path) if name.split(".")[0] == "kvcalc"}
    assert all(name == OWN or name.startswith(OWN + ".") for name in inside)
    others = {name.split(".")[0] for name in imported(path)} - {"kvcalc"}
    assert others <= {"__future__", "collections", "dataclasses", "math", "torch"}
    assert "torch.nn.functional" not in imported(path)


@pytest.mark.parametrize("name", JUDGED)
def test_what_is_judged_imports_nothing_of_the_reference(name: str) -> None:
    there = FOLDER.parent / name
    for path in there.rglob("*.py") if there.is_dir() else [there]:
        assert not any(module.startswith(OWN) for module in imported(path))


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float64).uniform_(-1.75, 1.75, generator=torch.Generator().manual_seed(seed))


def table_of(sees: Sees, positions: list[int], length: int) -> torch.Tensor:
    """Which positions are seen, one by one."""
    found = torch.zeros(len(positions), length, dtype=torch.bool)
    for row, p in enumerate(positions):
        for j in range(length):
            inside = sees.window is None or j > p - sees.window
            found[row, j] = not sees.causal or (j <= p and inside and (sees.chunk is None or j >= p - p % sees.chunk))
    return found


SEES = st.one_of(
    st.just(Sees()),
    st.just(Sees(causal=False)),
    st.integers(1, 12).map(lambda size: Sees(window=size)),
    st.integers(1, 12).map(lambda size: Sees(chunk=size)),
)


@profile(max_examples=80)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 20), st.integers(1, 20), st.integers(1, 25), SEES, st.integers(0, 9))
def test_grouped_attention_is_pytorchs(
    kv_heads: int, group: int, width: int, v_width: int, length: int, sees: Sees, seed: int
) -> None:
    queries, keys = numbers(seed, kv_heads * group, length, width), numbers(seed + 10, kv_heads, length, width)
    values, positions = numbers(seed + 20, kv_heads, length, v_width), list(range(length))
    found = attention(queries, positions, lambda head: (keys[head], values[head]), kv_heads, 0.3, sees)
    mask = table_of(sees, positions, length)
    wanted = scaled_dot_product_attention(queries[None], keys[None], values[None], mask, scale=0.3, enable_gqa=True)[0]
    torch.testing.assert_close(found.outputs, wanted)
    narrow = scaled_dot_product_attention(
        queries[None].float(), keys[None].float(), values[None].float(), mask, scale=0.3, enable_gqa=True
    )[0]
    exact = attention(queries.float().double(), positions, lambda h: (keys[h].float(), values[h].float()), kv_heads, 0.3, sees)
    assert ((narrow.double() - exact.outputs).abs() <= exact.bound).all()


def test_a_sink_is_a_key_that_gives_no_value() -> None:
    queries, keys, values, sinks = numbers(1, 4, 6, 8), numbers(2, 2, 6, 8), numbers(3, 2, 6, 5), numbers(4, 4)
    found = attention(queries, list(range(6)), lambda head: (keys[head], values[head]), 2, 0.4, Sees(), sinks).outputs
    for head in range(4):
        for p in range(6):
            scores = torch.cat((keys[head // 2, : p + 1] @ queries[head, p] * 0.4, sinks[head, None]))
            wanted = scores.softmax(0)[:-1] @ values[head // 2, : p + 1]
            torch.testing.assert_close(found[head, p], wanted)


@pytest.mark.parametrize("window", [None, 4])
def test_latent_attention_is_pytorchs_over_expanded_rows(window: int | None) -> None:
    rows, up, out = numbers(1, 15, 24 + 8), numbers(2, 3, 16, 24), numbers(3, 3, 12, 24)
    queries, positions = numbers(4, 3, 15, 16 + 8), list(range(15))
    found = latent_attention(queries, positions, rows, up, out, 0.05, Sees(window=window)).outputs
    keys = torch.cat((torch.einsum("mr,hnr->hmn", rows[:, :24], up), rows[None, :, 24:].expand(3, -1, -1)), dim=2)
    values = torch.einsum("mr,hvr->hmv", rows[:, :24], out)
    mask = table_of(Sees(window=window), positions, 15)
    wanted = scaled_dot_product_attention(queries[None], keys[None], values[None], mask, scale=0.05)[0]
    torch.testing.assert_close(found, wanted)


def test_index_scores_are_a_sum_over_heads_of_what_is_positive() -> None:
    query, weight, keys = numbers(1, 3, 8), numbers(2, 3), numbers(3, 20, 8)
    found, bound = index_scores(query, weight, keys)
    torch.testing.assert_close(found, torch.einsum("h,hm->m", weight, torch.relu(query @ keys.T)))
    narrow = weight.float() @ torch.relu(query.float() @ keys.float().T)
    exact, _ = index_scores(query.float().double(), weight.float().double(), keys.float().double())
    assert ((narrow.double() - exact).abs() <= bound).all()


def test_compressed_rows_without_overlap() -> None:
    numbers_, gates = numbers(1, 11, 6), numbers(2, 11, 6)
    rows, _ = compressed_rows(numbers_, gates, 4, 6)
    wanted = torch.stack([(gates[a : a + 4].softmax(0) * numbers_[a : a + 4]).sum(0) for a in (0, 4)])
    torch.testing.assert_close(rows, wanted)
    assert [seen_rows(position, 3, 4) for position in (0, 3, 10)] == [(0, 0), (1, 1), (8, 2)]
    assert seen_rows(10, 3, 0) == (8, 0)


def test_compressed_rows_with_overlap_take_the_first_halves_of_the_group_before() -> None:
    numbers_, gates = numbers(1, 8, 4), numbers(2, 8, 4)
    rows, _ = compressed_rows(numbers_, gates, 4, 2)
    torch.testing.assert_close(rows[0], (gates[:4, 2:].softmax(0) * numbers_[:4, 2:]).sum(0))
    both = torch.cat((gates[:4, :2], gates[4:, 2:])).softmax(0) * torch.cat((numbers_[:4, :2], numbers_[4:, 2:]))
    torch.testing.assert_close(rows[1], both.sum(0))


def test_shared_rows_are_keys_and_values() -> None:
    queries, rows, sinks = numbers(1, 3, 8), numbers(2, 9, 8), numbers(3, 3)
    scores = torch.cat((queries @ rows.T * 0.3, sinks[:, None]), dim=1)
    torch.testing.assert_close(shared_row_attention(queries, rows, 0.3, sinks).outputs, scores.softmax(1)[:, :-1] @ rows)


def test_one_stored_value_moves_an_output_by_its_own_error_alone() -> None:
    """A single position: the softmax is 1, so what is left is the value's bound."""
    keys, values = numbers(1, 1, 1, 8), numbers(2, 1, 1, 8)
    off = torch.full((1, 1, 8), 0.25, dtype=torch.float64)
    found = given_attention(
        numbers(3, 1, 1, 8), [0], lambda head: (keys[head], values[head]), lambda head: (0 * off[head], off[head]), 1, 0.3, Sees()
    )
    torch.testing.assert_close(found.bound, off)


@given(st.integers(0, 40))
def test_no_change_within_the_keys_bounds_moves_an_output_further_than_said(seed: int) -> None:
    queries, keys, values = numbers(seed, 2, 1, 8), numbers(seed + 1, 1, 6, 8), numbers(seed + 2, 1, 6, 8)
    off = numbers(seed + 3, 1, 6, 8).sign() * 0.05
    found = given_attention(queries, [5], lambda h: (keys[h], values[h]), lambda h: (off[h].abs(), off[h].abs()), 1, 0.3, Sees())
    moved = attention(queries, [5], lambda h: (keys[h] + off[h], values[h] - off[h]), 1, 0.3, Sees()).outputs
    assert ((moved - found.outputs).abs() <= found.bound).all()
    assert (found.bound.amax() <= 40 * (moved - found.outputs).abs().amax()).all()


@pytest.mark.parametrize(("name", "kind"), [("fp8_e4m3", torch.float8_e4m3fn), ("fp8_e5m2", torch.float8_e5m2)])
def test_every_fp8_byte_is_torchs(name: str, kind: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    theirs = codes.view(kind).float()
    finite = theirs.isfinite()
    assert torch.equal(formats.decode(name, codes[:, None])[finite, 0], theirs[finite])
    x = numbers(1, 1, 4000).float()
    error = (x.to(kind).float() - x).abs()
    assert (error <= formats.bound(name, x)).all()
    assert error.max() > 0.9 * formats.bound(name, x).max()


def test_half_precision_scales_are_torchs() -> None:
    codes = torch.arange(65536, dtype=torch.int32)
    two = torch.stack((codes % 256, codes // 256), dim=1).to(torch.uint8)
    theirs = two.contiguous().view(torch.float16)[:, 0].float()
    finite = theirs.isfinite()
    assert torch.equal(formats._half(two)[finite], theirs[finite])


@pytest.mark.parametrize(("name", "kind"), [("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_a_plain_type_rounds_by_half_a_unit(name: str, kind: torch.dtype) -> None:
    x = numbers(3, 1, 4000).float()
    error = (x.to(kind).float() - x).abs()
    assert (error <= formats.bound(name, x)).all()
    assert error.max() > 0.9 * formats.bound(name, x).max()


@pytest.mark.engines
@pytest.mark.parametrize("name", formats.BLOCKS)
def test_ggmls_blocks_are_read_as_its_own_package_reads_them(name: str) -> None:
    gguf = pytest.importorskip("gguf", reason="ggml's package isn't installed")
    from gguf import quants

    kind = getattr(gguf.GGMLQuantizationType, name.upper())
    values = numbers(7, 40, 256).float()
    stored = quants.quantize(values.numpy(), kind)
    found = formats.decode(name, torch.from_numpy(stored))
    assert (quants.dequantize(stored, kind) == found.numpy()).all()
    assert ((found - values).abs() <= formats.bound(name, values)).all()


@given(st.integers(0, 60))
def test_a_running_bound_holds_for_the_same_steps_in_float32(seed: int) -> None:
    x, y = (numbers(seed + k, 7, 5).float() for k in (0, 100))
    wide = Bounded.given(x.double()), Bounded.given(y.double())
    bounded = (
        ((wide[0] + wide[1]) * wide[0]).exp() / ((wide[1] * wide[1]).exp() + Bounded.given(torch.ones(7, 5).double()))
    ).sum(1)
    narrow = (torch.exp((x + y) * x) / (torch.exp(y * y) + 1)).sum(1)
    assert ((narrow.double() - bounded.exact).abs() <= bounded.error).all()
    for made, theirs in ((silu, torch.nn.functional.silu), (sigmoid, torch.sigmoid)):
        found = made(wide[0])
        torch.testing.assert_close(found.exact, theirs(x.double()))
        assert ((theirs(x).double() - found.exact).abs() <= found.error).all()
    roots = (wide[0] * wide[0]).root()
    assert (((x * x).sqrt().double() - roots.exact).abs() <= roots.error + 1e-30).all()


def test_sums_err_by_their_terms_and_beyond_36_by_the_root_of_their_number() -> None:
    assert [gamma(terms) / UNIT for terms in (1, 36, 144)] == [1, 36, 72]
