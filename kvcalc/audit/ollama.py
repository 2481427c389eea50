"""ollama's lines: what each device holds, what each layer holds, and the estimate before the model is loaded.

From 0.30 on llama.cpp's own server speaks, and its lines are read as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from kvcalc.audit.explain import common_guesses, dtype_guesses, explain, layer_guesses
from kvcalc.audit.findings import Finding, finding, total_of
from kvcalc.audit.findings import figure_text as shown
from kvcalc.audit.kept import Kept, kept_of, states_of
from kvcalc.audit.settings import Settings, windows_of
from kvcalc.audit.ways import best, hangs
from kvcalc.core.log_facts import Figure, Load, Statement
from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.errors import KvcalcError

NO_SHAPE = "the model's shape isn't known"
NO_CONTEXT = "the log doesn't state the context: add -o ctx-size=…, or give the log from where the runner starts"
UNSAID = ("0.25.0", "0.12.0")  # releases with other rules whose lines read alike
ESTIMATED = {"q8_0": Fraction(1), "q4_0": Fraction(1, 2)}  # bytes of an element, as the estimate counts them
_CACHES = re.compile(r'\.Cache="\[([\d ]{1,20000})\]"', re.ASCII)
_RELEASE = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,2}(?:-?rc\d{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Runner:
    """One start under one release."""

    load: Load
    model: Model | None
    settings: Settings
    release: str

    @property
    def parallel(self) -> int:
        """Sequences at once."""
        given = self.settings.given.option("num-parallel")
        return int(given) if given.isdigit() else self.settings.number("Parallel", "parallel") or 1

    @property
    def batch(self) -> int:
        """Tokens a step."""
        given = self.settings.given.option("num-batch")
        return int(given) if given.isdigit() else self.settings.number("BatchSize", "batch-size") or 512

    @property
    def cells(self) -> int | None:
        """Positions of all sequences together."""
        given, each = self.settings.given.option("ctx-size"), self.settings.given.option("num-ctx")
        if given.isdigit():
            return int(given)
        return int(each) * self.parallel if each.isdigit() else self.settings.number("KvSize", "ctx-size")

    @property
    def cache_type(self) -> str:
        """What keys and values are stored as."""
        given = self.settings.given.option("kv-cache-type") or self.settings.text("KvCacheType", "kv-cache-type")
        return given or "f16"

    def tally(self) -> Tally | None:
        """What the release's runner holds; None where its rules can't say."""
        cells = self.cells
        if self.model is None or not cells:
            return None
        words = [f"num-ctx={cells // self.parallel}", f"num-parallel={self.parallel}", f"num-batch={self.batch}"]
        words += [f"kv-cache-type={self.cache_type}", f"release={self.release}"]
        words += ["flash-attention=false"] if self.settings.text("FlashAttention") in ("false", "Disabled") else []
        engine = find_engine("ollama")
        try:
            return engine.allocate(replace(self.model, max_tokens=None), Request(options=engine.parse_options(words)))
        except KvcalcError:
            return None


def audit_ollama(load: Load, model: Model | None, settings: Settings) -> list[Finding]:
    """The findings of every line of one start."""
    named = settings.given.option("release") or load.version
    match = _RELEASE.match(named)
    releases = (match.group().replace("-", ""),) if match else UNSAID

    def findings(release: str) -> list[Finding]:
        runner = Runner(load, model, settings, release)
        return [each for statement in load.statements for each in _line(runner, statement)]

    release, found, others = best(releases, findings)
    settings.rules = _rules(release)
    if match is None and len(others) > 1 and not any(each.verdict == "differs" for each in found):
        settings.notes.append(f"the log doesn't name its release: -o release={release} is taken, under which every figure agrees")
    return [_judged(each, at, others) for at, each in enumerate(found)]


def _rules(release: str) -> str:
    try:
        return find_engine("ollama").releases.find(release).name
    except KvcalcError:
        return ""


def _judged(each: Finding, at: int, others: list[list[Finding]]) -> Finding:
    if each.verdict != "differs" or not hangs(each, at, others):
        return each
    return replace(each, predicted=None, why="it hangs on the release, which the log doesn't say: add -o release=…")


def _line(runner: Runner, statement: Statement) -> Iterable[Finding]:
    if statement.kind == "estimate":
        return [_estimate(runner, statement)]
    if statement.kind == "device":
        return [_devices(runner, statement)]
    if statement.kind == "layers":
        return _layers(runner, statement)
    return []


def _devices(runner: Runner, statement: Statement) -> Finding:
    """Each device's share, printed to one decimal."""
    figures = [value for value in statement.values.values() if isinstance(value, Figure)]
    low, high = total_of(figures)
    what = "cache on the device" if len(figures) == 1 else f"cache on {len(figures)} devices"
    return _held(runner, statement, " + ".join(shown(each) for each in figures), low, high, what)


