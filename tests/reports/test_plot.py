"""Pictures: what they show, and that they can be drawn."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvcalc.cli import main
from kvcalc.core.model import Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.engines.estimate import attempt, estimate
from kvcalc.engines.fit import Fit, Memory, fit
from kvcalc.engines.sweep import Grid, cells
from kvcalc.errors import MissingExtraError, UsageError
from kvcalc.readers.hf_config import model_of
from kvcalc.reports.pictures import MAX_LINES, Bars, Picture, Series, compare_chart, fit_chart, sweep_chart
from kvcalc.reports.plot import binary_ticks, check_suffix, draw

PLAIN = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
HYBRID = {**PLAIN, "model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 64, "sliding_window_pattern": 6}
EXACT = find_engine("exact")
LENGTHS = [64, 128, 256]


def grid(*configs: dict[str, Any], types: tuple[str | None, ...] = (None,), memory: int | None = None) -> Grid:
    models = tuple(model_of(config, "config.json", f"toy-{index}") for index, config in enumerate(configs))
    pairs = tuple((find_dtype(name), find_dtype(name)) if name else (None, None) for name in types)
    return Grid(models, pairs, (1,), lambda: LENGTHS, EXACT, Request(), memory)


def chart_of(swept: Grid) -> Picture:
    chart = sweep_chart(swept, cells(swept))
    assert isinstance(chart, Picture)
    return chart


def fitted(searched: str, tokens: int | None = None) -> Fit:
    return fit(EXACT, grid(HYBRID).models[0], Request(tokens=tokens), Memory(30_000), searched)


def test_what_fits_lies_under_the_budget() -> None:
    row = 2 * 2 * 4 * 2
    chart = fit_chart(fitted("tokens"))
    most = (30_000 - 5 * row * 64) // row  # beyond the window one layer grows
    assert most > 64
    assert chart.marks == ((most, row * (most + 5 * 64), f"{most:,} tokens"),)
    assert (chart.budget, chart.x_label) == (30_000, "tokens of each sequence")
    assert chart.xs[-1] > most  # the curve goes on beyond the answer


def test_sequences_that_fit_stand_on_the_other_axis() -> None:
    chart = fit_chart(fitted("batch_size", tokens=16))
    most = 30_000 // (6 * 2 * 2 * 4 * 2 * 16)
    assert (chart.marks[0][0], chart.x_label) == (most, "sequences")


def test_a_line_for_each_model_and_type() -> None:
    chart = chart_of(grid(PLAIN, HYBRID, types=("bf16", "fp8"), memory=1000))
    assert [series.label for series in chart.series] == [
        "toy-0, bfloat16",
        "toy-0, fp8_e4m3",
        "toy-1, bfloat16",
        "toy-1, fp8_e4m3",
    ]
    assert chart.series[0].values == tuple(2 * 2 * 2 * 4 * 2 * tokens for tokens in LENGTHS)
    assert (chart.xs, chart.budget, chart.stacked) == (tuple(LENGTHS), 1000, False)


def test_one_hybrid_is_stacked_by_layer_kind() -> None:
    chart = chart_of(grid(HYBRID))
    row = 2 * 2 * 4 * 2
    assert chart.stacked
    assert {series.label: series.values for series in chart.series} == {
        "sliding attention": (5 * row * 64,) * 3,
        "full attention": tuple(row * tokens for tokens in LENGTHS),
    }


def test_a_line_ends_where_the_engine_refuses() -> None:
    """A static cache of 128 positions holds no 256 tokens; the other line goes on."""
    static = find_engine("static")
    requests = {length: Request(tokens=length, options={"capacity": 128}) for length in LENGTHS}
    models = grid(PLAIN, HYBRID).models
    rows = [
        [attempt(models[0], requests[length], static) for length in LENGTHS],
        [attempt(models[1], Request(tokens=length), static) for length in LENGTHS],
    ]
    chart = compare_chart(rows)
    assert isinstance(chart, Picture)
    assert [(series.xs or chart.xs, len(series.values)) for series in chart.series] == [((64, 128), 2), ((64, 128, 256), 3)]
    assert draw(chart, "svg")
    swept = replace(grid(PLAIN, HYBRID, memory=1000), engine=static, request=Request(options={"capacity": 128}))
    assert chart_of(swept).xs == (64, 128)


def test_too_many_lines_are_refused() -> None:
    with pytest.raises(UsageError, match=f"up to {MAX_LINES} lines"):
        chart_of(grid(*[PLAIN] * (MAX_LINES + 1)))


def test_models_at_one_length_are_bars_by_kind() -> None:
    swept = grid(PLAIN, HYBRID)
    chart = compare_chart([[estimate(model, Request(tokens=256), EXACT)] for model in swept.models])
    assert isinstance(chart, Bars)
    row = 2 * 2 * 4 * 2
    totals = [sum(part.values[index] for part in chart.parts) for index in range(2)]
    assert dict(zip(chart.labels, totals, strict=True)) == {"toy-0": 2 * row * 256, "toy-1": row * (256 + 5 * 64)}
    assert totals == sorted(totals, reverse=True)
    assert {part.label for part in chart.parts} == {"sliding attention", "full attention"}


TICKS = {1: [0, 1], 7: list(range(8)), 8: [0, 2, 4, 6, 8], 2**30: [step * 2**28 for step in range(5)]}


@pytest.mark.parametrize(("top", "ticks"), TICKS.items())
def test_ticks_are_multiples_of_a_power_of_two(top: int, ticks: list[int]) -> None:
    assert binary_ticks(top)[: len(ticks)] == ticks
    assert binary_ticks(top)[-1] >= top


CHARTS: dict[str, Callable[[], Picture | Bars]] = {
    "lines": lambda: chart_of(grid(PLAIN, HYBRID, memory=3000)),
    "stack": lambda: chart_of(grid(HYBRID, memory=10**9)),
    "logarithmic": lambda: Picture(
        "a $b_c$", (1, 64, 4096), (Series("a", (1, 2**10, 2**30)), Series("b", (5, 6, 7))), budget=2**20
    ),
    "one point": lambda: Picture("one", (5,), (Series("", (0,)),), budget=7),
    "bars": lambda: Bars("bars", ("a", "b"), (Series("full", (1, 2)), Series("state", (0, 2**40)))),
    "fit": lambda: fit_chart(fitted("tokens")),
    "seconds": lambda: Picture("time", (1, 2), (Series("cached", (3_000_000, 4_000_000)),), y_label="step", y_unit="seconds"),
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_can_be_drawn(name: str, suffix: str, theme: str) -> None:
    drawn = draw(CHARTS[name](), suffix, theme)
    assert drawn.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


def test_a_picture_has_labels_units_and_a_budget() -> None:
    text = draw(CHARTS["lines"](), "svg").decode()
    for words in ("cache (binary units)", "tokens of each sequence", "budget 2.93 KiB", "toy-0", "KiB", "engine exact"):
        assert words in text


def test_times_stand_in_a_fitting_unit() -> None:
    text = draw(CHARTS["seconds"](), "svg").decode()
    assert "step (ms)" in text
    assert ">4<" in text.replace("\n", "")


def test_every_line_differs_without_colour() -> None:
    series = tuple(Series(f"line {index}", (index, index + 1)) for index in range(6))
    text = draw(Picture("a", (1, 2), series), "svg").decode()
    assert len(set(re.findall(r"stroke-dasharray: ([\d.,]+)", text))) == 5  # and one that is solid
    assert len(set(re.findall(r'xlink:href="#(m\w+)"', text))) >= 6  # markers


def test_the_same_figure_is_the_same_file() -> None:
    assert draw(CHARTS["stack"](), "svg") == draw(CHARTS["stack"](), "svg")


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.png.txt"])
def test_other_endings_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"\.png or \.svg"):
        check_suffix(Path(name))


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError) as caught:
        draw(CHARTS["bars"](), "png")
    assert "kvcalc[plot]" in caught.value.fix


# From the command line


def test_sweep_and_compare_write_pictures_and_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, html = tmp_path / "a.svg", tmp_path / "a.html"
    files = ["--plot", str(picture), "--html", str(html)]
    assert main(["sweep", "llama-8b", "gemma-3-4b", "--tokens", "1k..4k", "--memory", "1GiB", *files]) == 0
    assert b"<svg" in picture.read_bytes()
    assert '"budget":1073741824' in html.read_text()
    assert main(["compare", "llama-8b", "gemma-3-4b", "--dark", *files]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["compare", "llama-8b", "gemma-3-4b", "--dark", "--force", *files]) == 0
    assert b"16181d" in picture.read_bytes()
    assert main(["estimate", "llama-8b", "--html", str(html), "--force"]) == 0
    assert capsys.readouterr().err.count("written to") == 3


def test_a_file_that_can_t_be_written_is_refused_before_the_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "llama-8b", "--plot", str(tmp_path / "no" / "a.png")]) == 5
    out = capsys.readouterr()
    assert out.out == ""
    assert "there is no folder" in out.err
    assert main(["sweep", "llama-8b", "--plot", str(tmp_path / "a.pdf")]) == 2
    assert main(["estimate", "llama-8b", "--html", str(tmp_path / "a.txt")]) == 2
