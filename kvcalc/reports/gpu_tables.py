"""Cards as a table, one card in full, and both as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kvcalc.core.gpus import Gpu
from kvcalc.reports.to_json import Document, document
from kvcalc.reports.to_table import plain_table

_MIB = 2**20


def gpus_view(gpus: Sequence[Gpu]) -> RenderableType:
    """A row a card; one card alone with the reports that its figures come from."""
    table = plain_table("name", "card", "GB", "usable MiB", "driver MiB", "arch", right=(2, 3, 4), spare=(1, 4))
    table.columns[0].no_wrap = True
    for gpu in gpus:
        usable = f"{gpu.bytes / _MIB:,.0f}{'*' if gpu.assumed else ''}"
        driver = "" if gpu.driver_bytes is None else f"{gpu.driver_bytes // _MIB:,}"
        table.add_row(gpu.name, gpu.title, f"{gpu.nominal_gb}", usable, driver, gpu.architecture)
    lines = [Text("usable: the least total that CUDA, HIP or Metal report to a program; driver: as nvidia-smi prints it")]
    if any(gpu.assumed for gpu in gpus):
        lines.append(Text("* reckoned from what the driver prints: no report shows what a program sees"))
    if len(gpus) == 1:
        lines += [Text(f"source: {gpus[0].source}"), *([Text(f"assumed: {gpus[0].assumed}")] if gpus[0].assumed else [])]
    else:
        lines.append(Text(f"{len(gpus)} cards; Apple chips go by their memory: --gpu 'm3 max 64gb'"))
    return Group(table, "", *lines)


def gpus_document(gpus: Sequence[Gpu]) -> Document:
    """The same as JSON."""
    return document("gpus", gpus=[_part(gpu) for gpu in gpus])


def _part(gpu: Gpu) -> Document:
    return {
        "name": gpu.name,
        "title": gpu.title,
        "nominal_gb": gpu.nominal_gb,
        "driver_bytes": gpu.driver_bytes,
        "total_bytes": gpu.bytes,
        "most_bytes": gpu.most_bytes,
        "architecture": gpu.architecture,
        "source": gpu.source,
        "assumed": gpu.assumed or None,
    }
