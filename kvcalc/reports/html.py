"""A page that stands alone: tables, charts and sliders that recompute from the layer rows. No network, no library.

The rows are those of the equation (``kvcalc.core.counting``): how many are kept, by cap, ratio, step or fixed number,
and the bytes of each. For an engine whose figure isn't made of such rows the page holds a table of its own answers, and
the sliders move over that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape as html_escape
from importlib.resources import files

from kvcalc import __version__
from kvcalc.core.counting import Slab, slabs_of
from kvcalc.core.layers import Layer, kind_of, runs
from kvcalc.engines.base import Plan
from kvcalc.engines.estimate import Estimate
from kvcalc.engines.requests import counted_layers, resolve_request
from kvcalc.errors import KvcalcError
from kvcalc.escapes import visible, visible_json
from kvcalc.reports.pictures import by_kind, kind_name
from kvcalc.reports.to_json import Document
from kvcalc.reports.to_table import whose
from kvcalc.units import format_bytes

FORMULA_ENGINES = ("exact",)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GRID_LENGTHS = 24
LONGEST = 2**20
MODELS_MAX = 12
MOST_CELLS = 200_000  # of an engine that answers cell by cell: cells × layers


def page(found: Sequence[Estimate], lengths: Iterable[int] = (), budget: int | None = None) -> str:
    """The page for these estimates; the sliders start at the first one's length and batch."""
    first = found[0]
    shown = list(found)[:MODELS_MAX]
    formula = all(each.engine.name in FORMULA_ENGINES and not each.request.lengths and _alone(each) for each in shown)
    batch = _number(first, "batch_size")
    steps = _lengths(shown, sorted({*lengths, first.tokens}), formula)
    batches = sorted({*BATCHES, batch})
    if not formula and len(steps) * len(batches) * max(len(each.model.layers) for each in shown) > MOST_CELLS:
        steps, batches = sorted({*lengths, first.tokens}), [batch]  # each cell counts each layer: only what was asked
    data: Document = {
        "tokens": first.tokens,
        "batch": batch,
        "budget": budget,
        "lengths": steps,
        "batches": batches,
        "models": [_model(each, steps, batches, formula) for each in shown],
    }
    return _filled(shown, data)


def _alone(found: Estimate) -> bool:
    """Whether the figure is the whole model's: of ranks, the heaviest counts, which no row of layers says."""
    return max(found.request.tp_size, found.request.pp_size, found.request.dp_size) == 1


def escape(text: str) -> str:
    """Text from outside in a page: no markup, and nothing that turns the writing around."""
    return html_escape(visible(text))


def _shown(data: object) -> object:
    """The page's data, each text of it made visible."""
    if isinstance(data, Mapping):
        return {key: _shown(held) for key, held in data.items()}
    if isinstance(data, list):
        return [_shown(held) for held in data]
    return visible(data) if isinstance(data, str) else data


def _number(found: Estimate, name: str) -> int:
    value = found.tally.request.get(name, (1, ""))[0]
    return value if isinstance(value, int) else 1


