"""vLLM's rules under a load's settings: what the log says, what the command line says, and how to take what neither does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from kvcalc.audit.settings import Settings
from kvcalc.core.layers import ChunkedAttention, CompressedAttention, Recurrent, SlidingAttention
from kvcalc.core.log_facts import Load
from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.engines.releases import Rules, number_of
from kvcalc.errors import KvcalcError

NO_SHAPE = "the model's shape isn't known"
NAMED_MEMORY = ("available-bytes", "kv-cache-memory-bytes", "device-memory", "num-gpu-blocks-override")
SETTINGS: Mapping[str, str] = {
    "tensor_parallel_size": "tensor-parallel-size",
    "pipeline_parallel_size": "pipeline-parallel-size",
    "data_parallel_size": "data-parallel-size",
    "decode_context_parallel_size": "decode-context-parallel-size",
    "kv_cache_dtype": "kv-cache-dtype",
    "block_size": "block-size",
    "max_num_batched_tokens": "max-num-batched-tokens",
    "max_num_seqs": "max-num-seqs",
    "enable_prefix_caching": "enable-prefix-caching",
    "async_scheduling": "async-scheduling",
    "platform": "platform",
    "num_spec_tokens": "num-speculative-tokens",
    "num_speculative_tokens": "num-speculative-tokens",
    "mamba_cache_dtype": "mamba-cache-dtype",
    "mamba_ssm_cache_dtype": "mamba-ssm-cache-dtype",
    "disable_hybrid_kv_cache_manager": "disable-hybrid-kv-cache-manager",
}
_FLAG = {"True": "true", "False": "false", "enabled": "true", "disabled": "false", "off": "true"}
WORDS: Mapping[str, Mapping[str, str]] = {
    "async_scheduling": _FLAG,
    "platform": {"cpu": "cpu", "cuda": "", "rocm": ""},
    "enable_prefix_caching": _FLAG,
    "disable_hybrid_kv_cache_manager": _FLAG,
}
_RELEASE = re.compile(r"\d{1,4}(?:\.\d{1,4}){1,2}(?:rc\d{1,3})?", re.ASCII)
_OWN_HEADS = re.compile(r"^mtp|_mtp$", re.ASCII)  # a method whose draft layers are in the model's own file
_OTHER_MODEL = re.compile(r"eagle|draft|dflash", re.ASCII)  # one whose layers are in a file of their own
_PER_RANK_BEFORE = "0.11.0"


@dataclass(frozen=True, slots=True)
class Era:
    """Releases from ``since`` on, as far as this log's figures go. Where the engine knows a release itself, that stands."""

    since: str
    options: tuple[str, ...] = ()
    stateful: tuple[str, ...] = ()  # of models with recurrent layers
    tokens_by_blocks: bool = False  # blocks // groups × the smallest block, not concurrency × length


_ONE_STEP = ("async-scheduling=false",)  # a window is held with the tokens of one step
_OPT_IN = ("enable-prefix-caching=false",)
ERAS = (
    Era("0.0.0", _ONE_STEP, _OPT_IN, tokens_by_blocks=True),
    Era("0.20.1", _ONE_STEP, _OPT_IN),
    Era("0.26.0"),
)
ONE_LINE = ("", "0.32.0", "0.28.0", "0.26.0")  # releases that count otherwise, and print their figures alike
TWO_LINES = ("0.25.0", "0.26.0", "0.20.0", "0.10.2")


@dataclass(frozen=True, slots=True)
class Way:
    """How what isn't said is taken. ``said`` is each choice as one would type it, first the release."""

    release: str = ""
    options: tuple[str, ...] = ()
    draft: int = 0  # layers besides the model's own
    unsaid: tuple[str, ...] = ()  # what was taken, as one would type it


