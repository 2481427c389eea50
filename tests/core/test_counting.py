"""Rows and bytes of every part, as arithmetic."""

from __future__ import annotations

import pytest

from kvcalc.core.counting import ALL, ONE, Reach, Slab, Types, recurrent_slabs, slabs_of, tally_layers, total_function, with_reach
from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    Conv,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
    State,
)
from kvcalc.dtypes import find_dtype
from kvcalc.errors import DtypeError

FP16 = find_dtype("fp16")
TYPES = Types(FP16, FP16, FP16, encoder_tokens=1500)

REACHES = {
    "all": (ALL, 0, 0),
    "all of seven": (ALL, 7, 7),
    "within the cap": (Reach(cap=8), 7, 7),
    "at the cap": (Reach(cap=8), 8, 8),
    "beyond the cap": (Reach(cap=8), 9, 8),
    "one in four": (Reach(ratio=4), 11, 11 // 4),
    "one in four, capped": (Reach(ratio=4, cap=2), 100, 2),
    "whole blocks": (Reach(step=16), 17, 32),
    "whole blocks, none": (Reach(step=16), 0, 0),
    "whole blocks of a cap": (Reach(cap=20, step=16), 100, 32),
    "fixed": (Reach(fixed=5), 100, 5),
    "one": (ONE, 0, 1),
}


@pytest.mark.parametrize("name", REACHES)
def test_a_reach(name: str) -> None:
    reach, tokens, rows = REACHES[name]
    assert reach.rows(tokens) == rows


T = 1000
# DeepSeek V4, ratio 4: float32 keys and scores of 2·4 rows, each 2·(head_dim + index_head_dim) wide
BUFFERS_4 = 2 * 8 * 2 * (512 + 128)
BUFFERS_128 = 2 * 128 * 512
PARTS: dict[str, tuple[Part, dict[str, int]]] = {
    "mha": (FullAttention(32, 128, 128), {"keys": T * 32 * 128 * 2, "values": T * 32 * 128 * 2}),
    "gqa": (FullAttention(8, 128, 128), {"keys": T * 8 * 128 * 2, "values": T * 8 * 128 * 2}),
    "mqa": (FullAttention(1, 128, 128), {"keys": T * 128 * 2, "values": T * 128 * 2}),
    "k wider than v": (FullAttention(4, 192, 128), {"keys": T * 4 * 192 * 2, "values": T * 4 * 128 * 2}),
    "sliding": (SlidingAttention(4, 64, 64, 128), {"keys": 128 * 4 * 64 * 2, "values": 128 * 4 * 64 * 2}),
    "sliding, short": (SlidingAttention(4, 64, 64, 4096), {"keys": T * 4 * 64 * 2, "values": T * 4 * 64 * 2}),
    "chunked": (ChunkedAttention(4, 64, 64, 256), {"keys": 256 * 4 * 64 * 2, "values": 256 * 4 * 64 * 2}),
    "cross": (CrossAttention(4, 64, 64), {"keys": 1500 * 4 * 64 * 2, "values": 1500 * 4 * 64 * 2}),
    "mla": (LatentAttention(512, 64), {"latent": T * (512 + 64) * 2}),
    "mla, window": (LatentAttention(512, 64, window=100), {"latent": 100 * (512 + 64) * 2}),
    "indexer": (Indexer(128), {"index keys": T * 128 * 2}),
    "compressed, window alone": (CompressedAttention(512, 128), {"window rows": 128 * 512 * 2}),
    "compressed, ratio 4": (
        CompressedAttention(512, 128, 4, 128, BUFFERS_4),
        {
            "window rows": 128 * 512 * 2,
            "compressed rows": T // 4 * 512 * 2,
            "index keys": T // 4 * 128 * 2,
            "compressor buffers": BUFFERS_4 * 4,
        },
    ),
    "compressed, ratio 128": (
        CompressedAttention(512, 128, 128, 0, BUFFERS_128),
        {"window rows": 128 * 512 * 2, "compressed rows": T // 128 * 512 * 2, "compressor buffers": BUFFERS_128 * 4},
    ),
    "mamba": (
        Recurrent("mamba", (Conv(5120, 4),), (State((5120, 16)),)),
        {"conv": 3 * 5120 * 2, "state": 5120 * 16 * 4},
    ),
    "state in the model's type": (Recurrent("rwkv", (), (State((2, 2048), None),)), {"state": 2 * 2048 * 2}),
    "conv in its own type": (Recurrent("kda", (Conv(10, 4, "float32"),)), {"conv": 3 * 10 * 4}),
    "shared": (Shared(1), {}),
    "none": (NoCache(), {}),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part(name: str) -> None:
    part, expected = PARTS[name]
    found = {slab.label: slab.array(((T, 1),)).bytes for slab in slabs_of(part, TYPES)}
    assert found == expected


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_three_sequences_of_two_lengths(name: str) -> None:
    part, _ = PARTS[name]
    for slab in slabs_of(part, TYPES):
        apart = 2 * slab.array(((T, 1),)).bytes + slab.array(((5, 1),)).bytes
        assert slab.array(((T, 2), (5, 1))).bytes == apart


def test_keys_and_values_take_their_own_types() -> None:
    types = Types(find_dtype("q8_0"), find_dtype("q4_0"), FP16)
    found = {slab.label: slab.row_bytes for slab in slabs_of(FullAttention(8, 64, 64), types)}
    assert found == {"keys": 8 * 64 // 32 * 34, "values": 8 * 64 // 32 * 18}


def test_latent_and_index_rows_take_the_key_s_type() -> None:
    types = Types(find_dtype("fp8"), FP16, FP16)
    assert [slab.row_bytes for slab in slabs_of(LatentAttention(512, 64), types)] == [576]
    assert [slab.row_bytes for slab in slabs_of(Indexer(128), types)] == [128]


def test_a_row_that_breaks_a_block_is_refused_and_says_which() -> None:
    with pytest.raises(DtypeError) as caught:
        slabs_of(FullAttention(1, 80, 80), Types(find_dtype("q8_0"), FP16, FP16))
    assert caught.value.where == "keys of 1 x 80"


def test_an_engine_may_keep_more_columns_and_another_state_type() -> None:
    part = Recurrent("mamba", (Conv(10, 4),), (State((10, 16)),))
    conv, state = recurrent_slabs(part, TYPES, conv_columns=0, state_dtype=FP16)
    assert (conv.row_bytes, state.row_bytes) == (4 * 10 * 2, 10 * 16 * 2)


def test_the_same_slabs_with_another_reach() -> None:
    slabs = with_reach(slabs_of(FullAttention(1, 8, 8), TYPES), Reach(step=64))
    assert [slab.array(((1, 1),)).rows for slab in slabs] == [64, 64]
    assert [slab.label for slab in slabs] == ["keys", "values"]


HYBRID: tuple[Layer, ...] = (
    (FullAttention(2, 8, 8),),
    (FullAttention(2, 8, 8),),
    (SlidingAttention(2, 8, 8, 16),),
    (FullAttention(2, 8, 8), Recurrent("mamba2", (Conv(12, 4),), (State((2, 3)),))),
    (NoCache(),),
)


def test_a_tally_has_a_run_for_equal_neighbours() -> None:
    found = tally_layers(HYBRID, ((100, 3),), TYPES)
    assert [(run.first, run.count, run.kind, run.positions) for run in found] == [
        (0, 2, "full_attention", 100),
        (2, 1, "sliding_attention", 16),
        (3, 1, "full_attention+mamba2", 100),
        (4, 1, "no_attention", 0),
    ]
    assert [run.bytes for run in found] == [
        2 * 3 * 100 * 2 * 2 * 8 * 2,
        3 * 16 * 2 * 2 * 8 * 2,
        3 * (100 * 2 * 2 * 8 * 2 + 3 * 12 * 2 + 2 * 3 * 4),
        0,
    ]


def test_positions_are_those_of_the_longest_sequence() -> None:
    (found,) = tally_layers(HYBRID[:1], ((10, 5), (40, 1)), TYPES)
    assert found.positions == 40


def test_no_sequences_hold_nothing() -> None:
    (found,) = tally_layers(HYBRID[:1], (), TYPES)
    assert (found.positions, found.bytes) == (0, 0)


@pytest.mark.parametrize("layers", [HYBRID, HYBRID[:2]], ids=["bent", "straight"])
@pytest.mark.parametrize("tokens", [0, 1, 15, 16, 17, 1000])
def test_the_short_cut_of_a_sweep_is_the_tally_s_total(layers: tuple[Layer, ...], tokens: int) -> None:
    total = total_function(layers, TYPES)
    assert total(3, tokens) == sum(run.bytes for run in tally_layers(layers, ((tokens, 3),), TYPES))


def test_an_engine_s_own_rule_counts_instead() -> None:
    def rule(_part: Part, _types: Types) -> tuple[Slab, ...]:
        return (Slab("kv", "keys", ALL, 1),)

    parts = sum(len(layer) for layer in HYBRID)
    assert total_function(HYBRID, TYPES, rule)(1, 10) == parts * 10
    assert sum(run.bytes for run in tally_layers(HYBRID, ((10, 1),), TYPES, rule)) == parts * 10
