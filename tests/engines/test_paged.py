"""The cache in blocks, each figure written as arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.fields import Fields
from kvcalc.core.layers import CompressedAttention, CrossAttention, FullAttention, Layer, SlidingAttention
from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine

ENGINE = find_engine("paged")
EXACT = find_engine("exact")


def _model(*layers: Layer) -> Model:
    return Model("toy", "toy", layers, Fields({}), dtype="bfloat16", encoder_tokens=10)


LLAMA = _model(*[(FullAttention(8, 128, 128, 32),)] * 32)
ROW = 2 * 8 * 128 * 2


def test_whole_blocks_and_one_table_for_all_layers() -> None:
    tally = ENGINE.allocate(LLAMA, Request(batch_size=2, tokens=33))
    assert tally.component_bytes() == {"kv": 32 * 2 * 48 * ROW, "index": 0, "state": 0, "other": 2 * 3 * 4}
    assert tally.total_bytes == 32 * 2 * 48 * ROW + 2 * 3 * 4


def test_the_table_is_as_wide_as_the_longest_sequence() -> None:
    tally = ENGINE.allocate(LLAMA, Request(lengths=(1, 17, 33), options={"block-size": 16}))
    assert tally.total_bytes == 32 * (16 + 32 + 48) * ROW + 3 * 3 * 4


def test_a_window_takes_a_ring_of_whole_blocks_and_a_table_of_its_own() -> None:
    model = _model((SlidingAttention(8, 128, 128, 20),), (FullAttention(8, 128, 128),))
    tally = ENGINE.allocate(model, Request(tokens=100, options={"block-size": 8}))
    assert tally.total_bytes == 24 * ROW + 104 * ROW + 4 * (24 // 8 + 104 // 8)


def test_the_encoders_keys_stay_outside_the_blocks() -> None:
    model = _model((FullAttention(8, 128, 128), CrossAttention(8, 128, 128)))
    assert ENGINE.allocate(model, Request(tokens=1)).total_bytes == 16 * ROW + 10 * ROW + 4


def test_rows_for_every_ratio_tokens_fill_blocks_too() -> None:
    model = _model((CompressedAttention(64, 32, ratio=4, index_head_dim=16, buffer_elements=6),))
    tally = ENGINE.allocate(model, Request(tokens=100, options={"block-size": 10}))
    assert tally.total_bytes == 40 * 64 * 2 + 30 * 64 * 2 + 30 * 16 * 2 + 6 * 4 + 4 * (4 + 3)


@given(st.integers(1, 4), st.integers(1, 300), st.integers(1, 40))
def test_the_sweep_function_agrees_with_the_tally(batch_size: int, tokens: int, block_size: int) -> None:
    model = _model((SlidingAttention(2, 8, 8, 20),), (FullAttention(2, 8, 8),))
    request = Request(batch_size=batch_size, tokens=tokens, options={"block-size": block_size})
    assert ENGINE.plan(model, request).total(batch_size, tokens) == ENGINE.allocate(model, request).total_bytes


@given(st.integers(1, 300), st.integers(1, 40))
def test_less_than_a_block_and_a_table_above_the_equation(tokens: int, block_size: int) -> None:
    request = Request(tokens=tokens, options={"block-size": block_size})
    spare = ENGINE.allocate(LLAMA, request).total_bytes - EXACT.allocate(LLAMA, request).total_bytes
    table = 4 * -(-tokens // block_size)
    assert table <= spare < table + 32 * block_size * ROW
