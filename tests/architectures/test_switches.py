"""Switches of single model types that no pinned config throws."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.architectures.rows import Rows
from kvcalc.core.layers import Recurrent, kind_of, runs
from kvcalc.core.model import Model
from kvcalc.errors import ArchitectureError, ConfigError
from kvcalc.readers.hf_config import model_of

SIZES: dict[str, Any] = {"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512}


def read(model_type: str, **more: Any) -> Model:
    return model_of({"model_type": model_type, **SIZES, **more}, "config.json", model_type)


def kinds(model: Model) -> str:
    return " ".join(f"{count}x{kind_of(layer)}" for _, count, layer in runs(model.layers))


def test_a_pattern_of_letters_repeats() -> None:
    """EXAONE 4: L slides, G sees everything."""
    found = kinds(read("exaone4", head_dim=64, sliding_window=128, sliding_window_pattern="LLG", layer_types=None))
    assert found == "2xsliding_attention 1xfull_attention 2xsliding_attention 1xfull_attention 2xsliding_attention"
    with pytest.raises(ArchitectureError, match="'LXG' is not known"):
        read("exaone4", head_dim=64, sliding_window=128, sliding_window_pattern="LXG", layer_types=None)


def test_dory_s_blocks_are_listed_two_a_layer_and_its_last_loop_may_be_all_that_is_kept() -> None:
    blocks = ["full_attention", "mlp", "sliding_attention", "mlp"] * 2
    options = {"layer_types": blocks, "sliding_window": 128, "head_dim": 64, "recurrent_kv_cache_mode": "last_loop"}
    assert len(read("dory", **options).layers) == 4


def test_ngrams_stand_in_the_layers_that_are_named() -> None:
    """Layers are counted from 1."""
    model = read("qwen4_exp_text", head_dim=64, index_head_dim=32, ple_layer_ids=[2], layer_types=["linear_attention"] * 8)
    held = [any(isinstance(part, Recurrent) and part.variant == "ngram" for part in layer) for layer in model.layers]
    assert held == [False, True, *[False] * 6]


def test_a_width_that_nothing_tells_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="neither head_dim nor hidden_size"):
        model_of({"model_type": "yi", "num_hidden_layers": 2, "num_attention_heads": 4}, "config.json", "yi")


def test_rows_of_text_are_read_when_they_are_asked_for() -> None:
    rows = Rows({"a": '{"b": 1}', "c": "no JSON"})
    assert (rows["a"], rows["a"], list(rows), len(rows), "c" in rows) == ({"b": 1}, {"b": 1}, ["a", "c"], 2, True)