def _layers(runner: Runner, statement: Statement) -> list[Finding]:
    """Each layer's bytes on each device."""
    sizes = [int(size) for shares in _CACHES.findall(statement.word("caches")) for size in shares.split() if len(size) < 16]
    if not sum(sizes):
        return []
    return [_held(runner, statement, f"{sum(sizes):,} B", sum(sizes), sum(sizes), "caches of the layers")]


def _held(runner: Runner, statement: Statement, text: str, low: int, high: int, what: str) -> Finding:
    tally = runner.tally()
    predicted = tally.total_bytes if tally else _counted(runner)
    if predicted is None:
        return finding(statement, text, low, high, what, None, NO_SHAPE if runner.model is None else NO_CONTEXT)
    why = "" if low <= predicted <= high else _why(runner, low, high, predicted)
    return finding(statement, text, low, high, what, predicted, why)


def _counted(runner: Runner) -> int | None:
    """Every layer over the context, where the release's rules don't know the model."""
    if runner.model is None or not runner.cells:
        return None
    dtype = runner.settings.type_of(runner.cache_type)
    return sum(_rows(runner, each) * (each.key_bytes(dtype) + each.value_bytes(dtype)) for each in _main(runner))


def _main(runner: Runner, *, whole_heads: bool = False) -> list[Kept]:
    kept = kept_of(runner.model, whole_heads=whole_heads) if runner.model else ()
    return [each for each in kept if not each.draft and each.kind != "index"]


def _rows(runner: Runner, kept: Kept) -> int:
    """The estimate's positions of a layer: windows of Gemma 3 and gpt-oss alone are told."""
    cells, kind = runner.cells or 0, runner.model.model_type.replace("-", "_") if runner.model else ""
    if kept.kind != "window" or not kind.startswith(("gemma3", "gpt_oss", "gptoss")):
        return cells
    memory = windows_of(runner.model).get(kept.layer, 0) if kind.startswith("gemma3") else 4096
    return min(cells, runner.parallel * memory + runner.batch)


def _estimate(runner: Runner, statement: Statement) -> Finding:
    """``memory.required.kv``: computed before anything is loaded, by simpler rules."""
    figures = [value for name, value in statement.values.items() if isinstance(value, Figure) and name != "layers"]
    low, high = total_of(figures)
    text, what = " + ".join(shown(each) for each in figures), "estimate of the cache"
    if runner.model is None or not runner.cells:
        return finding(statement, text, low, high, what, None, NO_SHAPE if runner.model is None else NO_CONTEXT)
    readings = [_estimated(runner, whole_heads=whole) for whole in (True, False)]
    predicted = next((each for each in readings if low <= each <= high), readings[0])
    why = "" if low <= predicted <= high else _why(runner, low, high, predicted)
    return finding(statement, text, low, high, what, predicted, why)


def _estimated(runner: Runner, *, whole_heads: bool) -> int:
    """Files of before latents were known name every head's own keys and values; later ones the latent, and its values."""
    element = ESTIMATED.get(runner.cache_type, Fraction(2))
    layers = sum(_rows(runner, each) * (each.keys + each.values) * element for each in _main(runner, whole_heads=whole_heads))
    states = states_of(runner.model) if runner.model else ()
    return int(layers) + sum(conv + state for conv, state in states) * 4


def _why(runner: Runner, low: int, high: int, predicted: int) -> str:
    main, dtype = _main(runner), runner.settings.type_of(runner.cache_type)
    whole = (runner.cells or 0) * sum(each.key_bytes(dtype) + each.value_bytes(dtype) for each in main)
    if low <= whole <= high and whole != predicted:
        return "every layer is counted at the whole context: ollama's estimate leaves windows out"
    guesses = layer_guesses(len(main), tuple(main)) + common_guesses()
    if not runner.settings.text("KvCacheType", "kv-cache-type") and main:
        guesses += dtype_guesses(dtype, main[0].keys)
    ratio = high / predicted if predicted else 0
    fallback = f"another model, or a cache missing: the line is {ratio:.3g} times the prediction"
    return explain(low, high, predicted, guesses) or fallback
