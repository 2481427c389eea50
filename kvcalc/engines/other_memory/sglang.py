"""SGLang: what its start leaves unaccounted for beside weights and pools.

Its memory is ``free before loading · mem-fraction-static − weights``: the share is taken of what was free, and CUDA's own
context is no part of that. The rest of the interval is what four public starts could not explain (0.03 to 0.60 GB). Where a
draft model, hybrid states or a multimodal reserve are held the public starts show more, without a rule: those are not covered.
"""

from __future__ import annotations

from kvcalc.engines.other_memory.facts import Facts, Other, gib, not_covered

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
