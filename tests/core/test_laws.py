"""What must hold of every model, length, batch and type."""

from __future__ import annotations

import json
from itertools import pairwise

import strategies as some
from hypothesis import assume, given
from hypothesis import strategies as st

from kvcalc.core.counting import Types, slabs_of, tally_layers, total_function
from kvcalc.core.layers import ChunkedAttention, FullAttention, LatentAttention, Layer, Part, SlidingAttention, runs
from kvcalc.core.model import Request
from kvcalc.dtypes import DTYPES, Dtype, find_dtype
from kvcalc.engines.base import Engine
from kvcalc.engines.estimate import estimate
from kvcalc.engines.exact import ENGINE
from kvcalc.reports.to_json import estimate_document

Stack = tuple[Layer, ...]


def total(stack: Stack, types: Types, batch: int, tokens: int) -> int:
    return sum(run.bytes for run in tally_layers(stack, ((tokens, batch),), types))


def one(part: Part, types: Types, tokens: int) -> int:
    return total(((part,),), types, 1, tokens)


@given(some.full, some.types, some.tokens, some.batches, st.integers(1, 80))
def test_equal_full_layers_are_the_textbook_equation(
    part: FullAttention, types: Types, tokens: int, batch: int, num_layers: int
) -> None:
    elements = num_layers * batch * tokens * part.num_kv_heads
    keys = elements * part.head_dim * types.k.block_bytes // types.k.block_elements
    values = elements * part.v_head_dim * types.v.block_bytes // types.v.block_elements
    assert total(((part,),) * num_layers, types, batch, tokens) == keys + values


@given(some.stacks, some.types, some.tokens, some.batches)
def test_linear_in_the_batch(stack: Stack, types: Types, tokens: int, batch: int) -> None:
    assert total(stack, types, batch, tokens) == batch * total(stack, types, 1, tokens)


@given(some.stacks, some.types, some.tokens, st.integers(1, 10_000))
def test_monotone_in_tokens(stack: Stack, types: Types, tokens: int, more: int) -> None:
    assert total(stack, types, 1, tokens) <= total(stack, types, 1, tokens + more)


@given(some.stacks, some.stacks, some.types, some.tokens)
def test_additive_over_layers(first: Stack, second: Stack, types: Types, tokens: int) -> None:
    assert total(first + second, types, 1, tokens) == total(first, types, 1, tokens) + total(second, types, 1, tokens)


@given(some.stacks, some.types, some.tokens)
def test_the_order_of_layers_plays_no_part(stack: Stack, types: Types, tokens: int) -> None:
    assert total(stack[::-1], types, 1, tokens) == total(stack, types, 1, tokens)


@given(some.stacks, some.types, st.lists(st.integers(0, 5000), min_size=1, max_size=6))
def test_sequences_of_different_lengths_add_up(stack: Stack, types: Types, lengths: list[int]) -> None:
    sequences = Request(lengths=tuple(lengths)).sequences
    together = sum(run.bytes for run in tally_layers(stack, sequences, types))
    assert together == sum(total(stack, types, 1, length) for length in lengths)


@given(some.stacks, some.types, some.tokens, some.batches)
def test_a_sweep_s_short_cut_equals_the_tally(stack: Stack, types: Types, tokens: int, batch: int) -> None:
    assert total_function(stack, types)(batch, tokens) == total(stack, types, batch, tokens)


@given(some.sliding, some.types, some.tokens)
def test_sliding_is_at_most_full_and_equal_within_the_window(part: SlidingAttention, types: Types, tokens: int) -> None:
    full = one(FullAttention(part.num_kv_heads, part.head_dim, part.v_head_dim), types, tokens)
    assert one(part, types, tokens) <= full
    assert one(part, types, min(tokens, part.window)) == one(part, types, tokens)
    assert (one(part, types, tokens) == full) == (tokens <= part.window)


@given(some.chunked, some.types, some.tokens)
def test_a_chunk_keeps_what_a_window_of_its_size_keeps(part: ChunkedAttention, types: Types, tokens: int) -> None:
    window = SlidingAttention(part.num_kv_heads, part.head_dim, part.v_head_dim, part.chunk)
    assert one(part, types, tokens) == one(window, types, tokens)


@given(some.heads, some.widths, some.types, some.tokens)
def test_mha_is_gqa_with_as_many_kv_heads_and_mqa_is_its_share(heads: int, width: int, types: Types, tokens: int) -> None:
    mha = one(FullAttention(heads, width, width, num_heads=heads), types, tokens)
    assert mha == one(FullAttention(heads, width, width, num_heads=8 * heads), types, tokens)
    assert mha == heads * one(FullAttention(1, width, width), types, tokens)


@given(some.latent, some.types, some.tokens)
def test_a_latent_is_one_head_of_keys_and_no_values(part: LatentAttention, types: Types, tokens: int) -> None:
    assume(part.window is None)
    keys_only = next(slab for slab in slabs_of(FullAttention(1, part.row_width, some.WIDTH), types) if slab.label == "keys")
    assert one(part, types, tokens) == keys_only.array(((tokens, 1),)).bytes


@given(some.stacks, some.types, some.tokens)
def test_runs_cover_every_layer_once_and_neighbours_differ(stack: Stack, types: Types, tokens: int) -> None:
    found = runs(stack)
    assert tuple(layer for _, count, layer in found for _ in range(count)) == stack
    assert all(before[2] != after[2] for before, after in pairwise(found))
    assert [first for first, _, _ in found] == [sum(count for _, count, _ in found[:index]) for index in range(len(found))]


plain = st.sampled_from(sorted(DTYPES)).map(lambda name: DTYPES[name]).filter(lambda dtype: dtype.block_elements == 1)


@given(some.stacks, plain, plain, some.tokens, some.batches)
def test_of_an_estimate_everything_adds_up(stack: Stack, k: Dtype, v: Dtype, tokens: int, batch: int) -> None:
    found = estimate(some.model_of(stack), Request(batch, tokens, k, v), ENGINE)
    document = json.loads(json.dumps(estimate_document(found)))
    assert document["total_bytes"] == found.total_bytes
    assert sum(document["components"].values()) == found.total_bytes
    assert sum(run["bytes"] for run in document["layers"]) == found.total_bytes
    assert all(run["bytes"] == run["count"] * run["bytes_per_layer"] for run in document["layers"])
    assert all(run["bytes_per_layer"] == sum(array["bytes"] for array in run["arrays"]) for run in document["layers"])
    assert all(array["bytes"] == array["rows"] * array["row_bytes"] for run in document["layers"] for array in run["arrays"])
    assert sum(run["count"] for run in document["layers"]) == len(stack)


@given(some.stacks, st.integers(0, 3000))
def test_bytes_per_token_is_the_growth_over_one_step(stack: Stack, tokens: int) -> None:
    model = some.model_of(stack)
    found, longer = (estimate(model, Request(tokens=at), ENGINE) for at in (tokens, tokens + ENGINE.plan(model, Request()).step))
    assert found.bytes_per_token is not None
    assert found.bytes_per_token * found.step == longer.total_bytes - found.total_bytes
    assert found.fixed_bytes is not None
    assert 0 <= found.fixed_bytes <= found.total_bytes


@given(some.stacks, some.tokens, some.batches)
def test_an_engine_s_short_cut_equals_its_allocation(stack: Stack, tokens: int, batch: int) -> None:
    model, request = some.model_of(stack), Request(batch, tokens, find_dtype("bf16"), find_dtype("fp8"))
    engine: Engine = ENGINE
    assert engine.plan(model, request).total(batch, tokens) == engine.allocate(model, request).total_bytes
