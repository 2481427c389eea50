"""The preallocated cache, each figure written as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.fields import Fields
from kvcalc.core.layers import FullAttention, Layer, Recurrent, SlidingAttention, State
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.errors import EngineError

ENGINE = find_engine("static")
EXACT = find_engine("exact")


def _model(*layers: Layer) -> Model:
    return Model("toy", "toy", layers, Fields({}), dtype="bfloat16")


LLAMA = _model(*[(FullAttention(8, 128, 128, 32),)] * 32)
MIXED = _model(
    (SlidingAttention(2, 64, 48, 512),), (FullAttention(2, 64, 48),), (Recurrent("gated_delta_net", (), (State((4, 8)),)),)
)


def test_a_capacity_is_allocated_whatever_the_length() -> None:
    for tokens in (1, 4096, 8192):
        tally = ENGINE.allocate(LLAMA, Request(tokens=tokens, options={"capacity": 8192}))
        assert tally.total_bytes == 2 * 32 * 8192 * 8 * 128 * 2
        assert tally.layers[0].positions == 8192


def test_a_window_takes_the_smaller_of_itself_and_the_capacity() -> None:
    row = 2 * (64 + 48) * 2
    assert ENGINE.allocate(MIXED, Request(batch_size=3, options={"capacity": 2048})).total_bytes == 3 * (
        512 * row + 2048 * row + 32 * 4
    )
    assert ENGINE.allocate(MIXED, Request(batch_size=3, options={"capacity": 100})).total_bytes == 3 * (
        100 * row + 100 * row + 32 * 4
    )


def test_without_a_capacity_it_holds_what_the_equation_says() -> None:
    request = Request(batch_size=2, tokens=1000)
    assert ENGINE.allocate(LLAMA, request).total_bytes == EXACT.allocate(LLAMA, request).total_bytes


def test_unequal_sequences_are_all_made_for_the_capacity() -> None:
    request = Request(lengths=(3, 10, 7), k_dtype=find_dtype("q8_0"), options={"capacity": 16})
    assert ENGINE.allocate(LLAMA, request).total_bytes == 32 * 3 * 16 * (8 * 128 // 32 * 34 + 8 * 128 * 2)


def test_a_longer_sequence_than_the_capacity_is_refused() -> None:
    with pytest.raises(EngineError, match="can't hold 4,097 tokens"):
        ENGINE.allocate(LLAMA, Request(tokens=4097, options={"capacity": 4096}))
    with pytest.raises(EngineError, match="can't hold"):
        ENGINE.plan(LLAMA, Request(options={"capacity": 4096})).total(1, 4097)


@given(st.integers(1, 5), st.integers(1, 5000), st.integers(0, 5000))
def test_the_sweep_function_agrees_with_the_tally(batch_size: int, tokens: int, spare: int) -> None:
    request = Request(batch_size=batch_size, tokens=tokens, options={"capacity": tokens + spare})
    assert ENGINE.plan(MIXED, request).total(batch_size, tokens) == ENGINE.allocate(MIXED, request).total_bytes
