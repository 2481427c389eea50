"""Pictures as PNG or SVG (matplotlib, extra ``plot``): readable in grey, colour-blind safe, light or dark.

Every line differs in colour, in dashes and in marker; every part of a stack in colour and in hatching. Sizes stand on
binary ticks (512 MiB, 1 GiB), lengths on powers of two where they span some.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.errors import MissingExtraError, UsageError
from kvcalc.escapes import visible
from kvcalc.reports.pictures import Bars, Chart, Picture, budget_text
from kvcalc.units import format_bytes, format_count

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
DOTS = 160  # per inch, of a PNG
LOG_SPAN = 8  # largest / smallest length from which the lengths stand on a logarithmic axis
LOG_VALUES = 200  # the same for sizes
# Okabe and Ito's palette, which colour-blind readers tell apart, in an order whose greys alternate.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#8a7a00")
DARK = ("#56b4e9", "#e69f00", "#00c08b", "#f0a3cf", "#f0e442", "#ff7f50", "#ffffff", "#9db8ff")
DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (8, 2, 2, 2)), (0, (1, 1)), (0, (4, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
TIMES = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "+++", "ooo", "---")


@dataclass(frozen=True, slots=True)
class Theme:
    """Ground, ink and colours."""

    ground: str
    ink: str
    grid: str
    budget: str
    colours: tuple[str, ...]


THEMES = {
    "light": Theme("#ffffff", "#1a1a1a", "#d8d8d8", "#b00020", LIGHT),
    "dark": Theme("#16181d", "#e8e8e8", "#3a3e47", "#ff6b6b", DARK),
}


def check_suffix(path: Path) -> str:
    """``png`` or ``svg``. Raises UsageError for another."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"a picture ends in .png or .svg, not {str(path)[-40:]!r}", fix="write --plot cache.png, or cache.svg")
    return suffix[1:]


def draw(chart: Chart, suffix: str, theme: str = "light") -> bytes:
    """The picture's file. Raises MissingExtraError without matplotlib."""
    style, chart = THEMES[theme], _made_visible(chart)
    with _matplotlib(style):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.6, 5.2), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(chart.title, loc="left", fontweight="bold", fontsize=12.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        if isinstance(chart, Bars):
            handles = _bars(axes, chart, style)
        else:
            handles = _stack(axes, chart, style) if chart.stacked else _lines(axes, chart, style)
            handles += _dress(axes, chart, style)
        if len(handles) > 1 or any(handle.get_label() for handle in handles):
            figure.legend(handles=handles, loc="outside right upper", handlelength=3.2)
        note = ", ".join(part for part in ("kvcalc", chart.note) if part)
        figure.supxlabel(note, x=0.99, ha="right", fontsize=8, alpha=0.8)
        return _saved(figure, suffix)


def _made_visible(held: Any) -> Any:
    """The same chart, each text of it without characters that a font lacks or that turn the writing around."""
    if isinstance(held, str):
        return visible(held)
    if isinstance(held, tuple):
        return tuple(map(_made_visible, held))
    if is_dataclass(held) and not isinstance(held, type):
        return replace(held, **{each.name: _made_visible(getattr(held, each.name)) for each in fields(held)})
    return held


def _settings(style: Theme) -> dict[str, Any]:
    ink = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "legend.labelcolor")
    ground = ("axes.facecolor", "figure.facecolor", "savefig.facecolor", "legend.facecolor", "hatch.color")
    return {
        **dict.fromkeys(ink, style.ink),
        **dict.fromkeys(ground, style.ground),
        **dict.fromkeys(("grid.color", "legend.edgecolor"), style.grid),
        "font.size": 10.5,
        "font.family": "DejaVu Sans",  # ships with matplotlib
        "hatch.linewidth": 0.9,
        "svg.hashsalt": "kvcalc",  # the same figure is the same file
        "svg.fonttype": "none",
        "text.parse_math": False,  # a name may hold a dollar sign
    }


