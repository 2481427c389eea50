"""One rank's share: heads, states, layers and sequences, and what is whole everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.layers import Conv, FullAttention, Indexer, LatentAttention, Recurrent, State
from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.engines.estimate import estimate
from kvcalc.engines.ranks import share_of, stages
from kvcalc.errors import EngineError
from kvcalc.readers.presets import preset_model

LAYERED = ("exact", "static", "paged")


def bytes_of(model: Model, engine: str = "exact", tokens: int = 4096, batch_size: int = 1, **ranks: int) -> int:
    """The heaviest rank's bytes."""
    tp_size, pp_size, dp_size = (ranks.get(name, 1) for name in ("tp_size", "pp_size", "dp_size"))
    request = Request(tokens=tokens, batch_size=batch_size, tp_size=tp_size, pp_size=pp_size, dp_size=dp_size)
    found = find_engine(engine)
    plan = found.plan(model, request)
    assert plan.total(batch_size, tokens) == plan.tally.total_bytes
    return plan.tally.total_bytes


@pytest.mark.parametrize("engine", LAYERED)
@pytest.mark.parametrize(("tp_size", "heads"), [(2, 4), (8, 1), (16, 1), (3, 3)])
def test_heads_are_split_and_then_copied(engine: str, tp_size: int, heads: int) -> None:
    """8 key/value heads over 2, 8, 16 ranks, and over 3, of which one holds 3."""
    model = preset_model("llama-3-8b")
    tables = 4096 // 16 * 4 if engine == "paged" else 0
    assert bytes_of(model, engine, tp_size=tp_size) == 2 * 32 * 4096 * heads * 128 * 2 + tables


def test_a_latent_is_whole_on_every_rank() -> None:
    """DeepSeek V3's 576 numbers a token are needed by every head, so by every rank; only sequences split them."""
    model = preset_model("deepseek-v3")
    assert bytes_of(model) == bytes_of(model, tp_size=16) == 61 * 4096 * 576 * 2
    assert bytes_of(model, batch_size=16, dp_size=16) == bytes_of(model)


def test_indexers_are_whole_too() -> None:
    """What every head attends through stands on every rank."""
    for part in (LatentAttention(512, 64, 128), Indexer(128)):
        assert share_of(part, 8) == part


def test_states_are_split_by_heads() -> None:
    """Mamba-2: 8,192 channels and 1 group of 128 states a side: conv (8,192 / 4 + 2 · 128) · 3, state 128 / 4 heads."""
    part = Recurrent("mamba2", (Conv(8192 + 2 * 128, 4),), (State((128, 64, 128)),), num_groups=1)
    shared = share_of(part, 4)
    assert isinstance(shared, Recurrent)
    assert shared.convs[0].channels == 8192 // 4 + 2 * 128
    assert shared.states[0].shape == (32, 64, 128)
    eight = share_of(replace(part, convs=(Conv(8192 + 2 * 8 * 128, 4),), num_groups=8), 4)
    assert isinstance(eight, Recurrent)
    assert eight.convs[0].channels == (8192 + 2 * 8 * 128) // 4


def test_layers_are_dealt_out_in_runs() -> None:
    """80 layers to 3 stages: 27, 27, 26; the first counts."""
    assert stages(80, 3) == [(0, 27), (27, 27), (54, 26)]
    assert bytes_of(preset_model("llama-3-70b"), pp_size=3) == 2 * 27 * 4096 * 8 * 128 * 2
    with pytest.raises(EngineError, match="81 pipeline stages"):
        stages(80, 81)


def test_the_heaviest_stage_may_be_any() -> None:
    """A stage of full-attention layers outweighs one of windows, wherever it stands."""
    full, narrow = FullAttention(8, 128, 128, 8), FullAttention(1, 128, 128, 8)
    model = replace(preset_model("llama-3-8b"), layers=((narrow,),) * 3 + ((full,),) * 3)
    tally = find_engine("exact").allocate(model, Request(tokens=10, pp_size=2))
    assert [(run.first, run.count) for run in tally.layers] == [(3, 3)]
    rows = tally.report["ranks"]
    assert isinstance(rows, list)
    assert [row["bytes_per_rank"] for row in rows] == [3 * 10 * 2 * 128 * 2, 3 * 10 * 8 * 2 * 128 * 2]


@given(st.integers(1, 64), st.integers(1, 12))
def test_stages_cover_every_layer_once(layers: int, count: int) -> None:
    """Runs that follow each other, none longer than another by more than one."""
    if count > layers:
        return
    found = stages(layers, count)
    assert [first for first, _ in found] == [sum(size for _, size in found[:index]) for index in range(count)]
    assert sum(size for _, size in found) == layers
    assert max(size for _, size in found) - min(size for _, size in found) <= 1


def test_sequences_are_dealt_to_copies() -> None:
    """5 sequences to 2 copies: 3 at most; of different lengths, the longest first."""
    model, token = preset_model("llama-3-8b"), 2 * 32 * 8 * 128 * 2
    assert bytes_of(model, tokens=100, batch_size=5, dp_size=2) == 3 * 100 * token
    sample = Request(lengths=(10, 1000, 30, 500), dp_size=2)
    assert find_engine("exact").allocate(model, sample).total_bytes == (1000 + 30) * token


@pytest.mark.parametrize("name", ["llama-3-8b", "granite-4.0-h-350m", "gemma-3-1b", "qwen3-next-80b"])
def test_ranks_that_divide_hold_the_whole_together(name: str) -> None:
    """Where everything divides, tp ranks times one rank's bytes are the model's."""
    model = preset_model(name)
    shares = {tp_size: bytes_of(model, tp_size=tp_size) for tp_size in (1, 2)}
    heads = [part.num_kv_heads for layer in model.layers for part in layer if hasattr(part, "num_kv_heads")]
    groups = [part.num_groups for layer in model.layers for part in layer if isinstance(part, Recurrent) and part.num_groups]
    assert shares[2] * 2 >= shares[1]
    if all(count % 2 == 0 for count in (*heads, *groups)):
        assert shares[2] * 2 == shares[1]


@pytest.mark.parametrize(
    ("engine", "waste"), [("static", 2 * 32_768 - 500 - 8192), ("paged", 12), ("sglang", 1), ("mlx-lm", 2 * 32_768 - 500 - 8192)]
)
def test_what_different_lengths_waste(engine: str, waste: int) -> None:
    """500, 8,192 and 32,768 tokens: the longest for all, whole blocks (and their tables), a spare slot."""
    model, request = preset_model("llama-3-8b"), Request(lengths=(500, 8192, 32_768))
    found = estimate(model, request, find_engine(engine))
    token, tables = 2 * 32 * 8 * 128 * 2, 3 * 2048 * 4 if engine == "paged" else 0
    assert found.waste_bytes == waste * token + tables
    assert found.kept_bytes == (500 + 8192 + 32_768) * token
    assert estimate(model, Request(tokens=500), find_engine(engine)).waste_bytes is None
