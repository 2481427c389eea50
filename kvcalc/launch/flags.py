"""The words after a program → its options: argparse's rules as each engine bends them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvcalc.launch.names import Match, match
from kvcalc.launch.roles import decides, speaks_of_memory
from kvcalc.launch.scalars import MAX_DEPTH, UnreadableError, is_placeholder, read_loose, read_scalar
from kvcalc.launch.tables import version
from kvcalc.launch.values import COUNTED, NAMES_MODEL, NO_EFFECT, UNKNOWN, UNREADABLE, Flag, Word

SIZES_SINCE = "0.8.5"  # vLLM: before it, 32k is no number
_NEGATIVE = re.compile(r"-\d+(\.\d+)?")
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,9})?", re.ASCII)
_TRUTH = {"true": True, "false": False}
_FLASH = {"on", "off", "auto", "1", "0", "true", "false", "enabled", "disabled"}

# The options that name the model.
MODELS = {
    "vllm": ("model", "model-tag"),
    "sglang": ("model-path",),
    "lmdeploy": ("model-path",),
    "mlx-lm": ("model",),
    "tensorrt-llm": ("model",),
    "llama.cpp": ("model", "hf-repo", "model-url", "docker-repo", "models-dir"),
}
# llama-cpp-python names the same settings by the arguments of its own class.
LLAMA_NAMES = {
    "n_ctx": "ctx-size",
    "n_batch": "batch-size",
    "n_ubatch": "ubatch-size",
    "n_gpu_layers": "n-gpu-layers",
    "type_k": "cache-type-k",
    "type_v": "cache-type-v",
    "flash_attn": "flash-attn",
    "offload_kqv": "kv-offload",
    "split_mode": "split-mode",
    "tensor_split": "tensor-split",
    "main_gpu": "main-gpu",
    "n_seq_max": "parallel",
}


@dataclass
class Reading:
    """What has been read so far of one command line."""

    engine: str
    table: str
    release: str
    settings: dict[str, Any] = field(default_factory=dict)
    flags: list[Flag] = field(default_factory=list)
    positionals: list[Word] = field(default_factory=list)
    held: dict[str, Any] = field(default_factory=dict)  # every option's value by its key, also those without effect

    def note(self, flag: Flag) -> None:
        """Account for a flag; what counts becomes a setting."""
        self.flags.append(flag)
        self.held[flag.name] = flag.value
        if flag.verdict in (NO_EFFECT, NAMES_MODEL, UNREADABLE):
            return
        glued = flag.name[-1:].isdigit() and flag.value is True
        guessed = flag.verdict == UNKNOWN and not glued and speaks_of_memory(flag.name, flag.value)
        counts = decides(self.engine, flag.name) or guessed
        if counts:
            self.settings[flag.name] = flag.value


def is_flag(text: str) -> bool:
    """Whether a word is an option rather than a value."""
    return len(text) > 1 and text[0] == "-" and not _NEGATIVE.fullmatch(text) and not text[1].isspace()


def read_words(reading: Reading, words: Sequence[Word]) -> None:
    """Read every word of a command line."""
    at = 0
    while at < len(words):
        text = words[at].text
        if not is_flag(text):
            reading.positionals.append(words[at])
            at += 1
        elif text == "--":
            at += 1
        else:
            at = _read_flag(reading, words, at)


def _read_flag(reading: Reading, words: Sequence[Word], at: int) -> int:
    word = words[at]
    written, equals, given = word.text.partition("=")
    written, path = _normal(reading.engine, written)
    found = match(reading.table, reading.release, written)
    kind = found.option.kind if found.option else "text"
    if kind == "size" and reading.release and version(reading.release) < version(SIZES_SINCE):
        kind = "int"
    if path:
        values, after = _values("text", words, at + 1, [Word(given, word.line, word.asks)] if equals else [])
        _dotted(reading, found, word, path, values)
        return after
    if equals:
        _take(reading, found, word, kind, [Word(given, word.line, word.asks)])
        return at + 1
    if found.name == "-fa" or found.name == "--flash-attn":
        follows = at + 1 < len(words) and words[at + 1].text.lower() in _FLASH
        values, after = (words[at + 1 : at + 2], at + 2) if follows else ([Word("on", word.line)], at + 1)
    else:
        values, after = _values(kind if found.option else "maybe", words, at + 1, [])
    _take(reading, found, word, kind, values)
    return after


def _normal(engine: str, written: str) -> tuple[str, list[str]]:
    """VLLM makes dashes of underscores before the first dot, and a path of what follows it; llama.cpp makes dashes of all."""
    if engine == "llama.cpp":
        return (written.replace("_", "-") if written.startswith("--") else written), []
    if engine != "vllm":
        return written, []
    head, *path = written.split(".")
    return (head.replace("_", "-") if head.startswith("--") else head), path


def _values(kind: str, words: Sequence[Word], at: int, given: list[Word]) -> tuple[Sequence[Word], int]:
    """The words that belong to a flag, and where the next begins."""
    if given:
        return given, at
    end = at
    most = {"switch": 0, "bool": 0, "list": len(words)}.get(kind, 1)
    while end < len(words) and end - at < most and not is_flag(words[end].text):
        end += 1
    if most == 0 and at < len(words) and words[at].text.lower() in _TRUTH:
        return words[at : at + 1], at + 1
    return words[at:end], end


def _take(reading: Reading, found: Match, word: Word, kind: str, values: Sequence[Word]) -> None:
    """Read the value of a flag and account for it."""
    name = key_of(reading.engine, found, word.text.partition("=")[0])
    written = word.text.partition("=")[0]
    try:
        held, note = _held(reading.engine, found, kind, values)
    except UnreadableError as problem:
        reading.note(Flag(written, name, " ".join(each.text for each in values), UNREADABLE, word.line, str(problem)))
        return
    verdict = found.verdict
    if verdict == COUNTED and not decides(reading.engine, name):
        verdict = NAMES_MODEL if name in MODELS[reading.engine] else NO_EFFECT
    if reading.engine == "llama.cpp" and name == "override-tensor" and name in reading.settings:  # these add up
        before = reading.settings[name]
        held = [*(before if isinstance(before, list) else [before]), held]
    reading.note(Flag(written, name, held, verdict, word.line, "; ".join(filter(None, (found.note, note)))))


def _held(engine: str, found: Match, kind: str, values: Sequence[Word]) -> tuple[Any, str]:
    """The value, and what there is to say about it. Raises UnreadableError."""
    if kind in ("switch", "bool") or (found.option is None and not values):
        if values:
            truth = _TRUTH[values[0].text.lower()] if values[0].text.lower() in _TRUTH else values[0].text
            return truth, f"takes no value: {values[0].text!r} is one word too many" if found.option else ""
        return not found.negated or (found.option is not None and bool(found.option.negative)), ""
    if not values:
        if kind == "maybe":
            return True, ""
        raise UnreadableError("a value is missing")
    if any(each.asks for each in values):
        return " ".join(each.text for each in values), "not given: " + ", ".join(name for each in values for name in each.asks)
    if kind == "list":
        items = [each.text for each in values]
        numbers = [int(item) if _NUMBER.fullmatch(item) and "." not in item else item for item in items]
        return (numbers if len(numbers) > 1 else numbers[0]), ""
    text = values[0].text
    if found.option is None:
        if is_placeholder(text):
            raise UnreadableError(f"{text} stands for a value that isn't given")
        return read_loose(text), ""
    if engine == "llama.cpp" and kind == "text" and _NUMBER.fullmatch(text):  # -ngl takes numbers and words
        kind = "float"
    return read_scalar(kind, text), ""


def _dotted(reading: Reading, found: Match, word: Word, path: list[str], values: Sequence[Word]) -> None:
    """``--speculative-config.method mtp``: one JSON value, grown key by key."""
    written = word.text.partition("=")[0]
    name = key_of(reading.engine, found, written.split(".")[0])
    if not values or is_placeholder(values[0].text) or len(path) > MAX_DEPTH:
        why = "a value is missing" if len(path) <= MAX_DEPTH else f"more than {MAX_DEPTH} keys deep"
        reading.note(Flag(written[:200], name, None, UNREADABLE, word.line, why))
        return
    before = reading.held.get(name)
    grown: dict[str, Any] = {**before} if isinstance(before, Mapping) else {}
    place = grown
    for key in path[:-1]:
        inner = place.get(key)
        place[key] = {**inner} if isinstance(inner, Mapping) else {}
        place = place[key]
    last = path[-1]
    if last.endswith("+"):
        last = last[:-1]
        place[last] = [*place.get(last, []), *values[0].text.split(",")]
    else:
        place[last] = values[0].text if values[0].asks else read_loose(values[0].text)
    verdict = found.verdict if found.verdict != COUNTED or decides(reading.engine, name) else NO_EFFECT
    reading.note(Flag(written, name, grown, verdict, word.line, found.note))


# llama.cpp has several long names for one option; one stands for all where an alias was written.
_LLAMACPP_KEYS = {
    "gpu-layers": "n-gpu-layers",
    "gpu-layers-draft": "n-gpu-layers-draft",
    "embeddings": "embedding",
    "draft": "draft-max",
    "draft-n": "draft-max",
    "draft-n-min": "draft-min",
    "swa-checkpoints": "ctx-checkpoints",
    "rerank": "reranking",
}


def key_of(engine: str, found: Match, written: str) -> str:
    """The option's own long name, without dashes in front. A name that is gone stands as it was written."""
    bare = written.lstrip("-")
    if found.option is None:
        return bare.replace("_", "-") if engine != "tensorrt-llm" else bare
    if engine == "llama.cpp":
        return _llamacpp_key(found, bare, written)
    spelled = next((name for name in found.option.names if name.text == (found.name or written)), None)
    if spelled is not None and spelled.gone and spelled.text.startswith("--") and not spelled.taken_by(""):
        return spelled.text[2:]
    return found.option.key if engine == "tensorrt-llm" else found.option.key.replace("_", "-")


def _llamacpp_key(found: Match, bare: str, written: str) -> str:
    option = found.option
    if option is None or written.startswith("--"):
        key = bare.replace("_", "-")
        return _LLAMACPP_KEYS.get(key, key)
    side = [name.text for name in option.names if (name.text in option.negative) == (written in option.negative)]
    long = [name for name in side if name.startswith("--") and not name.startswith("--spec-")]
    key = (long or [name for name in side if name.startswith("--")] or [bare])[-1].lstrip("-")
    return _LLAMACPP_KEYS.get(key, key)
