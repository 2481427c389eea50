"""Every file of presets/ holds one model, says where it was read, and names nothing twice."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[1] / "presets"
FILES = sorted(FOLDER.glob("*.yaml"))
KEYS = [
    "name",
    "title",
    "family",
    "aliases",
    "checkpoint",
    "source",
    "parameters",
    "weights_dtype",
    "weights_bytes",
    "weights_format",
    "config",
]
NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
DEPTH_KEYS = (
    "num_hidden_layers",
    "num_layers",
    "n_layer",
    "n_layers",
    "decoder_layers",
    "num_decoder_layers",
    "num_transformer_layers",
)
WIDTH_KEYS = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
LEFT_TO_THE_CLASS = {"qwen2-audio-7b"}  # the published file leaves every size of the decoder to qwen2's defaults
FOREIGN = re.compile(
    r"rope_(?:theta|scaling|parameters)|token_id|activation|dropout|initializer|architectures|auto_map|transformers_version"
)


def load(path: Path) -> dict[str, Any]:
    with path.open(encoding="utf-8") as file:
        return yaml.safe_load(file)  # type: ignore[no-any-return]


PRESETS = {path.stem: load(path) for path in FILES}
each_preset = pytest.mark.parametrize("name", PRESETS)


def text_part(config: dict[str, Any]) -> dict[str, Any]:
    """The mapping that describes the decoder: the nested one where the file nests."""
    for key in NESTED:
        if isinstance(config.get(key), dict):
            return text_part(config[key])
    return config


def keys_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for inner in value.values() for key in keys_of(inner))]
    return [key for inner in value for key in keys_of(inner)] if isinstance(value, list) else []


def test_there_are_at_least_eighty() -> None:
    assert len(PRESETS) >= 80


@each_preset
def test_the_file_name_is_the_preset_name(name: str) -> None:
    preset = PRESETS[name]
    assert preset["name"] == name
    assert re.fullmatch(r"[a-z0-9]+(?:[.-][a-z0-9]+)*", name)


@each_preset
def test_the_fields_are_the_known_ones_in_their_order(name: str) -> None:
    present = list(PRESETS[name])
    assert present == [key for key in KEYS if key in present]
    assert set(KEYS) - set(present) <= {"parameters", "weights_dtype", "weights_bytes", "weights_format"}


def test_no_name_or_alias_means_two_models() -> None:
    spelled = Counter(word for name, preset in PRESETS.items() for word in [name, *preset["aliases"]])
    assert [word for word, times in spelled.items() if times > 1] == []


@each_preset
def test_aliases_are_lower_case_words_on_one_line(name: str) -> None:
    for alias in PRESETS[name]["aliases"]:
        assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", alias)
    lines = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if re.fullmatch(r"aliases: \[.*\]", line)], "an index of names reads this line alone"


@each_preset
def test_the_source_is_named(name: str) -> None:
    source = PRESETS[name]["source"]
    assert set(source) <= {"repo", "path", "commit", "note"}
    assert re.fullmatch(r"(?:PyPI|npm) \S+ \S+|[\w.-]+/[\w.-]+", source["repo"])
    assert source["path"]
    assert re.fullmatch(r"[0-9a-f]{40}", source.get("commit", "0" * 40))
    assert "/" in PRESETS[name]["checkpoint"]


def is_size(value: Any) -> bool:
    return type(value) is int and value > 0


@each_preset
def test_the_config_describes_a_decoder(name: str) -> None:
    config = PRESETS[name]["config"]
    text = text_part(config)
    assert isinstance(config["model_type"], str)
    if name in LEFT_TO_THE_CLASS:
        assert not any(key in text for key in (*DEPTH_KEYS, *WIDTH_KEYS))
        return
    assert any(is_size(text.get(key)) for key in DEPTH_KEYS) or text["layers_block_type"]
    assert any(is_size(text.get(key)) for key in WIDTH_KEYS)


@each_preset
def test_the_config_holds_nothing_that_no_cache_depends_on(name: str) -> None:
    assert [key for key in keys_of(PRESETS[name]["config"]) if FOREIGN.search(key)] == []


@each_preset
def test_per_layer_lists_are_as_long_as_the_model(name: str) -> None:
    text = text_part(PRESETS[name]["config"])
    for key in ("layer_types", "block_configs", "layers_block_type", "hybrid_layer_pattern", "attn_type_list"):
        if isinstance(text.get(key), list):
            depth = text.get("num_hidden_layers", len(text[key]))
            assert len(text[key]) in (depth, depth + text.get("num_nextn_predict_layers", 0)), key


def test_the_note_s_own_shape() -> None:
    config = PRESETS["llama-8b"]["config"]
    assert (config["num_hidden_layers"], config["num_key_value_heads"]) == (32, 8)
    assert config["hidden_size"] // config["num_attention_heads"] == 128
