"""SGLang: what its start leaves unaccounted for beside weights and pools.

Its memory is ``free before loading · mem-fraction-static − weights``: the share is taken of what was free, and CUDA's own
context is no part of that. The rest of the interval is what four public starts could not explain (0.03 to 0.60 GB). Where a
draft model, hybrid states or a multimodal reserve are held the public starts show more, without a rule: those are not covered.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcalc.engines.other_memory.facts import Facts, Other, gib, not_covered
from kvcalc.values import value

CONTEXT = (0.35, 0.8)  # GiB: total less what is free before loading (0.40 L40S, 0.43 RTX 4090, 0.71 to 0.75 H100)
UNEXPLAINED = (0.03, 0.6)


def other(facts: Facts) -> Other:
    """The interval for one rank's card."""
    if not facts.card.cuda or facts.card.unified:
        return not_covered("SGLang on a card other than NVIDIA's discrete ones")
    if facts.sizes.multimodal:
        return not_covered("SGLang's reserve for multimodal models", CONTEXT[0])
    basis = "SGLang takes its share of what is free before loading; the remainders of 4 public starts"
    return gib(CONTEXT[0] + UNEXPLAINED[0], CONTEXT[1] + UNEXPLAINED[1], basis)


@value
class CardClass:
    """What the server takes where it is unsaid, for cards below so many GiB by the driver's count."""

    below: int
    chunk: int  # chunked-prefill-size
    graphs: int  # the largest batch of decode graphs below 4 tensor-parallel ranks
    graphs_of_4: int  # … and from 4 on


CLASSES = (CardClass(20, 2048, 8, 8), CardClass(35, 4096, 48, 160), CardClass(60, 4096, 32, 160), CardClass(160, 8192, 256, 512))
LARGEST = CardClass(0, 16384, 512, 512)
_GIB_IN_MIB = 1024


def share(facts: Facts) -> tuple[str, str] | None:
    """mem-fraction-static as the server works it out (srt/arg_groups/memory_hook.py); None where it goes by more than the card.

    (card − 512 − 1.5 · tokens of a prefill step − tp · pp / 8 · 1,024 − graphs) / card, in MiB as the driver counts, and above
    60 GiB at least 10 GiB held back.
    """
    if facts.card.driver_bytes is None or not facts.card.cuda or facts.sizes.multimodal:
        return None
    card, request = facts.card.driver_bytes // 2**20, facts.request
    usual = next((each for each in CLASSES if card < each.below * _GIB_IN_MIB), LARGEST)
    chunk = facts.number("chunked-prefill-size", usual.chunk)
    if chunk <= 0:
        return None  # whole prompts: it goes by max-prefill-tokens
    reserved = 512 + 1.5 * max(chunk, 2048) + request.tp_size * request.pp_size / 8 * 1024 + _graphs(facts, usual, chunk)
    if card > 60 * _GIB_IN_MIB:
        reserved = max(reserved, 10 * 1024)
    return str(round((card - reserved) / card, 3)), f"mem-fraction-static as SGLang works it out for {card:,} MiB"


def _graphs(facts: Facts, usual: CardClass, chunk: int) -> float:
    """MiB for CUDA graphs: 2 a sequence of the largest decode batch, 8 a size of prefill, or 1,536 of a latent's backends."""
    largest = usual.graphs if facts.request.tp_size < 4 else usual.graphs_of_4
    decode = min(largest, facts.number("max-running-requests", largest))
    return 2 * decode + (1536 if facts.sizes.latent else 8 * sum(size <= chunk for size in _prefill_sizes(chunk)))


def _prefill_sizes(most: int) -> Iterator[int]:
    for first, last, step in ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, most, 512)):
        yield from range(first, last + 1, step)
