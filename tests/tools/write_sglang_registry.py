"""Write ``kvcalc/engines/sglang/registry.py``: which classes a release of SGLang has, read in its sources without running them.

    python tests/tools/write_sglang_registry.py RELEASE SGLANG TRANSFORMERS

``SGLANG`` is an unpacked wheel of that release, ``TRANSFORMERS`` one of the release of the library that it requires: SGLang takes
the library's own class for an architecture that it has none for, where that class says that it supports other attention backends.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from kvcalc.architectures.table import ARCHITECTURES

TARGET = Path(__file__).resolve().parents[2] / "kvcalc" / "engines" / "sglang" / "registry.py"
MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
)
BACKENDS = "_supports_attention_backend"
HEAD = '''"""The classes of SGLang {release}, and those of the library that it can take instead.

Written by ``tests/tools/write_sglang_registry.py``; a release's registry is read in ``sglang/srt/models`` (EntryClass).
"""

from __future__ import annotations

RELEASE = "{release}"
'''


def entry_classes(folder: Path) -> set[str]:
    """Every name in an ``EntryClass`` of ``sglang/srt/models``, one file deep, as its registry imports them."""
    found: set[str] = set()
    for path in sorted((folder / "sglang" / "srt" / "models").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.Assign) and any(isinstance(name, ast.Name) and name.id == "EntryClass" for name in targets):
                found |= {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
    return found


def classes(folder: Path) -> Iterator[ast.ClassDef]:
    """Every class of the library's models."""
    for path in (folder / "transformers" / "models").glob("*/modeling_*.py"):
        yield from (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef))


FLAGS = ("_supports_sdpa", "_supports_flash_attn", "_supports_flex_attn", "_can_compile_fullgraph", BACKENDS)


def flags(folder: Path) -> dict[str, set[str]]:
    """Class → which of ``FLAGS`` are true, its own or inherited."""
    bases: dict[str, list[str]] = {}
    says: dict[str, dict[str, bool]] = {}
    for node in classes(folder):
        bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
        lines = [line for line in node.body if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant)]
        named = [(line.targets[0], line.value) for line in lines]
        says[node.name] = {
            name.id: bool(value.value)
            for name, value in named
            if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and name.id in FLAGS
        }

    def says_so(name: str, flag: str) -> bool:
        own = says.get(name, {})
        return own[flag] if flag in own else any(says_so(base, flag) for base in bases.get(name, ()) if base != name)

    return {name: {flag for flag in FLAGS if says_so(name, flag)} for name in bases}


def default_classes(folder: Path) -> dict[str, str]:
    """Model type → the class that the library builds for it."""
    found: dict[str, str] = {}
    tree = ast.parse((folder / "transformers" / "models" / "auto" / "modeling_auto.py").read_text())
    rows: dict[str, list[tuple[str, object]]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in MAPPINGS:
            pairs = [pair for pair in ast.walk(node.value) if isinstance(pair, ast.Tuple) and len(pair.elts) == 2]
            rows[node.targets[0].id] = [ast.literal_eval(pair) for pair in pairs if isinstance(pair.elts[0], ast.Constant)]
    for mapping in MAPPINGS:
        for model_type, name in rows.get(mapping, []):
            found.setdefault(model_type, name if isinstance(name, str) else str(name[0]))  # type: ignore[index]
    return found


def native_types(native: set[str]) -> dict[str, str]:
    """Types that only SGLang's registry and kvcalc's table share: a class is found by its name's stem."""
    stems: dict[str, str] = {}
    for name in sorted(native):
        for ending in ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "Model"):
            stem = name.removesuffix(ending)
            if stem != name:
                stems.setdefault(stem.replace("_", "").lower(), name)
                break
    return {kind: stems[key] for kind in ARCHITECTURES if (key := kind.replace("_", "").replace("-", "").lower()) in stems}


def words(name: str, items: list[str]) -> str:
    """A frozen set of words, wrapped."""
    lines = textwrap.wrap(" ".join(items), 116)
    return (
        f"{name} = frozenset(\n    (  # noqa: SIM905\n" + "".join(f'        "{line} "\n' for line in lines) + "    ).split()\n)\n"
    )


def main(release: str, sglang: Path, library: Path) -> None:
    """Write the module."""
    native = entry_classes(sglang)
    types = {**native_types(native), **default_classes(library)}
    types = {kind: name for kind, name in types.items() if kind in ARCHITECTURES and " " not in kind}
    says, known = flags(library), set(types.values()) - native
    fallback = sorted(name for name in known if BACKENDS in says.get(name, ()))
    alone = sorted(name for name in known if name in says and not says[name])
    text = HEAD.format(release=release)
    text += "\n" + words("CLASSES", sorted(native)) + "\n# Of the library, built for other attention backends.\n"
    text += (
        words("COMPATIBLE", fallback) + "\n# Of the library, with one attention of their own that no other can stand in for.\n"
    )
    text += words("EAGER", alone) + "\n# The class of a model type, for files that name none.\n"
    text += words("_TYPES", [f"{kind}={name}" for kind, name in sorted(types.items())])
    text += 'TYPES: dict[str, str] = {kind: name for kind, _, name in (pair.partition("=") for pair in _TYPES)}\n'
    TARGET.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
