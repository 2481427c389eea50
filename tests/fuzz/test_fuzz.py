"""A sample of every reader's fuzzing, each time; ``fuzzing.py`` runs the large counts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from fuzzing import ODD_VALUES, TARGETS, answer, mutate, run, seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SAMPLE = settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A file for readers of paths."""
    return tmp_path / "input.json"


@pytest.mark.parametrize("target", TARGETS)
def test_every_seed_is_accepted(target: str, scratch: Path) -> None:
    assert [answer(target, seed, scratch) for seed in seeds(target)] == [True] * len(seeds(target))


@pytest.mark.parametrize("target", TARGETS)
@SAMPLE
@given(seed=st.integers(0, 2**64))
def test_mutated_inputs_are_answered(target: str, scratch: Path, seed: int) -> None:
    answer(target, mutate(target, random.Random(seed)), scratch)


@pytest.mark.parametrize("target", TARGETS)
@SAMPLE
@given(data=st.binary(max_size=300))
def test_any_bytes_are_answered(target: str, scratch: Path, data: bytes) -> None:
    answer(target, data, scratch)


KEYS = st.sampled_from(
    (
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "sliding_window"),
        *("layer_types", "model_type", "kv_lora_rank", "qk_rope_head_dim", "text_config", "torch_dtype", "quantization_config"),
    )
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.sampled_from(ODD_VALUES), st.integers(-5, 300), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=8,
)


@settings(SAMPLE, max_examples=60)
@given(value=st.dictionaries(KEYS, JSON, max_size=10))
def test_any_object_is_answered_as_a_config(scratch: Path, value: dict[str, Any]) -> None:
    answer("config", json.dumps(value).encode(), scratch)


@SAMPLE
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@pytest.mark.parametrize("target", ["ranges", "sizes", "lengths", "preset", "log"])
def test_any_text_is_answered(target: str, scratch: Path, text: str) -> None:
    answer(target, text.encode(), scratch)


def test_the_runner_counts() -> None:
    found = run("lengths", 200, 7)
    assert found.inputs == 200
    assert 0 < found.accepted < 200


def test_the_same_seed_gives_the_same_inputs() -> None:
    for target in TARGETS:
        assert mutate(target, random.Random(5)) == mutate(target, random.Random(5))
