"""llama.cpp's own rules under a load's settings: which release, which caches, and what the line of each must say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvcalc.audit.kept import Kept
from kvcalc.audit.settings import Settings
from kvcalc.core.layers import LatentAttention
from kvcalc.core.log_facts import Load, Statement
from kvcalc.core.model import Model, Request, Tally
from kvcalc.dtypes import DTYPES, Dtype
from kvcalc.engines import find_engine
from kvcalc.engines.releases import number_of
from kvcalc.errors import KvcalcError

# the log's name → the engine's option, and what its words mean there
SETTINGS: Mapping[str, str] = {
    "n_ctx": "ctx-size",
    "n_batch": "batch-size",
    "n_ubatch": "ubatch-size",
    "n_seq_max": "parallel",
    "kv_unified": "kv-unified",
    "flash_attn": "flash-attn",
    "n_rs_seq": "n-rs-seq",
    # of the command that starts the server
    "c": "ctx-size",
    "np": "parallel",
    "b": "batch-size",
    "ub": "ubatch-size",
    "ctx-size": "ctx-size",
    "parallel": "parallel",
    "batch-size": "batch-size",
    "ubatch-size": "ubatch-size",
    "flash-attn": "flash-attn",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "flash_attn": {"0": "off", "1": "on", "disabled": "off", "enabled": "on", "auto": "auto"},
}
IK_WORDS = "c^KV"  # ik_llama.cpp's own line: a fork with other rules, of which the latent alone is told
LATENT_SINCE = "b5135"  # before it every head's own keys and values were stored
_STREAMS = re.compile(r"\d/\d{1,4} seqs", re.ASCII)
# A release that isn't named shows itself by the wording of its lines.
_WORDINGS: tuple[tuple[str, str], ...] = (
    ("llama_kv_cache_unified", "b5640"),
    ("KV self size", "b4600"),
    ("kv self size", "b4600"),
)
_BEFORE_LATENTS = ("llama_new_context_with_model: KV self size", "llama_init_from_model: KV self size", "kv self size")
_LATER = ("", "b8390", "b8095", "b7698")  # releases whose lines read alike


@dataclass(frozen=True, slots=True)
class Way:
    """How what isn't said is taken."""

    release: str = ""
    origin: str = ""  # where the release stands; nothing where it was taken
    defaults: str = "library"
    whole_heads: bool = False  # of a latent
    unsaid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """One cache as it should be. None: not known."""

    name: str
    cells: int | None
    layers: int | None
    keys: int | None  # of a state: R
    values: int | None  # of a state: S
    more: int = 0  # of a state: P
    kept: tuple[Kept, ...] = ()


@dataclass(slots=True)
class Rules:
    """The engine under one way. ``rules`` names the release whose rules answered."""

    load: Load
    model: Model | None
    settings: Settings
    way: Way
    rules: str = ""
    problem: str = ""
    _tallies: dict[tuple[str, ...], Tally | None] = field(default_factory=dict)

    def caches(self, k_type: str, v_type: str) -> list[Mapping[str, object]] | None:
        """The engine's caches, or None where the log states too little, or the engine knows no such model."""
        tally = self.tally(k_type, v_type)
        caches = tally.report.get("caches") if tally else None
        return list(caches) if isinstance(caches, list | tuple) else None

    def tally(self, k_type: str = "", v_type: str = "") -> Tally | None:
        """Everything that the engine holds for the context; None where it can't say."""
        words = self.options()
        fork = any(IK_WORDS in statement.text for statement in self.load.statements)
        if self.model is None or self.way.whole_heads or fork or not any(word.startswith("ctx-size=") for word in words):
            return None
        key = (k_type, v_type)
        if key not in self._tallies:
            self._tallies[key] = self._first_that_knows(words, _known(k_type), _known(v_type or k_type))
        return self._tallies[key]

    def _first_that_knows(self, words: list[str], k_type: Dtype | None, v_type: Dtype | None) -> Tally | None:
        """Under the release; one that lacks the model, and stands for a later build, under the next that has it."""
        for release in self._releases():
            tally = self._asked([*words, *([f"release={release}"] if release else [])], k_type, v_type)
            if tally is not None:
                return tally
        return None

    def _releases(self) -> Iterable[str]:
        yield self.way.release
        if self.way.release.startswith("b") and not self.way.origin.startswith("the wording"):
            number = number_of(self.way.release)
            yield from [known for known in find_engine("llama.cpp").releases.known if number_of(known) > number][:1]
        elif self.way.release == "b5640":
            yield "b6673"

    def _asked(self, words: list[str], k_type: Dtype | None, v_type: Dtype | None) -> Tally | None:
        model = self.model
        try:
            engine = find_engine("llama.cpp")
            request = Request(k_dtype=k_type, v_dtype=v_type, options=engine.parse_options(words))
            tally = engine.allocate(model, request) if model else None
        except KvcalcError as problem:
            self.problem = problem.what
            return None
        if tally:
            self.rules = str(tally.report.get("release", ""))
        return tally

    def options(self) -> list[str]:
        """The engine's options, but for the release."""
        given = [text for text in self.settings.given.options if not text.startswith("release=")]
        named = {text.partition("=")[0] for text in given}
        found = [*given, *([] if "defaults" in named else [f"defaults={self.way.defaults}"])]
        for setting, option in SETTINGS.items():
            stated = self.load.settings.get(setting)
            if stated and option not in named:
                named.add(option)
                value = WORDS.get(setting, {}).get(stated.value, stated.value)
                found.append(f"{option}={value}")
                self.settings.used[option] = (value, f"line {stated.line}")
        if "swa-full" not in named:
            found.append(f"swa-full={'true' if 'swa_full' in self.load.settings else 'false'}")
        return found


