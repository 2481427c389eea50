"""vLLM's releases, and what changed in each as far as the cache goes."""

from __future__ import annotations

from kvcalc.engines.releases import Change, Releases

CHANGES: tuple[Change, ...] = (
    Change("flashinfer_required", "0.11.1", "FlashInfer is installed with the wheel"),
    Change(
        "gdn_checkpoints",
        "0.33.0",
        "gated delta nets (Qwen3-Next, Qwen3.5) keep a third state block for a prefill's checkpoint, and their blocks are"
        " multiples of 64 tokens",
    ),
    Change("own_16_bit", "0.33.0", "a cache in float16 or bfloat16 other than the model's own type is refused"),
)
RELEASES = Releases("vLLM", ("0.32.0", "0.33.0"), CHANGES)
