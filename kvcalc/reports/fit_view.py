"""``fit``: the answer, what it rests on, what binds, and what would change it; as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kvcalc.core.model import Model
from kvcalc.core.search import CEILING
from kvcalc.engines.base import Engine, Plan
from kvcalc.engines.fit import (
    BATCH,
    BOTH,
    ENGINE,
    OPTION,
    SAMPLE,
    SEARCH,
    TOKENS,
    Change,
    Fit,
    Frontier,
    Memory,
    budget_of,
    running_note,
    terms,
)
from kvcalc.reports.to_json import Document, document, model_part, number, plan_part
from kvcalc.reports.to_table import plain_table
from kvcalc.units import ceil_div, format_bytes

MOST_TERMS = 4
MOST_CHANGES = 6


def fit_view(found: Fit) -> RenderableType:
    """The whole answer."""
    parts: list[RenderableType] = [_headline(found), ""]
    parts += [_room_table(found.plan, found.memory, found), ""]
    parts += [_binding_line(found)]
    parts += [Text.assemble((f"{label}: ", "bold"), text) for label, text in _remarks(found)]
    if found.changes:
        parts += ["", _changes_table(found.changes)]
    return Group(*parts)


def _headline(found: Fit) -> Text:
    text = Text()
    text.append(f"{found.model.name}: ", style="bold")
    text.append(answer_words(found), style=_colour(found))
    text.append(f" ({_whose(found.plan)})")
    return text


def _whose(plan: Plan) -> str:
    release = f" {plan.rules.said}" if plan.engine.releases.versioned else ""
    ranks = f", on each of {plan.ranks} ranks" if plan.ranks and plan.ranks > 1 else ""
    return f"engine: {plan.engine.name}{release}{ranks}"


def _colour(found: Fit) -> str:
    """Never green while the answer rests on an interval."""
    if found.certain:
        return "bold green" if found.fits else "bold red"
    return "bold yellow" if found.may_fit else "bold red"


def answer_words(found: Fit) -> str:
    """The answer in one clause; two ends where it rests on an interval."""
    most = found.at_most
    if most is None or not most.fits:
        return _one_answer(found)
    if found.memory.other is not None and found.memory.other.high is None:
        return f"{_one_answer(most)}, less what {found.engine.name} takes besides"
    if found.fits and found.searched == TOKENS and found.tokens < most.tokens:
        return f"at least {found.tokens:,}, at most {_count(most.tokens, 'token')} for {_sequences(found.batch_size)}"
    if found.fits and found.searched in (BATCH, SAMPLE) and found.batch_size < most.batch_size:
        return f"at least {found.batch_size:,}, at most {_sequences(most.batch_size)} of {_count(found.tokens, 'token')}"
    return _one_answer(found) if found.fits else f"perhaps: {_one_answer(most)}"


def _one_answer(found: Fit) -> str:
    tokens, batch = _count(found.tokens, "token"), _sequences(found.batch_size)
    if not found.fits:
        asked = {TOKENS: f"not one token for {batch}", BATCH: f"not one sequence of {tokens}"}.get(
            found.searched, f"{batch} of {tokens} {'does' if found.batch_size == 1 else 'do'} not fit"
        )
        if found.searched == SAMPLE:
            asked = f"not one of {_sequences(len(found.request.lengths))} fits"
        if not found.shortfall:
            return f"{asked}: {found.limit}"
        verb = "is" if found.shortfall == 1 else "are"
        return f"{asked}: {_count(found.shortfall, 'byte')} ({format_bytes(found.shortfall)}) {verb} missing"
    if found.searched == SAMPLE:
        return f"the first {found.batch_size:,} of {_sequences(len(found.request.lengths))} fit at once"
    if found.limited_by == SEARCH:
        return f"{batch} of {tokens}, and more than is searched"
    if found.unbounded and found.searched == BATCH:
        return f"any number of sequences of {tokens}"
    if found.unbounded:
        return f"any length for {batch}"
    verb = "fits" if found.batch_size == 1 else "fit"
    if found.searched == BOTH:
        return f"{batch} of {tokens} {verb}"
    return f"at most {batch} of {tokens}{_LIMITS.get(found.limited_by, '')}"


_LIMITS = {ENGINE: ": the engine's limit", OPTION: ": the limit of an option"}


def _sequences(count: int) -> str:
    return _count(count, "sequence")


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _room_table(plan: Plan, memory: Memory, found: Fit | None = None) -> Table:
    budget, held_back, ranks = budget_of(plan, memory), plan.held_back, plan.ranks or 1
    table = plain_table("", "bytes", "", "", right=(1, 2), spare=(1,))
    table.show_header = False
    table.add_row("memory", f"{memory.device_bytes:,}", format_bytes(memory.device_bytes), memory.origin)
    if memory.utilization != 1:
        share = f"{float(memory.utilization):g} of it"
        rest = " that the weights leave" if plan.engine.memory.share_of_rest else ""
        table.add_row("share", "", share, f"{memory.utilization_origin}{rest}")
    if memory.weights:
        of = f"; a rank of {ranks} holds its part" if ranks > 1 else ""
        if memory.expert_weights:
            part = format_bytes(memory.weights_of_rank(ranks))
            of = f"; each rank holds {part}, since the {memory.expert_copies} copies share the routed experts"
        table.add_row("weights", f"{memory.weights:,}", format_bytes(memory.weights), memory.weights_origin + of)
    if memory.overhead:
        table.add_row("overhead", f"{memory.overhead:,}", format_bytes(memory.overhead), "flag --overhead")
    if memory.other is not None:
        counted = f"{memory.other_bytes:,}" if memory.other_bytes else ""
        table.add_row("what else", counted, memory.other.said, memory.other.basis)
    if held_back:
        table.add_row("held back", f"{held_back:,}", format_bytes(held_back), f"{plan.engine.name} gives it to no sequence")
    table.add_row("for the cache", f"{budget:,}", format_bytes(budget), "of each rank" if ranks > 1 else "")
    if found is not None:
        _cache_rows(table, found)
    return table


def _cache_rows(table: Table, found: Fit) -> None:
    add = table.add_row
    add("taken" if found.fits else "the least", f"{found.total_bytes:,}", format_bytes(found.total_bytes), "")
    if found.need_bytes > found.total_bytes:
        more = found.need_bytes - found.total_bytes
        if found.limited_by == "option" and not found.fits:
            add("left out", f"{more:,}", format_bytes(more), "asked for, but beyond an option's limit")
        else:
            add("held besides", f"{more:,}", format_bytes(more), "what the engine keeps, or wants free, beyond that")
    if found.fits:
        left = found.budget_bytes - found.need_bytes
        add("left over", f"{left:,}", format_bytes(left), "")


def _binding_line(found: Fit) -> Text:
    sizes = terms(found.tally)
    total = sum(sizes.values()) or 1
    shares = [f"{name.replace('_', ' ')} {100 * size / total:.0f}%" for name, size in list(sizes.items())[:MOST_TERMS]]
    text = Text.assemble(("bound by: ", "bold"), found.limit)
    if shares:
        text.append(f"; the cache is {', '.join(shares)}")
    return text


def _remarks(found: Fit) -> Iterable[tuple[str, str]]:
    if found.gap is not None:
        yield "note", f"its bytes do not only grow: {found.gap:,} does not fit, {found.tokens:,} does"
    alone = found.memory.cache_alone
    if not found.memory.weights and not alone:
        yield "note", "no weights are counted: give --weights (a size, or auto)"
    share, origin = found.engine.share(found.request.options)
    if found.memory.utilization == 1 and share != "1" and not alone:
        yield (
            "note",
            f"{found.engine.name} takes {share} of a card ({origin}): --utilization",
        )
    if found.memory.other is not None and found.memory.other.advice:
        yield "note", found.memory.other.advice
    if too_large := weights_alone(found.plan, found.memory):
        yield "warning", too_large
    for note in found.notes:
        yield "note", note
    yield "not counted", not_counted(found.engine, found.memory)
    for warning in found.warnings:
        yield "warning", warning


def weights_alone(plan: Plan, memory: Memory) -> str:
    """That the weights have no room, whatever the cache, and what would help; nothing where they have."""
    share = memory.weights_of_rank(plan.ranks or 1)
    room = floor(memory.device_bytes * memory.utilization)
    if share <= room:
        return ""
    whose = "each rank's part of the weights" if (plan.ranks or 1) > 1 else "the weights"
    ranks = ceil_div(memory.weights, max(room, 1))
    return (
        f"{whose} alone ({format_bytes(share)}) exceed the {format_bytes(room)} that {plan.engine.name} may use: take a narrower"
        f" format (--weights q4_k_m, --weights fp8), or at least {ranks} cards that share them"
    )


def not_counted(engine: Engine, memory: Memory | None) -> str:
    """What the figures leave out, but for what an interval holds."""
    other = memory.other if memory is not None else None
    covered = ("activations and workspace", "CUDA graphs") if other is not None and other.high is not None else ()
    return "; ".join(item for item in engine.excluded if item not in ("weights", *covered))


def _changes_table(changes: Iterable[Change]) -> RenderableType:
    table = plain_table("what would change it", "to at most", "", right=(1,))
    for change in list(changes)[:MOST_CHANGES]:
        table.add_row(change.text, f"{change.value:,}", change.unit)
    return table


def fit_document(found: Fit) -> Document:
    """The same as JSON."""
    sample: Document = {"lengths": len(found.request.lengths)} if found.searched == SAMPLE else {}
    return document(
        "fit",
        engine=plan_part(found.plan),
        model=model_part(found.model),
        searched=found.searched,
        fits=found.fits,
        tokens=found.tokens if found.fits or found.searched != TOKENS else 0,
        batch_size=found.batch_size,
        **sample,
        **_memory_part(found.plan, found.memory),
        total_bytes=found.total_bytes,
        needed_bytes=found.need_bytes,
        shortfall_bytes=found.shortfall,
        binding=found.binding,
        limit=found.limit,
        limited_by=found.limited_by,
        terms=terms(found.tally),
        unbounded=found.unbounded,
        gap=found.gap,
        certain=found.certain,
        may_fit=found.may_fit,
        at_most=_at_most(found),
        weights_alone=weights_alone(found.plan, found.memory) or None,
        changes=[{"change": change.text, "value": change.value, "unit": change.unit} for change in found.changes],
        excluded=list(found.engine.excluded),
        warnings=list(found.warnings),
        notes=list(found.notes),
    )


def _at_most(found: Fit) -> Document | None:
    """The answer where the engine takes the least that it may."""
    most = found.at_most
    if most is None:
        return None
    return {
        "fits": most.fits,
        "tokens": most.tokens if most.fits or most.searched != TOKENS else 0,
        "batch_size": most.batch_size,
    }


def _other_part(memory: Memory) -> Document:
    other = memory.other
    if other is None:
        given = "flag --overhead" if memory.overhead else "none: the memory that is named holds weights and cache alone"
        return {"other_low_bytes": memory.overhead, "other_high_bytes": memory.overhead, "other_basis": given}
    return {"other_low_bytes": other.low, "other_high_bytes": other.high, "other_basis": other.basis}


def _memory_part(plan: Plan, memory: Memory) -> Document:
    return {
        "memory_bytes": memory.device_bytes,
        "memory_origin": memory.origin,
        "weights_bytes": memory.weights,
        "weights_origin": memory.weights_origin,
        "overhead_bytes": memory.overhead,
        **_other_part(memory),
        "utilization": number(memory.utilization),
        "ranks": plan.ranks or 1,
        "held_back_bytes": plan.held_back,
        "budget_bytes": budget_of(plan, memory),
    }


def frontier_view(memory: Memory, found: Frontier) -> RenderableType:
    """Pairs of batch and length that just fit."""
    model = found.plan.model
    head = Text.assemble((model.name, "bold"), f" ({_whose(found.plan)})")
    table = plain_table("sequences", "tokens each", "tokens in all", "bytes", "", right=(0, 1, 2, 3, 4), spare=(3,))
    rows = found.rows
    for batch, tokens, size in rows:
        beyond = "+" if tokens == CEILING else "*" if _beyond(model, tokens) else ""
        table.add_row(f"{batch:,}", f"{tokens:,}{beyond}", f"{batch * tokens:,}", f"{size:,}", format_bytes(size))
    shown = table if rows else Text("not even one sequence of one token fits", style="bold red")
    lines = ["+ and more than is searched"] if any(tokens == CEILING for _, tokens, _ in rows) else []
    lines += ["* beyond the model's own maximum"] if any(_beyond(model, tokens) for _, tokens, _ in rows) else []
    lines += [f"more sequences: {found.limit}"] if found.limit != "memory" else []
    lines += frontier_notes(found)
    return Group(head, "", _room_table(found.plan, memory), "", shown, *map(Text, lines))


def frontier_notes(found: Frontier) -> list[str]:
    """How many of the most sequences run at once, and what the rules have to say."""
    note = running_note(found.plan, found.rows[-1][0]) if found.rows else ""
    return [text for text in (note, found.plan.rules.warning, found.plan.serving.unchecked) if text]


def _beyond(model: Model, tokens: int) -> bool:
    return model.max_tokens is not None and CEILING > tokens > model.max_tokens


def frontier_document(memory: Memory, found: Frontier) -> Document:
    """The same as JSON."""
    return document(
        "fit",
        engine=plan_part(found.plan),
        model=model_part(found.plan.model),
        searched="frontier",
        fits=bool(found.rows),
        **_memory_part(found.plan, memory),
        frontier=[{"batch_size": batch, "tokens": tokens, "needed_bytes": size} for batch, tokens, size in found.rows],
        limit=found.limit,
        notes=frontier_notes(found),
    )
