"""llama.cpp: the compute buffer of its graph (ggml's allocator), for models of attention alone under flash attention.

    mask + max(head, feed-forward)
    head = 4 · ubatch · (vocabulary + hidden)
    feed-forward = 4 · ubatch · (3 · wide + 4 · hidden)

``mask`` is 2 · ubatch · cells. Public logs: 258.50 MiB of a Llama-3-8B is the head to the byte; of measured plans 77 % lie
within 5 % and the rest up to 38 % beside. CUDA's own context comes on top, and is no part of it.
"""

from __future__ import annotations

from kvcalc.engines.other_memory.facts import GIB, Facts, Other, gib, not_covered

UBATCH = 512
SPREAD = (0.9, 1.1)
CELLS = (0, 131_072)


def other(facts: Facts) -> Other:
    """The interval for the card that computes."""
    sizes = facts.sizes
    if not sizes.attention_only or sizes.latent or sizes.hidden is None or sizes.vocabulary is None:
        return not_covered("llama.cpp's compute buffer of a model other than plain attention, or of an unknown vocabulary")
    ubatch = facts.number("ubatch-size", UBATCH)
    head = 4 * ubatch * (sizes.vocabulary + sizes.hidden)
    wide = 4 * ubatch * (3 * (sizes.intermediate or 0) + 4 * sizes.hidden)
    low, high = (times * (max(head, wide) + 2 * ubatch * cells) / GIB for times, cells in zip(SPREAD, CELLS, strict=True))
    return gib(low, high, f"llama.cpp's compute buffer for {ubatch} tokens a step and {sizes.vocabulary:,} words, ± 10 %")
