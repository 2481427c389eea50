"""``fit --log``: the same server, asked for another length, batch, cache type or number of ranks.

Engine, release, settings and memory are the log's own, so that no card is guessed at.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from pathlib import Path

from kvcalc.audit.carried import Carried, carried
from kvcalc.audit.log_model import file_keys
from kvcalc.cli.model_args import Reference, load_reference, references
from kvcalc.cli.options import Naming, OneModel, Room, Rules, Types
from kvcalc.core.log_facts import EngineLog, Load
from kvcalc.core.model import Model
from kvcalc.errors import KvcalcError, UsageError
from kvcalc.readers.engine_log import read_log_file

_MEMORY_FLAGS = ("memory", "gpu", "device", "weights", "overhead", "utilization")
_TYPES = ("kv-cache-dtype", "cache-type-k", "cache-type-v", "kv-cache-type")
_RANKS = {"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size"}


@dataclass(frozen=True, slots=True)
class Question:
    """What a log turns a question into."""

    rules: Rules
    model: Model
    reference: Reference
    memory: tuple[int, str]


def question(room: Room, one: OneModel, naming: Naming, types: Types, rules: Rules) -> Question:
    """The last start of the log, and what the command line asks otherwise. Raises UsageError, LogError."""
    given = [name for name in _MEMORY_FLAGS if getattr(room, name) is not None]
    if given:
        raise UsageError(f"--log says what memory there is, and so does --{given[0]}", fix="give one of the two")
    log = read_log_file(Path(str(room.log)))
    load = log.loads[-1]
    model, reference = _model(log, load, one, naming)
    found = carried(load, model)
    if rules.engine not in ("exact", found.engine):
        raise UsageError(f"the log is {found.engine}'s, and --engine names {rules.engine[:20]}", fix="leave --engine out")
    return Question(_rules(found, types, rules), model, reference, (found.memory, found.origin))


def _rules(found: Carried, types: Types, rules: Rules) -> Rules:
    """The log's options, but for those that the command line gives."""
    named = {text.partition("=")[0] for text in rules.option}
    named |= {option for flag, option in _RANKS.items() if getattr(rules, flag) is not None}
    named |= set(_TYPES) if types.dtype or types.k_dtype or types.v_dtype else set()
    asked = copy(rules)
    asked.engine = found.engine
    asked.option = [*(text for text in found.options if text.partition("=")[0] not in named), *rules.option]
    return asked


def _model(log: EngineLog, load: Load, one: OneModel, naming: Naming) -> tuple[Model, Reference]:
    """The one that is named; the keys that llama.cpp's log dumps; the preset of the name that the log states."""
    named = references(naming, [one.model] if one.model else [])
    if len(named) > 1:
        raise UsageError(f"{len(named)} models are named", fix="name one")
    if named:
        return load_reference(named[0], naming), named[0]
    if (own := own_model(load, log)) is not None:
        return own, Reference("gguf", log.source)
    name = (load.setting("model", "model_path") or "").rstrip("/").rpartition("/")[2].lower()
    try:
        if name:
            preset = Reference("preset", name)
            return load_reference(preset, naming), preset
    except KvcalcError:
        pass
    told = f": it is of {load.setting('model', 'model_path')}, which is no preset" if name else ""
    raise UsageError(f"the log names no model that is known here{told[:120]}", fix="name one: kvcalc fit --log FILE MODEL")


def own_model(load: Load, log: EngineLog) -> Model | None:
    """The model that llama.cpp's log dumps key by key, where it dumps enough."""
    keys = file_keys(load)
    if keys is None:
        return None
    from kvcalc.core.gguf import GgufMetadata
    from kvcalc.readers.gguf import GgufFile
    from kvcalc.readers.gguf_model import model_of_gguf

    source = f"{log.source}: the keys from line {load.line} on"
    try:
        return model_of_gguf(GgufFile(GgufMetadata(keys), source), {})
    except KvcalcError:
        return None
