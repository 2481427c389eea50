"""SGLang, TensorRT-LLM and LMCache: lines that state tokens and bytes, so that bytes = tokens × bytes a token.

SGLang's buffers hold one page more than the pool's tokens (``mem_cache/memory_pool.py``); it prints GB and means GiB,
and so does LMCache. A rank holds its share of the heads, one at least, and the whole of a latent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction

from kvcalc.audit.explain import common_guesses, dtype_guesses, explain, layer_guesses
from kvcalc.audit.findings import Finding, Range, check, figure_text
from kvcalc.audit.kept import Kept, kept_of, states_of
from kvcalc.audit.settings import TP_NAMES, Settings
from kvcalc.core.log_facts import Figure, Load, Statement
from kvcalc.core.model import Model
from kvcalc.dtypes import Dtype
from kvcalc.units import format_bytes, round_up

CLOSE = 0.01  # nearer than this a ratio says nothing
FREE_SHARE = Fraction(9, 10)  # of the free memory that TensorRT-LLM takes unless told otherwise
NO_SHAPE = "the model's shape isn't known"


def audit_pools(load: Load, model: Model | None, settings: Settings) -> list[Finding]:
    """The findings of every line that states tokens and bytes."""
    kept = kept_of(model, settings.tp_size) if model else ()
    found: list[Finding] = []
    for statement in load.statements:
        rule = _RULES.get((load.engine, statement.kind))
        if rule is not None:
            found += rule(_Pool(statement, load, model, kept, settings))
    return found


class _Pool:
    """One statement and what it is checked with."""

    def __init__(self, statement: Statement, load: Load, model: Model | None, kept: tuple[Kept, ...], settings: Settings) -> None:
        self.statement, self.load, self.model, self.kept, self.settings = statement, load, model, kept, settings

    def others(self, kind: str) -> list[_Pool]:
        """The same load's other lines of that kind."""
        found = [each for each in self.load.of_kind(kind) if each is not self.statement]
        return [_Pool(each, self.load, self.model, self.kept, self.settings) for each in found]

    @property
    def main(self) -> tuple[Kept, ...]:
        """All but draft layers and index keys."""
        return tuple(each for each in self.kept if each.kind != "index" and (self.settings.draft or not each.draft))

    def dtype(self) -> Dtype:
        """The cache's type: the line's own, the log's, else the model's."""
        return self.settings.dtype(self.statement.word("dtype"))

    def bytes_of(self, kept: Iterable[Kept], side: str = "kv") -> int:
        """Bytes of one token over ``kept``. Raises DtypeError."""
        dtype = self.dtype()
        keys = sum(each.key_bytes(dtype) for each in kept) if "k" in side else 0
        return keys + (sum(each.value_bytes(dtype) for each in kept) if "v" in side else 0)

    def why(self, figure: Figure, predicted: int, kept: tuple[Kept, ...]) -> str:
        """What explains a figure that doesn't cover the prediction."""
        guesses = layer_guesses(len(kept), self.kept) + common_guesses()
        guesses += dtype_guesses(self.dtype(), kept[0].keys) if kept and not self.type_said else []
        ratio = figure.value / predicted if predicted else 0
        told = f"{ratio:.3g} times the prediction" if abs(ratio - 1) >= CLOSE else f"{figure.value - predicted:+,} bytes off"
        fallback = f"another model, or settings that the log doesn't state: the line is {told}"
        return explain(figure.low, figure.high, predicted, guesses) or fallback

    def check(self, name: str, what: str, predicted: int, kept: tuple[Kept, ...], extra: int = 0) -> list[Finding]:
        """One figure; ``extra`` bytes beyond the prediction are allowed for (a page)."""
        figure = self.statement.figure(name)
        if figure is None:
            return []
        expected = Range(predicted, predicted + extra)
        if expected.meets(figure.low, figure.high):
            return check(self.statement, name, what, predicted if not extra or figure.covers(predicted) else expected)
        why = self.why(figure, predicted, kept)
        if add := self._missing(why):
            why = f"the prediction without it is {format_bytes(predicted)}: add {add}"
            return check(self.statement, name, what, None, why)
        return check(self.statement, name, what, expected, why)

    @property
    def type_said(self) -> bool:
        """Whether the line, the log or the command line names the cache's type."""
        given = self.settings.given
        said = self.load.setting("kv_cache_dtype") not in (None, "auto")
        return bool(self.statement.word("dtype")) or said or given.dtype is not None or bool(given.option("kv-cache-dtype"))

    def _missing(self, why: str) -> str:
        """What to add, where the likeliest reason is a thing that nothing has said."""
        ranks = self.settings.given.tp_size is not None or any(name in self.load.settings for name in TP_NAMES)
        if (match := _RANKS.match(why)) and not ranks:
            return match[1]
        if (match := _TYPE.match(why)) and not self.load.settings:
            return f"--dtype {match[1]}"
        return ""


