"""Write ``kvcalc/engines/vllm/registry.py``: which classes each release of vLLM serves, read from its own registry.

    python tests/tools/read_vllm_registry.py VLLM_FOLDER TRANSFORMERS_FOLDER

The first folder holds one unpacked wheel a release (``0.32.0/vllm/…``; the Python files do), the second one a release of
transformers, for the classes that vLLM's Transformers backend may take over. A new release is one more folder, and a run.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kvcalc.engines.releases import number_of
from kvcalc.engines.vllm.releases import KNOWN

TARGET = Path(__file__).resolve().parents[2] / "kvcalc" / "engines" / "vllm" / "registry.py"
REGISTRY = Path("vllm/model_executor/models/registry.py")
# Dictionaries whose classes are no models to serve: drafts, the backend's own names, and what was served once.
NOT_SERVED = ("SPECULATIVE", "BACKEND", "PREVIOUSLY", "OOT", "_VLLM_MODELS", "_TRANSFORMERS_MODELS")
AUTO = Path("transformers/models/auto/modeling_auto.py")
TASKS = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
WIDTH = 117
HEAD = '''"""Which classes each release of vLLM serves, by the span of releases that do; and the library's classes.

Written by ``tests/tools/read_vllm_registry.py`` from ``vllm/model_executor/models/registry.py`` of every known release and
from transformers' ``models/auto/modeling_auto.py``. Not to be edited.
"""

from __future__ import annotations
'''


def classes(folder: Path) -> set[str]:
    """The classes of one release's registry."""
    tree = ast.parse((folder / REGISTRY).read_text())
    found: set[str] = set()
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        name = target.id if isinstance(target, ast.Name) else ""
        value = getattr(node, "value", None)
        if name.endswith("_MODELS") and isinstance(value, ast.Dict) and not any(word in name for word in NOT_SERVED):
            found |= {key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return found


def spans(by_release: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """(first release that serves it, last one; empty where the newest does) → classes, as ``0.9.1-0.22.1``."""
    found: dict[str, list[str]] = {}
    for name in sorted(set().union(*by_release.values())):
        served = [name in by_release[release] for release in KNOWN]
        key = ",".join(_runs(served))
        found.setdefault(key, []).append(name)
    return found


def _runs(served: Iterable[bool]) -> Iterator[str]:
    first, before = "", ""
    for release, there in zip((*KNOWN, ""), (*served, False), strict=True):
        if there and not first:
            first = release
        if not there and first:
            yield f"{first}-{'' if before == KNOWN[-1] else before}"
            first = ""
        before = release


def library(folder: Path) -> set[tuple[str, str]]:
    """(model type, a class of it), of one release of transformers."""
    text = (folder / AUTO).read_text()
    found: set[tuple[str, str]] = set()
    for task in TASKS:
        match = re.search(rf"MODEL_FOR_{task}_MAPPING_NAMES\s*=\s*OrderedDict\(\s*\[(.*?)\n    \]", text, re.DOTALL)
        found |= set(re.findall(r'\("([\w.-]+)",\s*"(\w+)"\)', match.group(1) if match else ""))
    return found


def _wrapped(name: str, doc: str, rows: Mapping[str, Iterable[str]]) -> str:
    lines = [f"\n# {doc}\n{name}: dict[str, str] = {{"]
    for key, words in rows.items():
        lines.append(f'    "{key}": (')
        line = ""
        for word in words:
            if len(line) + len(word) > WIDTH:
                lines.append(f'        "{line}"')
                line = ""
            line += f" {word}"
        lines += [f'        "{line} "', "    ),"]
    return "\n".join([*lines, "}\n"])


def main() -> None:
    """Read, sort, write."""
    vllm, transformers = Path(sys.argv[1]), Path(sys.argv[2])
    table = spans({release: classes(vllm / release) for release in KNOWN})
    versions = sorted((path.name for path in transformers.iterdir() if (path / AUTO).exists()), key=number_of)
    since: dict[str, list[str]] = {}
    pairs: set[tuple[str, str]] = set()
    for version in versions:
        found = library(transformers / version)
        since[version] = sorted({name for _, name in found} - {name for _, name in pairs})
        pairs |= found
    text = HEAD + _wrapped("CLASSES", "Releases that serve them → classes.", table)
    text += _wrapped("LIBRARY", "The first of the releases of transformers read that has them → classes.", since)
    text += _wrapped(
        "TYPES",
        "Model type=class, one or more, for files and presets that name no class.",
        {"": [f"{model_type}={name}" for model_type, name in sorted(pairs)]},
    )
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
