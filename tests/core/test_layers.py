"""Layers as values: equal ones are one run, and each has a name."""

from __future__ import annotations

import pytest

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
    Recurrent,
    Shared,
    SlidingAttention,
    State,
    kind_of,
    runs,
)

FULL = FullAttention(8, 128, 128)
SLIDING = SlidingAttention(8, 128, 128, 4096)
MAMBA = Recurrent("mamba", (Conv(64, 4),), (State((64, 16)),))

NAMES: dict[str, Layer] = {
    "full_attention": (FULL,),
    "sliding_attention": (SLIDING,),
    "chunked_attention": (ChunkedAttention(8, 128, 128, 8192),),
    "mla": (LatentAttention(512, 64),),
    "mla+indexer": (LatentAttention(512, 64), Indexer(128)),
    "compressed_attention": (CompressedAttention(512, 128, 4),),
    "full_attention+cross_attention": (FULL, CrossAttention(8, 128, 128)),
    "full_attention+mamba": (FULL, MAMBA),
    "mamba": (MAMBA,),
    "shared": (Shared(3),),
    "no_attention": (NoCache(),),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_is_named_after_its_parts(name: str) -> None:
    assert kind_of(NAMES[name]) == name


def test_a_latent_row_is_rank_and_rope() -> None:
    assert LatentAttention(512, 64).row_width == 512 + 64


def test_a_state_holds_the_product_of_its_shape() -> None:
    assert State((64, 128, 16)).elements == 64 * 128 * 16
    assert State(()).elements == 1


def test_equal_neighbours_are_one_run() -> None:
    assert runs(((FULL,), (FULL,), (SLIDING,), (FULL,))) == [(0, 2, (FULL,)), (2, 1, (SLIDING,)), (3, 1, (FULL,))]


def test_no_layers_no_runs() -> None:
    assert runs(()) == []


def test_a_window_or_a_head_count_apart_makes_another_run() -> None:
    other = SlidingAttention(8, 128, 128, 1024)
    assert len(runs(((SLIDING,), (other,), (FullAttention(4, 128, 128),)))) == 3