@dataclass(slots=True)
class Run:
    """The engine's rules under a load's settings. ``problem`` says why they can't be asked."""

    load: Load
    model: Model | None
    settings: Settings
    way: Way = field(default_factory=Way)
    problem: str = ""
    _answering: str | None = None
    _options: list[str] = field(default_factory=list)
    _reports: dict[tuple[str, ...], Mapping[str, object]] = field(default_factory=dict)

    def varied(self, way: Way) -> Run:
        """The same load, taken another way."""
        return Run(self.load, self.model, self.settings, way)

    @property
    def answering(self) -> str:
        """The release whose rules answer: the log's own, or the first after it that is known to serve the model."""
        if self._answering is None:
            self._answering = answering(self.way.release, self.model)
        return self._answering

    @property
    def own_rules(self) -> bool:
        """Whether the engine answers for the release itself."""
        return self.answering == self.way.release

    @property
    def era(self) -> Era:
        """What is special of the release, where the engine doesn't know it itself; the newest where it does."""
        return ERAS[-1] if self.own_rules else era_of(self.way.release)

    @property
    def by_blocks(self) -> bool:
        """Whether tokens are counted by blocks, so that the concurrency is a figure of its own."""
        rules, change = rules_of(self.way.release), "tokens_by_concurrency"
        if rules is None or not self.own_rules:
            return self.era.tokens_by_blocks
        return change not in rules and any(each.name == change for each in find_engine("vllm").releases.changes)

    @property
    def per_rank(self) -> bool:
        """Whether each rank states a capacity of its own."""
        return not self.way.release or number_of(self.way.release) < number_of(_PER_RANK_BEFORE) or not self.load.version

    @property
    def counted(self) -> Model | None:
        """The model with the draft layers that the engine keeps beside it."""
        model, extra = self.model, self.way.draft or own_draft_layers(self.load, self.settings)
        if model is None or not extra:
            return model
        drafts = model.draft_layers[:extra] or (model.layers[-1],) * extra
        return replace(model, layers=(*model.layers, *drafts), draft_layers=())

    def report(self, **more: int) -> Mapping[str, object]:
        """The engine's own figures with these options besides; empty where it can't say."""
        if self.model is None:
            self.problem = NO_SHAPE
            return {}
        named = {name.replace("_", "-"): f"{name.replace('_', '-')}={value}" for name, value in more.items()}
        options = (*(text for text in self.options() if text.partition("=")[0] not in named), *named.values())
        if options not in self._reports:
            self._reports[options] = self._asked(list(options))
        return self._reports[options]

    def pool(self, **more: int) -> Mapping[str, object]:
        """The same where every cache of the pool counts, a draft's own too."""
        if self.model is not None and (problem := unknown_draft(self.load)):
            self.problem = problem
            return {}
        return self.report(**more)

    def _asked(self, options: list[str]) -> Mapping[str, object]:
        model = self.counted
        if model is None:
            return {}
        try:
            engine = find_engine("vllm")
            dtype = self.settings.given.dtype
            request = Request(k_dtype=dtype, v_dtype=dtype, options=engine.parse_options(options))
            return engine.allocate(model, request).report
        except KvcalcError as problem:
            self.problem = problem.what
            return {}

    def options(self) -> list[str]:
        """The engine's options: the way's, the command line's, the log's, the release's own."""
        if self._options:
            return self._options
        found = {text.partition("=")[0]: text for text in self._release()}
        found |= {text.partition("=")[0]: text for text in self._stated()}
        found |= {text.partition("=")[0]: text for text in self.settings.given.options if not text.startswith("release=")}
        found |= {text.partition("=")[0]: text for text in self.way.options}
        self._options = ["allow-long-max-model-len=true", *found.values()]
        return self._options

    def _release(self) -> Iterable[str]:
        if self.own_rules:
            return (f"release={self.way.release}",) if self.way.release else ()
        return (f"release={self.answering}", *self.era.options, *(self.era.stateful if has(self.model, Recurrent) else ()))

    def _stated(self) -> Iterable[str]:
        given = {text.partition("=")[0] for text in self.settings.given.options}
        for setting, option in SETTINGS.items():
            if option in given or setting not in self.load.settings:
                continue
            text = self.settings.text(setting)
            if text := WORDS[setting].get(text, "") if setting in WORDS else text:
                yield f"{option}={text}"
        yield from self._ranks(given)
        if (length := self.length()) and "max-model-len" not in given:
            yield f"max-model-len={length}"

    def _ranks(self, given: set[str]) -> Iterable[str]:
        """--tp and --pp, which stand instead of the log's."""
        for name, size in (("tensor", self.settings.given.tp_size), ("pipeline", self.settings.given.pp_size)):
            option = f"{name}-parallel-size"
            if size is not None and option not in given:
                yield f"{option}={size}"

    def length(self) -> int | None:
        """max_model_len: the settings' own, else what a line says of it."""
        stated = self.settings.number("max_seq_len", "max_model_len")
        if stated:
            return stated
        return next((count for each in self.load.statements if (count := each.count("max_len"))), None)

    def names(self, *options: str) -> bool:
        """Whether the command line gives one of these options."""
        return any(text.partition("=")[0] in options for text in self.settings.given.options)


