"""Which shipped preset is made from a checkpoint, by the checkpoint's own name."""

from __future__ import annotations

import re
from pathlib import Path

from kvcalc.errors import PresetError
from kvcalc.readers.files import read_text
from kvcalc.readers.presets import MAX_PRESET_BYTES, find_preset, preset_paths
from kvcalc.values import value

_LINE = re.compile(r"^checkpoint:[ \t]*[\"']?([^\s\"'#]+)", re.MULTILINE)
# What names of the same model in another weight format add to it: the cache is the same, the weights are not.
_FORMAT = re.compile(
    r"[-_.](fp8|fp4|nvfp4|mxfp4|mxfp8|awq|gptq|bnb|int4|int8|w4a16|w8a8|w8a16|[248]-?bits?|mlx|exl[23]|gguf|gguf-ud|ud|dynamic|block|"
    r"quantized|imatrix|i?q\d\w*|bf16|f16|fp16|marlin|autoround|g\d+|hf|\d{5}-of-\d{5})(?=$|[-_.])",
    re.IGNORECASE,
)


@value
class Found:
    """A preset, and how it was found: ``exact`` where the checkpoint's full name is the preset's own."""

    path: Path
    exact: bool
    checkpoint: str


def find_checkpoint(name: str, extra: Path | None = None) -> Found | None:
    """The preset of a checkpoint: by ORG/NAME, else by the name alone, else by that without a weight format."""
    known = _checkpoints(extra)
    full = name.strip().removesuffix("/").lower()
    if full in known:
        return Found(known[full][0], True, known[full][1])
    last = cache_name(full).rsplit("/", 1)[-1].removesuffix(".gguf")
    by_last = {key.rsplit("/", 1)[-1]: held for key, held in known.items()}
    by_base = {base_name(key): held for key, held in reversed(by_last.items())}
    bare = without_format(last)
    for word, names in ((last, by_last), (bare, by_last), (base_name(bare), by_base)):
        if word in names:
            return Found(names[word][0], False, names[word][1])
    return _by_alias(name if "/" not in name else bare, extra)


_TUNED = re.compile(r"[-_](instruct|it|chat|base|pt)(?=$|[-_])")


def base_name(name: str) -> str:
    """The name without what tells a tuned model from its base: their layers are the same."""
    return _TUNED.sub("", name).removeprefix("meta-")


def _by_alias(name: str, extra: Path | None) -> Found | None:
    """Names as Ollama writes them: ``qwen3:8b``; a preset's own name."""
    if "/" in name or not name:
        return None
    try:
        path = find_preset(re.sub(r"(:[\w.]+?)-(?:instruct-)?(?:i?q\d\w*|fp16|bf16)$", r"\1", name), extra)
    except PresetError:
        return None
    return Found(path, False, path.stem)


def cache_name(name: str) -> str:
    """A path in the hub's cache as the repository that it belongs to."""
    match = re.search(r"models--([\w.-]+?)--([\w.-]+)", name)
    return f"{match.group(1)}/{match.group(2)}" if match else name


def without_format(name: str) -> str:
    """The name without the words that name a weight format."""
    while (short := _FORMAT.sub("", name)) != name:
        name = short
    return name


def format_in(name: str) -> str:
    """The weight format that a name speaks of, or nothing."""
    match = _FORMAT.search(cache_name(name).rsplit("/", 1)[-1].rsplit(":", 1)[-1].join(("-", "")))
    return match.group(1).lower() if match else ""


def _checkpoints(extra: Path | None) -> dict[str, tuple[Path, str]]:
    """Checkpoint in lower case → the preset's file and the name as written; a user's own first."""
    found: dict[str, tuple[Path, str]] = {}
    for path in preset_paths(extra):
        try:
            line = _LINE.search(read_text(path, PresetError, MAX_PRESET_BYTES))
        except PresetError:
            continue  # a broken file elsewhere must not hide the others
        if line:
            found.setdefault(line.group(1).lower(), (path, line.group(1)))
    return found