@contextmanager
def _matplotlib(style: Theme) -> Iterator[None]:
    try:
        import matplotlib as mpl
    except ImportError as problem:
        raise MissingExtraError("pictures need matplotlib", fix="pip install 'kvcalc[plot]'") from problem
    settings: Any = _settings(style)
    with mpl.rc_context(settings):
        yield


def _saved(figure: Figure, suffix: str) -> bytes:
    out = io.BytesIO()
    metadata = {"Date": None, "Creator": "kvcalc"} if suffix == "svg" else {"Software": "kvcalc"}
    figure.savefig(out, format=suffix, dpi=DOTS, metadata=metadata)
    return out.getvalue()


def _lines(axes: Axes, chart: Picture, style: Theme) -> list[Artist]:
    handles: list[Artist] = []
    for index, series in enumerate(chart.series):
        handles += axes.plot(
            series.xs or chart.xs,
            series.values,
            label=series.label,
            color=style.colours[index % len(style.colours)],
            linestyle=DASHES[index % len(DASHES)],
            marker=MARKERS[index % len(MARKERS)],
            markevery=max(1, len(chart.xs) // 12),
            markersize=5.5,
            linewidth=1.9,
        )
    return handles if len(handles) > 1 else []


def _stack(axes: Axes, chart: Picture, style: Theme) -> list[Artist]:
    """Areas on top of each other, and in the legend in the same order."""
    floor = [0] * len(chart.xs)
    handles: list[Artist] = []
    for index, series in enumerate(chart.series):
        top = [low + value for low, value in zip(floor, series.values, strict=True)]
        area = axes.fill_between(chart.xs, floor, top, label=series.label, linewidth=0.8, **_fill(index, style))
        handles.insert(0, area)
        floor = top
    axes.plot(chart.xs, floor, color=style.ink, linewidth=1.4)
    return handles


def _fill(index: int, style: Theme) -> dict[str, Any]:
    colours = style.colours
    return {"facecolor": colours[index % len(colours)], "hatch": HATCHES[index % len(HATCHES)], "edgecolor": style.ground}


def _bars(axes: Axes, chart: Bars, style: Theme) -> list[Artist]:
    rows = range(len(chart.labels))
    left = [0] * len(chart.labels)
    handles: list[Artist] = []
    for index, part in enumerate(chart.parts):
        fill = _fill(index, style)
        bars = axes.barh(rows, part.values, left=left, height=0.66, label=part.label, linewidth=0.8, **fill)
        handles.append(bars.patches[0])
        bars.patches[0].set_label(part.label)
        left = [start + value for start, value in zip(left, part.values, strict=True)]
    for row, total in zip(rows, left, strict=True):
        axes.annotate(f" {format_bytes(total)}", (total, row), va="center", ha="left", color=style.ink)
    axes.set_yticks(list(rows), chart.labels)
    _size_axis(axes, "x", max(left) * 9 // 8)
    axes.set_xlabel("cache (binary units)")
    axes.grid(axis="x", linewidth=0.7)
    return handles if len(handles) > 1 else []


def _dress(axes: Axes, chart: Picture, style: Theme) -> list[Artist]:
    """Axes, grid, budget and marks; gives what belongs in the legend."""
    logarithmic = _logarithmic(chart)
    _length_axis(axes, chart.xs, logarithmic)
    axes.set_xlabel(chart.x_label)
    axes.grid(linewidth=0.7)
    if chart.y_unit == "bytes":
        _sizes(axes, chart, logarithmic)
    else:
        _time_axis(axes, chart)
    _marks(axes, chart, style)
    if chart.budget is None:
        return []
    low, high = axes.get_ylim()
    if not low <= chart.budget <= high:
        words = f"{budget_text(chart.budget)}: {'above' if chart.budget > high else 'below'} the picture"
        return list(axes.plot([], [], color=style.budget, linewidth=2.0, linestyle=(0, (10, 3)), label=words))
    line = axes.axhline(chart.budget, color=style.budget, linewidth=2.0, linestyle=(0, (10, 3)), zorder=5)
    line.set_label(budget_text(chart.budget))
    return [line]


def _logarithmic(chart: Picture) -> bool:
    """Both axes or none, so that a straight line stays one: where lengths and sizes of several lines span much."""
    if len(chart.series) == 1:
        return False
    values = [value for series in chart.series for value in series.values if value]
    spans = bool(values) and max(values) > LOG_VALUES * min(values)
    return not chart.stacked and chart.y_unit == "bytes" and spans and chart.xs[0] > 0 and chart.xs[-1] >= LOG_SPAN * chart.xs[0]


def _sizes(axes: Axes, chart: Picture, logarithmic: bool) -> None:
    values = [value for series in chart.series for value in series.values]
    top = max(values)
    if chart.stacked:
        top = max(sum(series.values[index] for series in chart.series) for index in range(len(chart.xs)))
    if chart.budget and chart.budget < 8 * top:
        top = max(top, chart.budget * 17 // 16)
    if logarithmic:
        _log_axis(axes, "y", min(value for value in values if value), top)
    else:
        _size_axis(axes, "y", top)
    axes.set_ylabel(f"{chart.y_label} (binary units{', logarithmic' if logarithmic else ''})")


def binary_ticks(top: int, most: int = 7) -> list[int]:
    """Multiples of a power of two from 0 up to ``top``, at most ``most`` + 1 of them."""
    step = 1
    while step * most < top:
        step *= 2
    return list(range(0, top + step, step))


def _size_axis(axes: Axes, which: str, top: int) -> None:
    ticks = binary_ticks(max(top, 1))
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(ticks, [format_bytes(tick) if tick else "0" for tick in ticks])
    if which == "y":
        axes.set_ylim(0, ticks[-1])


def _log_axis(axes: Axes, which: str, low: int, high: int) -> None:
    first, last = max(low, 1).bit_length() - 1, max(high, 1).bit_length()
    step = max(1, (last - first) // 8)
    ticks = [2**power for power in range(first, last + 1, step)]
    if which == "y":
        axes.set_yscale("log", base=2)
        axes.set_yticks(ticks, [format_bytes(tick) for tick in ticks], minor=False)
        axes.set_ylim(2**first, 2**last * 1.1)
    else:
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [format_count(tick) for tick in ticks], minor=False)
    axes.minorticks_off()


def _time_axis(axes: Axes, chart: Picture) -> None:
    """Nanoseconds in the unit that keeps the largest at or above 1."""
    top = max(value for series in chart.series for value in series.values)
    unit, factor = next(((unit, factor) for unit, factor in TIMES if top >= factor), TIMES[-1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / factor:,.4g}")
    axes.set_ylabel(f"{chart.y_label} ({unit})")
    axes.set_ylim(bottom=0)


def _length_axis(axes: Axes, xs: Sequence[int], logarithmic: bool) -> None:
    if logarithmic:
        _log_axis(axes, "x", xs[0], xs[-1])
        axes.set_xlim(xs[0] / 1.08, xs[-1] * 1.08)
        return
    ticks = [tick for tick in binary_ticks(xs[-1], most=9) if tick <= xs[-1]]
    short = all(tick % 1024 == 0 for tick in ticks)
    axes.set_xticks(ticks, [format_count(tick) if short and tick else f"{tick:,}" for tick in ticks])
    axes.set_xlim(0, xs[-1] * 1.02)


def _marks(axes: Axes, chart: Picture, style: Theme) -> None:
    ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": style.budget, "markeredgewidth": 2.2}
    place: dict[str, Any] = {"xytext": (-12, 12), "textcoords": "offset points", "ha": "right", "va": "bottom"}
    ground = {"facecolor": style.ground, "edgecolor": "none", "pad": 1.5}
    for x, y, words in chart.marks:
        axes.plot([x], [y], marker="o", markersize=11, zorder=6, **ring)
        axes.annotate(words, (x, y), color=style.budget, fontweight="bold", bbox=ground, zorder=7, **place)
