"""Models that ship with kvcalc, and users' own: one YAML file each, the published fields and where they were read.

Searched in this order: ``--presets-dir``, the user's own folder (``$XDG_CONFIG_HOME/kvcalc/presets``), the shipped ones.
Reading one preset opens that one file; only a name that is no file name makes us look through the others for an alias.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.core.fields import Field
from kvcalc.core.model import Model
from kvcalc.errors import PresetError
from kvcalc.readers.files import is_folder, read_text
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.plain_yaml import block_of

if TYPE_CHECKING:
    from kvcalc.readers.preset_schema import Preset

MAX_PRESET_BYTES = 64 * 1024  # the largest shipped one has 35 KiB
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}", re.ASCII)


@cache
def shipped_folder() -> Path:
    """The presets inside the wheel, or beside the package in a checkout; unpacked once where the package is in a zip."""
    inside = Path(__file__).resolve().parent.parent / "presets"
    beside = inside.parent.parent / "presets"
    return next((folder for folder in (inside, beside) if folder.is_dir()), None) or _unpacked()


def _unpacked() -> Path:
    import atexit
    import shutil
    import tempfile
    from importlib.resources import files

    folder = Path(tempfile.mkdtemp(prefix="kvcalc-presets-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    packed = files("kvcalc") / "presets"
    for entry in packed.iterdir() if packed.is_dir() else ():
        (folder / entry.name).write_bytes(entry.read_bytes())
    return folder


def user_folder() -> Path | None:
    """Where users keep their own, or None without a home."""
    base = os.environ.get("XDG_CONFIG_HOME")
    if base:
        return Path(base) / "kvcalc" / "presets"
    home = os.environ.get("HOME") or os.environ.get("USERPROFILE")
    return Path(home) / ".config" / "kvcalc" / "presets" if home else None


def folders(extra: Path | None = None) -> list[Path]:
    """Where to look, first come first served. Raises PresetError when ``extra`` is no folder."""
    if extra is not None and not is_folder(extra):
        raise PresetError("there is no such folder", str(extra), "give --presets-dir a folder of .yaml files")
    return [folder for folder in (extra, user_folder(), shipped_folder()) if folder is not None and is_folder(folder)]


def preset_paths(extra: Path | None = None) -> Iterator[Path]:
    """Every preset file, a user's before a shipped one of the same name."""
    return _paths_in(folders(extra))


def _paths_in(places: list[Path]) -> Iterator[Path]:
    seen: set[str] = set()
    for folder in places:
        for path in sorted(folder.glob("*.yaml")):
            if path.name not in seen and path.is_file():  # a pipe among them would never answer
                seen.add(path.name)
                yield path


def find_preset(name: str, extra: Path | None = None) -> Path:
    """The file of a preset by its name or an alias. Raises PresetError with near matches.

    ``qwen3:8b``, ``Qwen3_8B``, ``Qwen3 8B`` and ``Qwen/Qwen3-8B`` are ways of writing ``qwen3-8b``.
    """
    key, places = folded(name), folders(extra)
    found = _find_in(places, name)
    if found is not None:
        return found
    names = [word for path in preset_paths(extra) for word in (path.stem, *aliases_of(path))]
    near = get_close_matches(key[:80], names, n=4, cutoff=0.6)
    hint = f"did you mean {', '.join(near)}?" if near else "kvcalc presets lists them"
    raise PresetError(f"there is no preset called {name[:60]!r}", fix=hint)


def _find_in(places: list[Path], name: str) -> Path | None:
    """By file name, else by an alias or a title."""
    key, exact = folded(name), name.strip().lower()
    if not _NAME.fullmatch(key):
        return None
    spellings = dict.fromkeys((exact, key) if _NAME.fullmatch(exact) else (key,))
    paths = (folder / f"{word}.yaml" for word in spellings for folder in places)
    found = next((path for path in paths if path.is_file()), None)
    return found or next((path for path in _paths_in(places) if key in (*aliases_of(path), _title_of(path))), None)


def shadowed(name: str, path: Path) -> Path | None:
    """The shipped preset that ``name`` would be without the user's own at ``path``."""
    shipped = shipped_folder()
    return None if path.parent == shipped else _find_in([shipped], name)


_SEPARATORS = str.maketrans({":": "-", "_": "-", "(": "", ")": ""})


def folded(name: str) -> str:
    """One spelling for the ways in which people separate a name's parts; ORG/ before it is left out."""
    org, slash, rest = name.strip().partition("/")
    bare = rest if slash and org[:1].isalnum() else name.strip()
    return "-".join(bare.lower().translate(_SEPARATORS).split())


_ALIASES = r"(?m)^aliases:[ \t]*\[([^\]]*)\]"  # compiled when it is used: most starts look for no alias


