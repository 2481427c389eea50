"""llama.cpp's releases: what each changed, and the figures on both sides of a change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import pytest

from kvcalc.core.fields import Fields
from kvcalc.core.gguf import GgufMetadata
from kvcalc.core.layers import LatentAttention
from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.engines import find_engine
from kvcalc.engines.base import SERVED
from kvcalc.engines.llamacpp.releases import BY_NAME, CHANGES, RELEASES, Release
from kvcalc.engines.sweep import Grid, Refused, cells
from kvcalc.errors import EngineError
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf
from kvcalc.readers.presets import find_preset, model_in

ENGINE = find_engine("llama.cpp")
MEASURED = json.loads((Path(__file__).resolve().parents[1] / "data" / "llamacpp_sample.json").read_text())["models"]
LISTS = ("name", "arches")
R1 = 61 * 8192 * 128 * (192 + 128) * 2  # DeepSeek-R1 before latents: 39,040 MiB


def preset(name: str) -> Model:
    return model_in(find_preset(name), {}, "")


def model(metadata: Mapping[str, object]) -> Model:
    return model_of_gguf(GgufFile(GgufMetadata(metadata), "made.gguf"), {})


def total(given: Model, **options: OptionValue) -> int:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return ENGINE.allocate(given, Request(options=named)).total_bytes


def test_each_release_says_what_it_changed() -> None:
    for before, after in pairwise(BY_NAME.values()):
        rules = [getattr(before, part.name) == getattr(after, part.name) for part in fields(Release) if part.name not in LISTS]
        old_rows = {name: row for name, row in after.arches.items() if name in before.arches}
        same = all(rules) and all(before.arches[name] == row for name, row in old_rows.items())
        said = [change for change in CHANGES if change.since == after.name and not change.name.startswith("new in ")]
        assert bool(said) != same, after.name
        new = {name for change in CHANGES if change.name == f"new in {after.name}" for name in change.said[19:].split(", ")}
        assert new == set(after.arches) - set(before.arches)


@pytest.mark.parametrize(
    ("release", "total_bytes"),
    [("b4600", R1), ("b5134", R1), ("b5135", 61 * 8192 * (576 + 512) * 2), ("b8095", 61 * 8192 * 576 * 2)],
)
def test_heads_of_a_latent_are_whole_before_it_was_known(release: str, total_bytes: int) -> None:
    assert total(preset("deepseek-r1"), ctx_size=8192, release=release) == total_bytes


def test_a_file_with_a_latent_is_refused_by_builds_before_it() -> None:
    metadata = MEASURED["b5640-ds-mla"]
    with pytest.raises(EngineError, match="converted for builds that store a latent"):
        total(model(metadata), ctx_size=256, release="b5000")
    assert total(model(metadata), ctx_size=256, release="b5135") == 6 * 256 * (576 + 512) * 2


def test_heads_that_are_not_named_are_not_guessed() -> None:
    layers = ((LatentAttention(512, 64),),) * 2
    nameless = Model("no heads", "deepseek_v3", layers, Fields({}, "file"), "file", format="hf", max_tokens=4096)
    with pytest.raises(EngineError, match="doesn't name the heads"):
        total(nameless, ctx_size=256, release="b4600")


@pytest.mark.parametrize(
    ("release", "cells"),
    [("b5426", 31232), ("b5427", 4096 + 2048), ("b5553", 4096 + 2048), ("b5554", 4096 + 512), ("b5640", 4096 + 512)],
)
def test_what_a_sliding_cache_has_beyond_its_window(release: str, cells: int) -> None:
    """Command R7B: 24 of its 32 layers slide; 8 heads of 128."""
    metadata = {
        "general.architecture": "cohere2",
        "cohere2.context_length": 8192,
        "cohere2.embedding_length": 4096,
        "cohere2.block_count": 32,
        "cohere2.attention.head_count": 32,
        "cohere2.attention.head_count_kv": 8,
        "cohere2.attention.sliding_window": 4096,
    }
    found = total(model(metadata), ctx_size=31232, flash_attn="on", release=release)
    assert found == (8 * 31232 + 24 * cells) * 2 * 8 * 128 * 2


def test_a_release_serves_the_architectures_that_it_has() -> None:
    qwen = preset("qwen3.5-9b")
    assert "b8095 does" in ENGINE.serves(qwen, RELEASES.find("b7698")).refused
    assert ENGINE.serves(qwen, RELEASES.find("b8095")) == SERVED
    assert "converter" in ENGINE.serves(replace(qwen, model_type="reformer"), RELEASES.find(None)).refused


def test_a_sweep_refuses_what_an_estimate_refuses() -> None:
    """Among the batches, those that -o parallel contradicts."""
    request = Request(options={"parallel": 4}, origins={"batch_size": "flag --batch"})
    grid = Grid((preset("llama-8b"),), ((None, None),), (1, 4), lambda: (1000,), ENGINE, request)
    one, four = cells(grid)
    assert isinstance(one, Refused)
    assert (four.total_bytes, four.k_dtype) == (4 * 1024 * 32 * 2 * 8 * 128 * 2, "float16")


def sampled(name: str, **keys: object) -> Model:
    metadata = next(held for held in MEASURED.values() if held["general.architecture"] == name)
    return model({**metadata, **{f"{name}.{key.replace('__', '.')}": value for key, value in keys.items()}})


@pytest.mark.parametrize("name", ["qwen35", "lfm2moe", "kimi-k3", "qwen4exp", "deepseek4", "glm5-next", "bailingmoe3", "rwkv7"])
def test_a_sweep_s_short_cut_counts_the_snapshots(name: str) -> None:
    given = sampled(name)
    plan = ENGINE.plan(given, Request(options={"n-rs-seq": 3}))
    none = ENGINE.plan(given, Request())
    for batch, tokens in ((1, 512), (3, 1000)):
        assert plan.total(batch, tokens) == plan.at(batch, tokens).tally.total_bytes
        assert (plan.total(batch, tokens) > none.total(batch, tokens)) == (name != "rwkv7")


def test_the_indexers_of_glm_5_2_stand_in_two_layers_and_every_fourth() -> None:
    """A file for 1,048,576 tokens that lists no indexers: layers 0, 1, 2, 6, 10 … 74 have one, the further block none."""
    older, newer = (sampled("glm-dsa", context_length=context) for context in (1_048_575, 1_048_576))
    keys = 256 * 128 * 2
    latents = 78 * 256 * 576 * 2
    assert total(older, ctx_size=256) == latents + 78 * keys
    assert total(newer, ctx_size=256) == latents + (2 + 19) * keys