def _known(word: str) -> Dtype | None:
    """A type that the engine has; cells and layers don't hang on it."""
    from kvcalc.dtypes import ALIASES

    return DTYPES.get(ALIASES.get(word.lower(), word.lower()))


def ways(load: Load, model: Model | None, settings: Settings) -> list[Way]:
    """Every way to take what isn't said, the likeliest first."""
    named, origin = _release(load, settings)
    releases = [named, *_next_known(named, origin)] if origin else list(_LATER)
    defaults = _defaults(load, settings)
    newest = find_engine("llama.cpp").releases.newest
    found = []
    for whole in _latents(load, model, named):
        for release in releases:
            for default in defaults:
                said = [] if origin and len(releases) == 1 else [f"release={release or newest}"]
                said += [f"defaults={default}"] if len(defaults) > 1 else []
                stands = origin if release == named else f"{origin}, and the rules of the next known"
                found.append(Way(release, stands if origin else "", default, whole, tuple(said)))
    return found


def _next_known(release: str, origin: str) -> list[str]:
    """A build between two known releases has the rules of the one, or already those of the other."""
    known = find_engine("llama.cpp").releases.known
    if not origin.startswith("line") or not release.startswith("b") or release in known:
        return []
    return [each for each in known if number_of(each) > number_of(release)][:1]


def _defaults(load: Load, settings: Settings) -> tuple[str, ...]:
    """A context's own lines state everything; a table alone may be the server's, which shares one cache among four."""
    if (
        load.of_kind("breakdown")
        and not {"n_seq_max", "np", "parallel"} & set(load.settings)
        and not settings.given.option("parallel")
    ):
        return ("server", "library")
    return ("library",)


def _latents(load: Load, model: Model | None, release: str) -> tuple[bool, ...]:
    """Whether a latent is stored as whole heads. A GGUF file tells by its keys."""
    if model is None or model.format == "gguf" or not _has_latent(model):
        return (False,)
    texts = [statement.text for statement in load.of_kind("kv")]
    if any(words in text for words in _BEFORE_LATENTS for text in texts):
        return (True, False)  # ik_llama.cpp speaks so as well, and has latents
    if not release or not release.startswith("b"):
        return (False,)
    return (True,) if number_of(release) < number_of(LATENT_SINCE) else (False, True)


def _has_latent(model: Model) -> bool:
    return any(isinstance(part, LatentAttention) and part.num_heads for layer in model.layers for part in layer)


def _release(load: Load, settings: Settings) -> tuple[str, str]:
    """The release and where it stands: the command line, the log, the wording of a line; else both empty."""
    if named := settings.given.option("release"):
        return named, "-o release"
    if "release" in load.settings:
        return f"b{load.settings['release'].value}", f"line {load.settings['release'].line}"
    for statement in load.statements:
        for words, release in _WORDINGS:
            if words in statement.text:
                return _by_wording(statement, release)
    if "n_ctx_per_seq" in load.settings:
        return "b6673", f"the wording of line {load.settings['n_ctx_per_seq'].line}"
    return "", ""


def _by_wording(statement: Statement, release: str) -> tuple[str, str]:
    streams = release == "b5640" and _STREAMS.search(statement.text)
    return ("b6673" if streams else release), f"the wording of line {statement.line}"