def _lengths(found: Sequence[Estimate], asked: list[int], formula: bool) -> list[int]:
    """Powers of two up to what the models were made for (fine steps between where they cost nothing), and those asked for."""
    longest = max([each.model.max_tokens or 0 for each in found] + asked + [2**15])
    powers = [2**power for power in range(8, min(longest, LONGEST).bit_length())]
    if not formula:
        return sorted({*asked[:GRID_LENGTHS], *powers})
    quarters = [power * part // 4 for power in powers for part in (4, 5, 6, 7)]
    return sorted({*asked[:512], *(length for length in quarters if length <= max(longest, asked[-1]))})


def _model(found: Estimate, lengths: list[int], batches: list[int], formula: bool) -> Document:
    resolved = found.tally.request
    k_dtype, v_dtype = str(resolved["k_dtype"][0]), str(resolved["v_dtype"][0])
    types = k_dtype if k_dtype == v_dtype else f"K {k_dtype}, V {v_dtype}"
    described: Document = {
        "name": found.model.name,
        "label": f"{found.model.name} {types}",
        "types": types,
        "max_tokens": found.model.max_tokens,
    }
    return {**described, "rows": _rows(found)} if formula else {**described, "rows": None, "grid": _grid(found, lengths, batches)}


def _rows(found: Estimate) -> list[Document]:
    """Equal layers, wherever they stand, with their slabs as the exact engine counts them."""
    request, types, _ = resolve_request(found.model, found.request)
    alike: dict[Layer, list[tuple[int, int]]] = {}
    for first, count, layer in runs(counted_layers(found.model, request)):
        alike.setdefault(layer, []).append((first, count))
    return [
        {
            "at": ", ".join(str(first) if count == 1 else f"{first}–{first + count - 1}" for first, count in spans),
            "count": sum(count for _, count in spans),
            "kind": kind_name(kind_of(layer)),
            "slabs": [_slab(slab) for part in layer for slab in slabs_of(part, types)],
        }
        for layer, spans in alike.items()
    ]


def _slab(slab: Slab) -> Document:
    reach = slab.reach
    return {
        "label": slab.label,
        "heads": slab.heads,
        "width": slab.width,
        "dtype": slab.dtype,
        "row_bytes": slab.row_bytes,
        "reach": {"cap": reach.cap, "ratio": reach.ratio, "step": reach.step, "fixed": reach.fixed},
    }


def _grid(found: Estimate, lengths: list[int], batches: list[int]) -> Document:
    """The engine's own answers, by batch and length; null where it refuses."""
    plan = found.engine.plan(found.model, found.request)
    splits = [[_asked(plan, batch, tokens) for tokens in lengths] for batch in batches]
    kinds = list(dict.fromkeys(kind for row in splits for split in row if split for kind in split))
    cells = [[None if split is None else [split.get(kind, 0) for kind in kinds] for split in row] for row in splits]
    return {"kinds": kinds, "bytes": cells}


def _asked(plan: Plan, batch: int, tokens: int) -> dict[str, int] | None:
    try:
        tally = plan.at(batch, tokens).tally
    except KvcalcError:
        return None
    return by_kind(tally) if tally.fits else None


def _filled(found: Sequence[Estimate], data: Document) -> str:
    folder = files("kvcalc.reports") / "page"
    text = (folder / "page.html").read_text(encoding="utf-8")
    engine = found[0].engine
    names = dict.fromkeys(each.model.name for each in found)
    warnings = dict.fromkeys(f"{each.model.name}: {warning}" for each in found for warning in each.warnings)
    parts = {
        "TITLE": escape(f"KV cache of {', '.join(names)}"),
        "INTRO": escape(f"{whose(found[0]).capitalize()}. Rules: {engine.source}; {engine.evidence}."),
        "EXCLUDED": _items(dict.fromkeys(text for each in found for text in each.excluded)),
        "WARNINGS": f"<h2>Warnings</h2>\n<ul>{_items(warnings)}</ul>" if warnings else "",
        "FOOTER": escape(f"kvcalc {__version__}. Sizes are binary: 1 KiB = 1,024 bytes; 1k tokens = 1,024."),
        "STATIC": f"<ul>{_items(_static(found))}</ul>",
        "VERSION": escape(__version__),
        "CSS": (folder / "page.css").read_text(encoding="utf-8"),
        "JS": (folder / "page.js").read_text(encoding="utf-8"),
        # inside a script element only "<" could end it early
        "DATA": visible_json(json.dumps(_shown(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))).replace(
            "<", "\\u003c"
        ),
    }
    return re.sub(r"@([A-Z]+)@", lambda name: parts[name[1]], text)


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _static(found: Sequence[Estimate]) -> list[str]:
    sizes = (f"{each.total_bytes:,} bytes ({format_bytes(each.total_bytes)})" for each in found)
    return [f"{each.model.name}: {size} at {each.tokens:,} tokens" for each, size in zip(found, sizes, strict=True)]
