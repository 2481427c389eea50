"""Tables for people, at the widths of real terminals: no column is lost, and no word broken that would fit."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache

import pytest
from rich.console import Console, Group, RenderableType

from kvcalc.core.model import Request
from kvcalc.engines import ENGINES, find_engine
from kvcalc.engines.estimate import Estimate, estimate
from kvcalc.readers.presets import model_in, preset_model, preset_paths, read_preset
from kvcalc.reports.engine_tables import engine_view, engines_view
from kvcalc.reports.fitting import FittingTable
from kvcalc.reports.layout import inspect_view
from kvcalc.reports.preset_tables import preset_view, presets_view
from kvcalc.reports.to_table import estimate_view

POOL = ("device-memory=24GB", "non-kv-bytes=10GB")


def found(name: str, engine: str = "exact", *options: str, **asked: int) -> Estimate:
    asked_of = find_engine(engine)
    return estimate(preset_model(name), Request(options=asked_of.parse_options(list(options)), **asked), asked_of)  # type: ignore[arg-type]


def shown(view: RenderableType, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False, emoji=False).print(view)
    return out.getvalue()


@cache
def presets() -> RenderableType:
    paths = list(preset_paths())
    return presets_view([read_preset(path).model_dump() for path in paths], [model_in(path) for path in paths])


VIEWS: dict[str, Callable[[], RenderableType]] = {
    "estimate": lambda: estimate_view(found("llama-8b")),
    "a pool of vLLM's": lambda: estimate_view(found("qwen3-14b", "vllm", *POOL, tokens=32768)),
    "groups of vLLM's": lambda: estimate_view(found("gemma-3-27b", "vllm", tokens=32768)),
    "a pool of SGLang's": lambda: estimate_view(found("qwen3-14b", "sglang", "available-bytes=10GiB")),
    "a pool of TensorRT-LLM's": lambda: estimate_view(found("gemma-3-4b", "tensorrt-llm", "available-bytes=10GiB")),
    "inspect": lambda: inspect_view(found("deepseek-v3"), each=False),
    "inspect a hybrid": lambda: inspect_view(found("qwen3.5-27b"), each=False),
    "engines": lambda: engines_view([find_engine(name) for name in ENGINES]),
    "an engine": lambda: engine_view(find_engine("vllm")),
    "presets": presets,
    "a preset": lambda: preset_view(read_preset(next(preset_paths())).model_dump()),
}


def spare_words(view: RenderableType) -> set[str]:
    """What stands in columns that a narrow terminal may leave out."""
    if isinstance(view, Group):
        return {word for each in view.renderables for word in spare_words(each)}
    if not isinstance(view, FittingTable):
        return set()
    columns = [view.columns[index] for index in view.spare]
    return {word for column in columns for cell in (column.header, *column.cells) for word in str(cell).split()}


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("name", VIEWS)
def test_every_word_stays_whole(name: str, width: int) -> None:
    view = VIEWS[name]()
    words, narrow = set(shown(view, 1000).split()), shown(view, width)
    assert {word for word in words if len(word) <= width - 2} - spare_words(view) <= set(narrow.split())
    assert max(map(len, narrow.splitlines())) <= width


@pytest.mark.parametrize("name", ["a pool of vLLM's", "a pool of SGLang's"])
def test_a_log_line_stands_below_the_figures(name: str) -> None:
    lines = shown(VIEWS[name](), 80).splitlines()
    (at,) = (index for index, line in enumerate(lines) if line.startswith("engine's own figure"))
    assert len(lines[at + 1].split()) > 2  # a label and its figure
    assert any(line.startswith("log line: ") for line in lines[at:])


def test_a_refusal_is_the_headline_and_the_last_word() -> None:
    refused = found("qwen3-14b", "vllm", "device-memory=24GB", "non-kv-bytes=20GB", tokens=32768)
    words = " ".join(shown(estimate_view(refused), 120).split())
    assert words.startswith("qwen3-14b: refused (engine: vllm 0.33.0): one request of 32,768 tokens needs 5 GiB")
    assert words.endswith(f"refused: {refused.tally.refusal}")


def test_the_release_whose_rules_were_taken_is_named() -> None:
    older = found("llama-8b", "transformers", "release=4.57.6")
    assert "(engine: transformers 4.57.6)" in shown(estimate_view(older), 120)
    assert "(engine: transformers 5.24.0)" in shown(estimate_view(found("llama-8b", "transformers")), 120)


def test_whole_chunks_of_short_sequences_hold_nothing() -> None:
    nothing = found("llama-8b", "lmcache", lengths=(5, 100, 7))  # type: ignore[arg-type]
    assert nothing.total_bytes == 0
    assert f"not stored  {112 * 131072:,} bytes" in shown(estimate_view(nothing), 120)


def test_what_a_window_keeps_is_shown() -> None:
    """vLLM: 1,089 blocks of 16 for a window of 1,024 and 16,384 tokens scheduled at once."""
    line = next(
        line for line in shown(estimate_view(found("gemma-3-4b", "vllm", tokens=32768)), 120).splitlines() if "sliding" in line
    )
    assert f"{1089 * 16:,}" in line
    assert "32,768" not in line


def test_what_a_rotating_cache_keeps_is_shown() -> None:
    kept = found("qwen3-0.6b", "mlx-lm", "max-kv-size=100", tokens=4096)
    assert [run.positions for run in kept.tally.layers] == [100]
    assert "held_bytes" not in shown(estimate_view(kept), 120)