def _no_shape(pool: _Pool, figures: dict[str, str]) -> list[Finding]:
    return [each for name, what in figures.items() for each in check(pool.statement, name, what, None, NO_SHAPE)]


_RANKS = re.compile(r"the line is one of \d{1,2} ranks': name them with (--tp \d{1,2})", re.ASCII)
_TYPE = re.compile(r"as if the type were (\w{1,20}),", re.ASCII)
PAGES = (1, 16, 32, 64, 128, 256)  # tokens of a page where the log doesn't say


def _sglang_pool(pool: _Pool) -> list[Finding]:
    names = {"k_gib": ("keys", "k"), "v_gib": ("values", "v"), "total_gib": ("keys and values", "kv")}
    tokens = pool.statement.count("tokens")
    if not pool.kept or tokens is None:
        return _no_shape(pool, {name: what for name, (what, _) in names.items()})
    kept, page = _sglang_layers(pool)
    if kept is None and any(_sglang_layers(other)[0] for other in pool.others("pool")):
        why = "another pool of the same start is the model's: this one is a draft model's, and its shape isn't known"
        return [
            each for name, (what, _) in names.items() for each in check(pool.statement, name, f"second pool, {what}", None, why)
        ]
    found: list[Finding] = []
    for name, (what, side) in names.items():
        each = pool.bytes_of(kept or pool.main, side)
        found += pool.check(name, f"pool of {tokens:,} tokens, {what}", tokens * each, kept or pool.main, page * each)
    if page > 1 and not pool.settings.number("page_size"):
        why = f"with one page of {page} tokens more, which the log doesn't state: -o page-size={page}"
        found = [replace(each, why=each.why or why) for each in found]
    return found


def _sglang_layers(pool: _Pool) -> tuple[tuple[Kept, ...] | None, int]:
    """A hybrid has a pool for its sliding layers and one for the others; a draft model has its own. And the page."""
    full = tuple(each for each in pool.main if each.kind == "full")
    window = tuple(each for each in pool.main if each.kind == "window")
    draft = tuple(each for each in pool.kept if each.draft)
    stated = pool.settings.number("page_size")
    for page in (stated,) if stated else PAGES:
        for group in (pool.main, full, window, draft):
            if group and all(_within(pool, name, side, group, page) for name, side in _SIDES.items()):
                return group, page
    return None, stated or 1


_SIDES = {"k_gib": "k", "v_gib": "v", "total_gib": "kv"}


def _within(pool: _Pool, name: str, side: str, group: tuple[Kept, ...], page: int) -> bool:
    """Whether so many tokens, and a page more, may be the figure; where it isn't printed, yes."""
    figure, tokens, each = pool.statement.figure(name), pool.statement.count("tokens") or 0, pool.bytes_of(group, side)
    return figure is None or (figure.low <= (tokens + page) * each and tokens * each <= figure.high)


def _sglang_swa(pool: _Pool) -> list[Finding]:
    swa, full = pool.statement.count("swa_tokens"), pool.statement.count("full_tokens")
    if not pool.kept or swa is None or full is None:
        return _no_shape(pool, {"total_gib": "both pools"})
    windows = tuple(each for each in pool.main if each.kind == "window")
    fulls = tuple(each for each in pool.main if each.kind == "full")
    predicted = swa * pool.bytes_of(windows) + full * pool.bytes_of(fulls)
    page = pool.settings.page_size * (pool.bytes_of(windows) + pool.bytes_of(fulls))
    return pool.check("total_gib", "both pools", predicted, pool.main, page)


def _sglang_state(pool: _Pool) -> list[Finding]:
    slots = pool.statement.count("slots")
    states = states_of(pool.model) if pool.model else ()
    if not states or slots is None:
        return _no_shape(pool, {"conv_gib": "convolution windows", "ssm_gib": "states"})
    found = []
    for name, what, index in (("conv_gib", "convolution windows", 0), ("ssm_gib", "states", 1)):
        elements = sum(each[index] for each in states) // pool.settings.tp_size
        figure = pool.statement.figure(name)
        widths = [
            Range((slots + extra) * elements * size, (slots + extra) * elements * size) for size in (2, 4) for extra in (0, 1)
        ]
        fitting = [each for each in widths if figure is not None and each.meets(figure.low, figure.high)]
        found += check(pool.statement, name, f"{what} of {slots:,} slots", (fitting or widths)[0])
    why = "they follow from the requests and the drafted tokens of a step, which the line doesn't state"
    return found + check(pool.statement, "intermediate_gib", "intermediate states of drafts", None, why)