def aliases_of(path: Path) -> tuple[str, ...]:
    """A preset's other names, read off its one line where they stand on one; none where the file is broken."""
    try:
        text = read_text(path, PresetError, MAX_PRESET_BYTES)
        line = re.search(_ALIASES, text)
        if line is None:
            words = read_preset(path).aliases if "aliases:" in text else ()
        else:
            words = tuple(word.strip().strip("\"'") for word in line.group(1).split(","))
    except PresetError:
        return ()  # a broken file elsewhere must not hide the others
    return tuple(folded(word) for word in words if word)


_TITLE = r"(?m)^title:[ \t]*(.+)$"


def _title_of(path: Path) -> str:
    """A preset's title as a name, or nothing where the file is broken."""
    try:
        line = re.search(_TITLE, read_text(path, PresetError, MAX_PRESET_BYTES))
    except PresetError:
        return ""
    return folded(line.group(1).strip().strip("\"'")) if line else ""


def read_preset(path: Path) -> Preset:
    """One validated preset. Raises PresetError that names file and key."""
    from kvcalc.readers.preset_schema import validate

    return validate(parse_yaml(read_text(path, PresetError, MAX_PRESET_BYTES), str(path)), path)


def parse_yaml(text: str, where: str) -> Any:
    """YAML without anchors: a few aliases can stand for a billion nodes. Raises PresetError.

    A key that is given twice, and a word that versions of YAML read differently (``020``, ``1:30``, ``yes``), is refused.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if ("&" in text or "*" in text) and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            raise PresetError("YAML aliases (*name) are not taken in presets", where, "write the value out")
        return _constructed(loader(text), where)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f"{where}: line {mark.line + 1}, column {mark.column + 1}" if mark else where
        raise PresetError(
            f"this is not YAML: {getattr(problem, 'problem', None) or 'it breaks off'}", place, "correct that place"
        ) from None
    except (RecursionError, ValueError, OverflowError):
        raise PresetError("this YAML can't be read: nested too deep, or an impossible value", where, "simplify it") from None


def _constructed(reader: Any, where: str) -> Any:
    """The value of a document whose words mean one thing. Raises PresetError, and what the reader raises."""
    try:
        root = reader.get_single_node()
        if root is None:
            return None
        _refuse_doubt(root, where)
        return reader.construct_document(root)
    finally:
        reader.dispose()


def _refuse_doubt(root: Any, where: str) -> None:
    """Go through every node, without recursion. Raises PresetError."""
    nodes = [root]
    while nodes:
        node = nodes.pop()
        place = f"{where}: line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"
        if isinstance(node.value, str):
            doubtful = _DOUBTFUL.get(node.tag)
            if doubtful and re.fullmatch(doubtful, node.value):
                raise PresetError(f"versions of YAML read {node.value[:40]} differently", place, _PLAIN)
        elif node.id == "mapping":
            keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key.value, str)]
            twice = next((name for (_, name), times in Counter(keys).items() if times > 1), None)
            if twice is not None:
                raise PresetError(f"the key {twice[:40]!r} is given twice", place, "give it once")
            nodes += [part for pair in node.value for part in pair]
        else:
            nodes += node.value


_PLAIN = "write a plain number, true or false, or put the word in quotes"
_CLOCK = r"[-+]?[0-9][0-9_]*(:[0-9]+)+(\.[0-9_]*)?"  # 1:30 is 90 in YAML 1.1, and a word in 1.2
_DOUBTFUL = {  # compiled when they are used: a shipped preset needs none
    "tag:yaml.org,2002:bool": r"(?i)yes|no|on|off",
    "tag:yaml.org,2002:int": rf"[-+]?0[0-9_]+|{_CLOCK}",  # 020 is 16 in YAML 1.1, and 20 in 1.2
    "tag:yaml.org,2002:float": _CLOCK,
}


def preset_model(name: str, extra: Path | None = None, overrides: Mapping[str, Field] | None = None, assume: str = "") -> Model:
    """The model of a preset. Raises PresetError, ConfigError, ArchitectureError."""
    return model_in(find_preset(name, extra), overrides, assume)


def model_in(path: Path, overrides: Mapping[str, Field] | None = None, assume: str = "") -> Model:
    """The model of a preset's file. Raises PresetError, ConfigError, ArchitectureError."""
    config = _shipped_config(path) or read_preset(path).config
    return model_of(config, f"preset {path.stem}", path.stem, overrides, assume, "preset")


def _shipped_config(path: Path) -> Mapping[str, object] | None:
    """The fields of a shipped preset. The tests validate every one, so that a start needs no pydantic."""
    if path.parent != shipped_folder():
        return None
    text = read_text(path, PresetError, MAX_PRESET_BYTES)
    plain = block_of(text, "config")
    if plain is not None:
        return plain
    value = parse_yaml(text, str(path))
    config = value.get("config") if isinstance(value, Mapping) else None
    return config if isinstance(config, Mapping) else None
