"""What a log carries over to another question: its engine, release and settings, and the memory that its cache had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvcalc.audit.findings import figure_text
from kvcalc.audit.llamacpp_rules import Rules
from kvcalc.audit.llamacpp_rules import ways as llamacpp_ways
from kvcalc.audit.settings import Given, Settings
from kvcalc.audit.vllm import chosen
from kvcalc.audit.vllm_memory import tightest
from kvcalc.core.log_facts import Figure, Load, Statement
from kvcalc.core.model import Model
from kvcalc.errors import LogError

# What the question itself asks for, or what follows from it.
_ASKED = ("max-model-len", "ctx-size", "num-ctx", "num-gpu-blocks-override", "allow-long-max-model-len")
_SGLANG = ("kv_cache_dtype", "page_size", "swa_full_tokens_ratio", "mamba_full_memory_ratio", "max_running_requests")


@dataclass(frozen=True, slots=True)
class Carried:
    """One start of a log as an engine, its options, and the bytes on one device that its cache had."""

    engine: str
    options: tuple[str, ...]
    memory: int
    origin: str


def carried(load: Load, model: Model | None) -> Carried:
    """What another question takes from a start. Raises LogError where the log doesn't say what memory there was."""
    settings = Settings(load, Given(), model)
    rule = _OPTIONS.get(load.engine)
    found = _memory(load)
    if rule is None or found is None:
        raise LogError(
            f"the log of {load.engine} doesn't say what memory its cache had",
            f"the start from line {load.line:,} on",
            "name the engine and the memory yourself: --engine, --memory",
        )
    options = tuple(text for text in rule(load, model, settings) if text.partition("=")[0] not in _ASKED)
    return Carried(load.engine, options, *found)


def _vllm(load: Load, model: Model | None, settings: Settings) -> Iterable[str]:
    return chosen(load, model, settings).options()


def _llamacpp(load: Load, model: Model | None, settings: Settings) -> Iterable[str]:
    """A release, and what the context's lines say."""
    way = llamacpp_ways(load, model, settings)[0]
    yield from (text for text in Rules(load, model, settings, way).options() if text != "defaults=library")
    yield from [f"release={way.release}"] if way.release else []
    for statement in load.of_kind("kv")[:1]:
        for side in ("k", "v"):
            if word := statement.word(f"{side}_type"):
                yield f"cache-type-{side}={word}"


def _sglang(load: Load, model: Model | None, settings: Settings) -> Iterable[str]:
    del load, model
    for name in _SGLANG:
        if text := settings.text(name):
            yield f"{name.replace('_', '-')}={text}"


def _ollama(load: Load, model: Model | None, settings: Settings) -> Iterable[str]:
    del model
    yield from [f"release={load.version}"] if load.version else []
    for option, names in {"num-parallel": ("Parallel", "parallel"), "num-batch": ("BatchSize", "batch-size")}.items():
        if text := settings.text(*names):
            yield f"{option}={text}"
    if kind := settings.text("KvCacheType", "kv-cache-type"):
        yield f"kv-cache-type={kind}"


_OPTIONS = {"vllm": _vllm, "llama.cpp": _llamacpp, "sglang": _sglang, "ollama": _ollama}


def _memory(load: Load) -> tuple[int, str] | None:
    """At least so many bytes, and the lines that say so."""
    if load.engine == "vllm":
        figure = tightest(load)
        return None if figure is None else (figure.low, f"the log's available memory, {figure_text(figure)}")
    if tables := load.of_kind("breakdown"):
        return _of_table(tables[-1])
    held = list(_held(load))
    if not held:
        return None
    lines = ", ".join(f"{statement.line:,}" for statement, _ in held[:4])
    return sum(figure.high for _, figure in held), f"what the log's cache took (line{'s' * (len(held) > 1)} {lines})"


def _of_table(table: Statement) -> tuple[int, str]:
    shares = [value for name, value in table.values.items() if name.startswith("part_") and isinstance(value, Figure)]
    return sum(each.low for each in shares), f"the context of the table at line {table.line:,}"


def _held(load: Load) -> Iterable[tuple[Statement, Figure]]:
    for statement in load.statements:
        for name in _HELD.get(load.engine, ()):
            if (figure := statement.figure(name)) is not None:
                yield statement, figure


_HELD: Mapping[str, tuple[str, ...]] = {
    "llama.cpp": ("total_mib",),
    "sglang": ("k_gib", "v_gib", "total_gib", "conv_gib", "ssm_gib"),
    "ollama": ("part_0", "part_1", "part_2", "part_3", "part_4", "part_5", "part_6", "part_7"),
}
