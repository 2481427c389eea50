"""What the shell offers after TAB: names only, read from file names and tables."""

from __future__ import annotations

from collections.abc import Iterable

from typer import Context


def _starting(words: Iterable[str], start: str) -> list[str]:
    return sorted(word for word in words if word.startswith(start))


def presets(incomplete: str) -> list[str]:
    """Preset names."""
    from kvcalc.readers.presets import preset_paths

    return _starting((path.stem for path in preset_paths()), incomplete)


def models(incomplete: str) -> list[str]:
    """Presets, and files and folders that could be models."""
    from pathlib import Path

    head = Path(incomplete)
    folder = head if incomplete.endswith("/") else head.parent
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    files = [f"{path}/" if path.is_dir() else str(path) for path in found if path.is_dir() or path.suffix in (".json", ".gguf")]
    return presets(incomplete) + _starting(files, incomplete)


def dtypes(incomplete: str) -> list[str]:
    """Element types."""
    from kvcalc.dtypes import ALIASES, DTYPES

    return _starting([*DTYPES, *ALIASES], incomplete)


def engines(incomplete: str) -> list[str]:
    """Engines."""
    from kvcalc.engines import ENGINES

    return _starting(ENGINES, incomplete)


def gpus(incomplete: str) -> list[str]:
    """Cards of the shipped table."""
    from kvcalc.core.gpus import cards

    return _starting((gpu.name for gpu in cards()), incomplete)


def options(ctx: Context, incomplete: str) -> list[str]:
    """The options of the engine that the line names so far, then the values of a choice."""
    from kvcalc.engines import find_engine
    from kvcalc.errors import KvcalcError

    try:
        found = find_engine(str(ctx.params.get("engine") or "exact")).options
    except KvcalcError:
        return []
    names = (each.name if each.kind == "bool" else f"{each.name}=" for each in found)
    values = (f"{each.name}={choice}" for each in found for choice in each.choices)
    return _starting(values if "=" in incomplete else names, incomplete)


# kvcalc.verify.run.CACHES, whose import takes torch
CACHES = (
    "all",
    "concat",
    "static",
    "paged",
    "quantized",
    "sliding",
    "latent",
    "recurrent",
    "shared",
    "cross",
    "compressed",
)


def caches(incomplete: str) -> list[str]:
    """Caches to verify; after a comma, another."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{word}" for word in _starting(CACHES, last)]