def rules_of(release: str) -> Rules | None:
    """The engine's rules for a release; None for one that is older than it knows."""
    try:
        return find_engine("vllm").releases.find(release or None)
    except KvcalcError:
        return None


def answering(release: str, model: Model | None) -> str:
    """The release itself where the engine answers for it; else the first later one that does: the log shows that it ran."""
    engine = find_engine("vllm")
    rules = rules_of(release)
    if not release or model is None or (rules is not None and not engine.serves(model, rules).refused):
        return release if rules is not None else engine.releases.known[0]
    later = (known for known in engine.releases.known if number_of(known) > number_of(release))
    return next((known for known in later if not engine.serves(model, engine.releases.find(known)).refused), release)


def era_of(release: str) -> Era:
    """The era of a release; the newest where none is named."""
    if not release:
        return ERAS[-1]
    return [era for era in ERAS if number_of(era.since) <= number_of(release)][-1]


def release_of(load: Load, settings: Settings) -> str:
    """The release that the command line names, or the log; an empty text where neither does."""
    named = next((text.partition("=")[2] for text in settings.given.options if text.startswith("release=")), "")
    match = _RELEASE.match(named.strip().removeprefix("v") or load.version)
    return match.group() if match else ""


def has(model: Model | None, *kinds: type) -> bool:
    """Whether a layer of the model has a part of one of these kinds."""
    return model is not None and any(isinstance(part, kinds) for layer in model.layers for part in layer)


def own_draft_layers(load: Load, settings: Settings) -> int:
    """How many layers for drafts the log, or --draft, says are kept: one, applied once for each token that is drafted."""
    method = load.setting("method") or ""
    return 1 if settings.given.draft or _OWN_HEADS.search(method) else 0


def unknown_draft(load: Load) -> str:
    """Why a draft's cache can't be counted, or an empty text."""
    method = load.setting("method") or ""
    if not _OTHER_MODEL.search(method):
        return ""
    return f"the {method[:20]} draft model keeps a cache too, and its shape isn't known"


def ways(load: Load, model: Model | None, settings: Settings) -> list[Way]:
    """Every way to take what isn't said, the likeliest first."""
    release = release_of(load, settings)
    releases = [release] if release else list(_likely(load))
    found = product(releases, _batched(load, model, settings), _caching(load, model, settings))
    return [_way(each, batched, caching, named=bool(release)) for each, batched, caching in found]


def _way(release: str, batched: str, caching: str, *, named: bool) -> Way:
    options = tuple(text for text in (batched, caching) if text)
    newest = find_engine("vllm").releases.newest
    return Way(release, options, unsaid=(*(() if named else (f"release={release or newest}",)), *options))


def _likely(load: Load) -> tuple[str, ...]:
    """One line for tokens and concurrency is a newer release; two may be any before."""
    capacity = load.of_kind("capacity")
    if any(each.figure("concurrency_x") for each in capacity):
        return ONE_LINE
    return TWO_LINES if capacity else ("", "0.32.0", "0.25.0", "0.11.0")


def _batched(load: Load, model: Model | None, settings: Settings) -> tuple[str, ...]:
    """The tokens of a step decide what windows hold; unsaid they go by the class of card."""
    named = {text.partition("=")[0] for text in settings.given.options}
    stated = "max_num_batched_tokens" in load.settings or named & {"max-num-batched-tokens", "card", "device-memory"}
    if stated or not has(model, SlidingAttention, ChunkedAttention, CompressedAttention):
        return ("",)
    return ("", "card=small", "card=huge")


def _caching(load: Load, model: Model | None, settings: Settings) -> tuple[str, ...]:
    """Whether blocks are kept for reuse decides what states hold."""
    named = {text.partition("=")[0] for text in settings.given.options}
    stated = "enable_prefix_caching" in load.settings or "enable-prefix-caching" in named
    if stated or not has(model, Recurrent):
        return ("",)
    return ("", "enable-prefix-caching=false", "enable-prefix-caching=true")
