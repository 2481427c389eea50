"""SGLang, TensorRT-LLM and LMCache: lines that state tokens and bytes, so that bytes = tokens × bytes a token.

SGLang's buffers hold one page more than the pool's tokens (``mem_cache/memory_pool.py``); it prints GB and means GiB,
and so does LMCache. A rank holds its share of the heads, one at least, and the whole of a latent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvcalc.audit.explain import common_guesses, dtype_guesses, explain, layer_guesses
from kvcalc.audit.findings import Finding, Range, check
from kvcalc.audit.kept import Kept, kept_of, states_of
from kvcalc.audit.settings import Settings
from kvcalc.core.log_facts import Figure, Load, Statement
from kvcalc.core.model import Model
from kvcalc.dtypes import Dtype
from kvcalc.units import round_up

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
        guesses += dtype_guesses(self.dtype(), kept[0].keys) if kept else []
        ratio = figure.value / predicted if predicted else 0
        fallback = f"another model, or settings that the log doesn't state: the line is {ratio:.3g} times the prediction"
        return explain(figure.low, figure.high, predicted, guesses) or fallback

    def check(self, name: str, what: str, predicted: int, kept: tuple[Kept, ...], extra: int = 0) -> list[Finding]:
        """One figure; ``extra`` bytes beyond the prediction are allowed for (a page)."""
        figure = self.statement.figure(name)
        if figure is None:
            return []
        expected = Range(predicted, predicted + extra)
        why = "" if expected.meets(figure.low, figure.high) else self.why(figure, predicted, kept)
        return check(self.statement, name, what, predicted if not extra or figure.covers(predicted) else expected, why)


def _no_shape(pool: _Pool, figures: dict[str, str]) -> list[Finding]:
    return [each for name, what in figures.items() for each in check(pool.statement, name, what, None, NO_SHAPE)]


def _sglang_pool(pool: _Pool) -> list[Finding]:
    names = {"k_gib": "keys", "v_gib": "values", "total_gib": "keys and values"}
    tokens = pool.statement.count("tokens")
    if not pool.kept or tokens is None:
        return _no_shape(pool, names)
    kept = _sglang_layers(pool, tokens)
    sides = {"k_gib": "k", "v_gib": "v", "total_gib": "kv"}
    found = []
    for name, what in names.items():
        each = pool.bytes_of(kept, sides[name])
        found += pool.check(name, f"pool of {tokens:,} tokens, {what}", tokens * each, kept, pool.settings.page_size * each)
    return found


def _sglang_layers(pool: _Pool, tokens: int) -> tuple[Kept, ...]:
    """A hybrid has a pool for its sliding layers and one for the others; a draft model has its own."""
    full = tuple(each for each in pool.main if each.kind == "full")
    window = tuple(each for each in pool.main if each.kind == "window")
    draft = tuple(each for each in pool.kept if each.draft)
    figure = pool.statement.figure("k_gib") or pool.statement.figure("total_gib")
    side = "k" if pool.statement.figure("k_gib") else "kv"
    for group in (pool.main, full, window, draft):
        if group and figure is not None and figure.covers(tokens * pool.bytes_of(group, side)):
            return group
    return pool.main


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
    return found


def _paged(pool: _Pool) -> list[Finding]:
    tokens = pool.statement.count("tokens")
    if not pool.kept or tokens is None:
        return _no_shape(pool, {"total_gib": "paged cache", "total_bytes": "paged cache"})
    kept = pool.main
    found = pool.check("total_gib", f"paged cache of {tokens:,} tokens", tokens * pool.bytes_of(kept), kept)
    return found + pool.check("total_bytes", f"paged cache of {tokens:,} tokens", tokens * pool.bytes_of(kept), kept)


def _blocks(pool: _Pool) -> list[Finding]:
    """Blocks × tokens a block are the tokens that another line states."""
    blocks, size = pool.statement.count("blocks"), pool.settings.number("tokens_per_block")
    tokens = next((each.count("tokens") for each in pool.load.of_kind("paged", "bytes")), None)
    if blocks is None or not size or tokens is None:
        return []
    return check(pool.statement, "blocks", f"blocks of {size} tokens", round_up(tokens, size) // size, "", "count")


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
}
