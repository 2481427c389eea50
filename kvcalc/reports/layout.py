"""``inspect``: the layout as a table, with the file's key behind each column."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kvcalc.core.fields import Fields
from kvcalc.core.layers import Layer, Part, Recurrent
from kvcalc.core.model import LayerTally, Model
from kvcalc.engines.estimate import Estimate
from kvcalc.reports.to_table import COMPONENT_NAMES, equal_runs, plain_table
from kvcalc.reports.to_table import spans as spans_of
from kvcalc.units import format_bytes

# Which neutral fields decide what: only those that the model's rule really read are shown.
HEADS = (
    "num_kv_heads",
    "num_attention_heads",
    "head_dim",
    "hidden_size",
    "multi_query",
    "multi_query_group_num",
    "block_configs",
)
DECIDERS: dict[str, tuple[str, ...]] = {
    "full_attention": (*HEADS, "v_head_dim", "global_head_dim", "num_global_key_value_heads"),
    "sliding_attention": (*HEADS, "sliding_window", "swa_num_key_value_heads", "swa_head_dim"),
    "chunked_attention": (*HEADS, "attention_chunk_size"),
    "cross_attention": (*HEADS, "cross_attention_layers"),
    "mla": ("kv_lora_rank", "qk_rope_head_dim"),
    "indexer": ("index_head_dim", "indexer_types", "sparse_attention_config"),
    "compressed_attention": ("head_dim", "sliding_window", "compress_ratios", "index_head_dim", "layer_types"),
    "shared": ("num_kv_shared_layers",),
    "no_attention": ("block_configs", "hybrid_override_pattern", "layers_block_type"),
}
LONGEST_VALUE = 40
STATE_PREFIXES = ("mamba", "linear", "conv", "lru", "state", "hidden_size", "head_size", "attention_hidden")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the layout."""

    span: str
    part: str
    heads: str
    k_width: str
    v_width: str
    kept: str
    per_token: str
    fixed: str


def inspect_view(found: Estimate, each: bool) -> RenderableType:
    """The layout, its totals, and every field that decided it."""
    model = found.model
    head = Text.assemble(
        (model.name, "bold"), f"  {model.model_type}, {len(model.layers)} layers, from {model.source or 'flags'}"
    )
    totals = plain_table("component", "bytes", "", right=(1,))
    for name, size in found.tally.component_bytes().items():
        if size:
            totals.add_row(COMPONENT_NAMES[name], f"{size:,}", format_bytes(size))
    totals.add_row("total", f"{found.total_bytes:,}", format_bytes(found.total_bytes))
    notes = [Text.assemble(("note: ", "bold"), note) for note in found.warnings]
    return Group(head, "", layout_table(found, each), "", fields_table(model), "", _asked(found), totals, *notes)


def _asked(found: Estimate) -> Text:
    resolved = found.tally.request
    words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, (value, _) in resolved.items())
    return Text(f"at {words} (engine {found.engine.name}):")


def layout_table(found: Estimate, each: bool) -> Table:
    """A row a part of each run of equal layers."""
    table = plain_table("layers", "kind", "heads", "K", "V", "kept", "B/token", "fixed B", right=(2, 3, 4, 5, 6, 7))
    for alike in [[run] for run in found.tally.layers] if each else equal_runs(found.tally.layers):
        run = alike[0]
        spans = [str(run.first + index) for index in range(run.count)] if each else [spans_of(alike)]
        rows = layout_rows(run)
        for span in spans:
            for index, row in enumerate(rows):
                values = (row.part, row.heads, row.k_width, row.v_width, row.kept, row.per_token, row.fixed)
                table.add_row(span if index == 0 else "", *values)
    return table


def layout_rows(run: LayerTally) -> list[Row]:
    """A line for each part of a layer; bytes are the layer's own, on its first line."""
    growing = sum(array.row_bytes for array in run.arrays if array.component in ("kv", "index") and _grows(run.layer))
    fixed = sum(array.bytes for array in run.arrays if array.component == "state")
    rows = []
    for index, part in enumerate(run.layer):
        first = index == 0
        rows.append(
            Row(
                span="",
                part=part_name(part),
                heads=_shown(getattr(part, "num_kv_heads", 0)),
                k_width=_shown(
                    getattr(part, "head_dim", 0) or getattr(part, "row_width", 0) or getattr(part, "index_head_dim", 0)
                ),
                v_width=_shown(getattr(part, "v_head_dim", 0) if hasattr(part, "num_kv_heads") else 0),
                kept=_kept(part),
                per_token=f"{growing:,}" if first and growing else "",
                fixed=f"{fixed:,}" if first and fixed else "",
            )
        )
    return rows


def _grows(layer: Layer) -> bool:
    return any(part.kind not in ("recurrent", "cross_attention") for part in layer)


def _shown(value: int) -> str:
    return f"{value:,}" if value else ""


def _kept(part: Part) -> str:
    """How many positions, in words."""
    window = getattr(part, "window", None) or getattr(part, "chunk", None)
    ratio = getattr(part, "ratio", 0)
    if ratio:
        return f"last {window:,} + 1/{ratio}"
    if window:
        return f"last {window:,}"
    return {"recurrent": "state", "cross_attention": "encoder", "shared": "none", "no_attention": "none"}.get(part.kind, "all")


def deciders(part: Part, fields: Fields) -> list[str]:
    """The neutral fields that decided this part, of those that the model's rule really read."""
    if isinstance(part, Recurrent):
        names = [name for name in fields.used if name.startswith(STATE_PREFIXES)]
    else:
        names = [name for name in DECIDERS.get(part.kind, ()) if name in fields.used]
    return [name for name in names if fields.raw(name) is not None]


def part_name(part: Part) -> str:
    """A part's kind in words, a state by its variant."""
    return part.variant if isinstance(part, Recurrent) else part.kind.replace("_", " ")


ELSEWHERE = {"num_layers": "how many layers", "max_tokens": "the longest length", "dtype": "the element type"}


def fields_table(model: Model) -> Table:
    """Every field that the rule read: its value, where it stands, and what it decides."""
    parts = list(dict.fromkeys(part for layer in model.layers for part in layer))
    decided: dict[str, list[str]] = {}
    for part in parts:
        for name in deciders(part, model.fields):
            decided.setdefault(name, []).append(part_name(part))
    table = plain_table("field", "value", "from", "decides")
    for name, field in sorted(model.fields.used.items()):
        if field.value is not None:
            text = str(field.value)
            kinds = ", ".join(dict.fromkeys(decided.get(name, ()))) or ELSEWHERE.get(name, "which layer is which, and sizes")
            table.add_row(
                name, Text(text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"), field.origin, kinds
            )
    return table
