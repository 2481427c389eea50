"""What the shell offers after TAB: names only, read from file names and tables."""

from __future__ import annotations

from collections.abc import Iterable


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
    from kvcalc.core.gpus import GPUS

    return _starting((gpu.name for gpu in GPUS), incomplete)