def _paged(pool: _Pool) -> list[Finding]:
    tokens = pool.statement.count("tokens")
    if not pool.kept or tokens is None:
        return _no_shape(pool, {"total_gib": "paged cache", "total_bytes": "paged cache"})
    kept = pool.main
    found = pool.check("total_gib", f"paged cache of {tokens:,} tokens", tokens * pool.bytes_of(kept), kept)
    return found + pool.check("total_bytes", f"paged cache of {tokens:,} tokens", tokens * pool.bytes_of(kept), kept)


def _blocks(pool: _Pool) -> list[Finding]:
    """Blocks × tokens a block are the tokens that another line states; else a share of the free memory fills them."""
    blocks, size = pool.statement.count("blocks"), pool.settings.number("tokens_per_block")
    paged = next((each for each in pool.load.of_kind("paged", "bytes") if each.count("tokens")), None)
    if blocks is None:
        return []
    if paged is not None and size:
        predicted = round_up(paged.count("tokens") or 0, size) // size
        return check(pool.statement, "blocks", f"blocks of {size} tokens", predicted, "", "count", paged.line)
    free = next((each.figure("available_gib") for each in pool.load.of_kind("free")), None)
    if free is None:
        return []
    if not pool.kept or not size:
        why = NO_SHAPE if not pool.kept else "the log doesn't say how many tokens a block has: add -o tokens-per-block=…"
        return check(pool.statement, "blocks", "blocks", None, why, "count")
    return _filled(pool, free, size)


def _filled(pool: _Pool, free: Figure, size: int) -> list[Finding]:
    """As many blocks as the share of the free memory fills, the last one in part."""
    what, block = f"blocks of {size} tokens", size * pool.bytes_of(pool.main)
    low, high = (-(-FREE_SHARE * memory // block) for memory in (free.low, free.high))
    found = check(pool.statement, "blocks", what, Range(int(low), int(high)), "", "count")
    if all(each.verdict == "differs" for each in found):
        why = "the share of the free memory isn't stated: 0.9, the default, would fill other blocks"
        return check(pool.statement, "blocks", what, None, why, "count")
    return found


def _stated(pool: _Pool) -> list[Finding]:
    """A server without rules here: the figure stands, with the bytes of its tokens, or of its blocks."""
    name = {"tgi": "TGI (text-generation-inference)", "lmdeploy": "LMDeploy"}[pool.load.engine]
    line, why = pool.statement, f"there are no rules for {name}: the figure stands as stated"
    blocks, size, block = line.count("blocks"), line.count("block_size"), line.figure("block_mib")
    tokens = line.count("tokens") or (blocks * size if blocks and size else None)
    if tokens is not None and pool.kept:
        each = pool.bytes_of(pool.main)
        why += f"; {each:,} B a token make {format_bytes(tokens * each)}"
    elif blocks and block is not None:
        why += f"; blocks of {figure_text(block)} make about {format_bytes(blocks * block.value)}"
    found = check(line, "tokens", "tokens that fit", None, why, "count")
    return found + check(line, "blocks", f"blocks of {size} tokens" if size else "blocks", None, why, "count")


def _stored(pool: _Pool) -> list[Finding]:
    tokens = pool.statement.count("tokens")
    if not pool.kept or tokens is None:
        return _no_shape(pool, {"total_gib": "stored"})
    return pool.check("total_gib", f"{tokens:,} tokens stored", tokens * pool.bytes_of(pool.main), pool.main)


_RULES: dict[tuple[str, str], Callable[[_Pool], list[Finding]]] = {
    ("sglang", "pool"): _sglang_pool,
    ("sglang", "swa_pool"): _sglang_swa,
    ("sglang", "state"): _sglang_state,
    ("tensorrt-llm", "paged"): _paged,
    ("tensorrt-llm", "bytes"): _paged,
    ("tensorrt-llm", "blocks"): _blocks,
    ("lmcache", "stored"): _stored,
    ("tgi", "capacity"): _stated,
    ("lmdeploy", "capacity"): _stated,
}
