"""Random parts, layers and models for the laws."""

from __future__ import annotations

from hypothesis import strategies as st

from kvcalc.core.counting import Types
from kvcalc.core.fields import Fields
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
from kvcalc.core.model import Model
from kvcalc.dtypes import DTYPES

WIDTH = 32  # every width is a multiple of every block but one
heads = st.integers(1, 64)
widths = st.integers(1, 16).map(lambda n: n * WIDTH)
windows = st.integers(1, 8192)
tokens = st.integers(0, 200_000)
batches = st.integers(1, 500)
dtypes = st.sampled_from([dtype for dtype in DTYPES.values() if WIDTH % dtype.block_elements == 0])

full = st.builds(FullAttention, heads, widths, widths)
sliding = st.builds(SlidingAttention, heads, widths, widths, windows)
chunked = st.builds(ChunkedAttention, heads, widths, widths, windows)
cross = st.builds(CrossAttention, heads, widths, widths)
latent = st.builds(LatentAttention, widths, widths, window=st.none() | windows)
compressed = st.builds(
    CompressedAttention, widths, windows, st.sampled_from([0, 4, 128]), st.just(0) | widths, st.just(0) | st.integers(1, 9999)
)
recurrent = st.builds(
    Recurrent,
    st.sampled_from(["mamba", "mamba2", "rwkv"]),
    st.tuples(st.builds(Conv, st.integers(1, 999), st.integers(1, 8))),
    st.tuples(st.builds(State, st.tuples(st.integers(1, 64), st.integers(1, 64)))),
)
parts: st.SearchStrategy[Part] = st.one_of(
    full,
    sliding,
    chunked,
    cross,
    latent,
    compressed,
    recurrent,
    st.builds(Indexer, widths),
    st.just(Shared(0)),
    st.just(NoCache()),
)
layers: st.SearchStrategy[Layer] = st.lists(parts, min_size=1, max_size=2).map(tuple)
stacks: st.SearchStrategy[tuple[Layer, ...]] = st.lists(layers, min_size=1, max_size=6).map(tuple)
types = st.builds(Types, dtypes, dtypes, st.sampled_from([DTYPES["float16"], DTYPES["float32"]]), st.integers(0, 2000))


def model_of(stack: tuple[Layer, ...]) -> Model:
    """A model of just these layers, an encoder's length and a type of its own."""
    return Model("random", "equation", stack, Fields({}), encoder_tokens=1500, dtype="bfloat16")
