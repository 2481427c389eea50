"""Write ``docs/model-types.md``: every model type that kvcalc knows or refuses, its layers, rule and proof.

    python tests/tools/write_model_types.py

A test fails when the page is stale.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvcalc.architectures.class_defaults import CLASS_DEFAULTS, RELEASE, TEXT_CONFIGS
from kvcalc.architectures.library_rows import REFUSED
from kvcalc.architectures.lookup import find_architecture
from kvcalc.architectures.table import ARCHITECTURES
from kvcalc.architectures.table_remote import REFUSED as REMOTE_REFUSED
from kvcalc.core.layers import kind_of
from kvcalc.errors import KvcalcError
from kvcalc.readers.hf_config import find_decoder, model_of

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "model-types.md"
DATA = ROOT / "tests" / "data"
HEAD = """# Model types

Written by `tests/tools/write_model_types.py`; a test fails when it is stale. Layers are those of the class's own defaults, where
the type has any; a file's own fields decide in each case. Proof: *measured*, bytes of a real cache of transformers; *published*,
a published file with figures cross-checked by hand; *read*, the rule was read in the model's code.

"""


def types_in(name: str) -> set[str]:
    """Every model type, outer and inner, in the configs of a data file."""
    found = set()
    for line in (DATA / name).read_text().splitlines():
        config = json.loads(line).get("config")
        if isinstance(config, dict):
            found.add(str(config.get("model_type", "")))
            found.add(inner_type(config))
    return found


def inner_type(config: dict[str, Any]) -> str:
    """The decoder's type, or nothing where it isn't known."""
    try:
        return find_decoder(config, "").model_type
    except KvcalcError:
        return ""


def kinds(model_type: str) -> str:
    """The kinds of layers that the class's defaults give."""
    try:
        layers = model_of({"model_type": model_type}, "", model_type).layers
    except KvcalcError:
        return "by the file"
    return ", ".join(dict.fromkeys(kind_of(layer).replace("_attention", "") for layer in layers))


def rule_name(model_type: str) -> str:
    """The rule's function, or what made it; a composite has its decoder's."""
    if model_type not in ARCHITECTURES:
        return f"its decoder's, `{TEXT_CONFIGS[model_type][1]}`"
    return find_architecture(model_type).rule.__qualname__.split(".")[0].lstrip("_")


def page() -> str:
    """The whole page."""
    measured, published = types_in("transformers.jsonl"), types_in("published.jsonl")
    refused = {**REFUSED, **REMOTE_REFUSED}
    known = sorted((set(ARCHITECTURES) | set(TEXT_CONFIGS)) - {"equation"} - set(refused), key=lambda name: (name.lower(), name))
    lines = [f"| model type | in transformers {RELEASE} | layers | rule | proof |", "|---|---|---|---|---|"]
    for name in known:
        proof = [word for word, names in (("measured", measured), ("published", published)) if name in names] or ["read"]
        inside = "yes" if name in CLASS_DEFAULTS or name in TEXT_CONFIGS else "no"
        lines.append(f"| `{name}` | {inside} | {kinds(name)} | {rule_name(name)} | {', '.join(proof)} |")
    lines += ["", f"{len(known)} types.", "", "## Refused by name", "", "| model type | why |", "|---|---|"]
    lines += [f"| `{name}` | {reason} |" for name, reason in sorted(refused.items())]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(page())
