"""Each pattern, layer by layer. F full, S sliding, C chunked, L linear, - none."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.architectures import patterns
from kvcalc.architectures.aliases import LAYER_KINDS
from kvcalc.architectures.patterns import CHUNKED, FULL, LINEAR, NONE, SLIDING, Pattern
from kvcalc.core.fields import MAX_LAYERS, Field, Fields
from kvcalc.errors import ArchitectureError, ConfigError

SIGNS = {FULL: "F", SLIDING: "S", CHUNKED: "C", LINEAR: "L", NONE: "-"}


def fields(values: dict[str, Any]) -> Fields:
    return Fields({name: Field(value, f"config.json: {name}") for name, value in values.items()}, "config.json")


def drawn(pattern: Pattern, values: dict[str, Any], num_layers: int) -> str:
    return "".join(SIGNS[kind] for kind in pattern(fields(values), num_layers))


USED = {"use_sliding_window": True, "sliding_window": 4096}
ROPE = {"attention_chunk_size": 8192}
GEMMA3 = patterns.windowed_every_nth("sliding_window_pattern", 6)
CASES: dict[str, tuple[Pattern, dict[str, Any], str]] = {
    "all full, whatever the window": (patterns.all_full, {"sliding_window": 4}, "FFF"),
    "a window makes all slide": (patterns.full_unless_window, {"sliding_window": 4}, "SSS"),
    "a null window makes none slide": (patterns.full_unless_window, {"sliding_window": None}, "FFF"),
    "every second full": (patterns.every_nth(FULL, SLIDING, "_", 2), {}, "SFSFS"),
    "every third linear, from the first": (patterns.every_nth(LINEAR, FULL, "_", 3, offset=0), {}, "LFFLFF"),
    "the file's own period": (
        patterns.every_nth(FULL, LINEAR, "full_attention_interval", 4),
        {"full_attention_interval": 3},
        "LLFLLF",
    ),
    "gemma 3": (GEMMA3, {"sliding_window": 1024}, "SSSSSFSS"),
    "gemma 3, its window null": (GEMMA3, {"sliding_window": None}, "FFFFFFFF"),
    "qwen2, upper layers": (patterns.upper_layers_slide, {**USED, "max_window_layers": 2}, "FFSS"),
    "qwen2, no layer is upper": (patterns.upper_layers_slide, {**USED, "max_window_layers": 28}, "FFFF"),
    "qwen2, limit unsaid": (patterns.upper_layers_slide, USED, "FFFF"),
    "qwen2, from the first": (patterns.upper_layers_slide, {**USED, "max_window_layers": 0}, "SSSS"),
    "qwen2, switched off": (patterns.upper_layers_slide, {**USED, "use_sliding_window": False, "max_window_layers": 0}, "FFFF"),
    "qwen2, no window": (patterns.upper_layers_slide, {"use_sliding_window": True, "max_window_layers": 0}, "FFFF"),
    "qwen3-moe": (patterns.all_slide_if_used, {**USED, "max_window_layers": 99}, "SSS"),
    "qwen3-moe, switched off": (patterns.all_slide_if_used, {"sliding_window": 4}, "FFF"),
    "qwen2-moe": (patterns.even_layers_below_slide, {**USED, "max_window_layers": 3}, "SFSFFF"),
    "qwen2-moe, switched off": (patterns.even_layers_below_slide, {"max_window_layers": 3}, "FFF"),
    "dots1": (patterns.upper_layers_slide_always, {"sliding_window": 4, "max_window_layers": 1}, "FSS"),
    "dots1, no window": (patterns.upper_layers_slide_always, {"max_window_layers": 1}, "FFF"),
    "smollm3, switched off": (patterns.layers_without_rope_slide, {"no_rope_layers": [1, 0]}, "FF"),
    "smollm3": (patterns.layers_without_rope_slide, {**USED, "no_rope_layers": [1, 1, 0]}, "FFS"),
    "llama 4, every fourth without rope": (patterns.layers_with_rope_chunk, ROPE, "CCCFCCCF"),
    "llama 4, own interval": (patterns.layers_with_rope_chunk, {**ROPE, "no_rope_layer_interval": 2}, "CFCF"),
    "llama 4, listed (1 has rope)": (patterns.layers_with_rope_chunk, {**ROPE, "no_rope_layers": [1, 0, 1]}, "CFC"),
    "llama 4, an empty list is unsaid": (patterns.layers_with_rope_chunk, {**ROPE, "no_rope_layers": []}, "CCCF"),
    "llama 4, chunk null": (patterns.layers_with_rope_chunk, {"attention_chunk_size": None}, "FFFF"),
    "gemma 4 ends full": (patterns.last_is_full(patterns.every_nth(FULL, SLIDING, "_", 6)), {}, "SSSSSFSF"),
    "bamba": (patterns.listed_indices("attn_layer_indices", FULL, LINEAR), {"attn_layer_indices": [1, 3]}, "LFLF"),
    "bamba, none listed": (patterns.listed_indices("attn_layer_indices", FULL, LINEAR), {}, "LL"),
    "jamba": (patterns.period_and_offset, {"attn_layer_period": 4, "attn_layer_offset": 2}, "LLFLLLFL"),
    "nemotron-h": (patterns.letters, {"hybrid_override_pattern": "M-M*E"}, "L-LF-"),
    "recurrentgemma": (patterns.repeated_blocks, {"block_types": ["recurrent", "recurrent", "attention"]}, "LLSLLS"),
    "recurrentgemma, unsaid": (patterns.repeated_blocks, {}, "LLSL"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_pattern(name: str) -> None:
    pattern, values, expected = CASES[name]
    assert drawn(pattern, values, len(expected)) == expected


def test_layer_types_win_over_the_pattern() -> None:
    spelt = {"layer_types": ["full_attention", "sliding_attention", "linear_attention"], "sliding_window": 4}
    assert drawn(patterns.or_named(patterns.all_full), spelt, 3) == "FSL"


def test_layer_types_beyond_the_depth_are_draft_layers() -> None:
    assert drawn(patterns.or_named(patterns.all_full), {"layer_types": ["sliding_attention"] * 3}, 2) == "SS"


def test_an_older_name_is_read_too() -> None:
    assert drawn(patterns.or_named(patterns.all_full), {"layers_block_type": ["attention", "mamba", "moe"]}, 3) == "FL-"


def test_null_layer_types_leave_the_pattern() -> None:
    assert drawn(patterns.or_named(patterns.full_unless_window), {"layer_types": None, "sliding_window": 1}, 2) == "SS"


@pytest.mark.parametrize("word", LAYER_KINDS)
def test_every_word_for_a_kind_is_taken(word: str) -> None:
    assert patterns.named(fields({"layer_types": [word]}), 1) == [LAYER_KINDS[word]]


def test_too_few_layer_types_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 entries for 3 layers"):
        patterns.named(fields({"layer_types": ["full_attention"] * 2}), 3)


def test_an_unknown_kind_is_refused_and_the_known_ones_named() -> None:
    with pytest.raises(ArchitectureError, match="'warp_attention'") as caught:
        patterns.named(fields({"layer_types": ["warp_attention"]}), 1)
    assert "sliding_attention" in caught.value.fix
    assert caught.value.where == "config.json: layer_types"


@pytest.mark.parametrize(("text", "what"), [("MX*", "letters X"), ("", "is missing"), (None, "is missing")])
def test_letters_that_are_not_known(text: str | None, what: str) -> None:
    with pytest.raises(ArchitectureError, match=what):
        patterns.letters(fields({"hybrid_override_pattern": text}), 0)


def test_a_pattern_of_millions_of_letters_is_refused() -> None:
    with pytest.raises(ConfigError, match="10,000 letters"):
        patterns.letters(fields({"hybrid_override_pattern": "M" * (MAX_LAYERS + 1)}), 0)
