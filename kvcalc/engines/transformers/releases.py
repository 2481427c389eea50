"""Which rules a release of transformers follows: the releases that were measured, and what changed between them.

A change is one row: the release that brought it, as far as it is known, and what it did. Releases between two measured
ones take the changes up to their own number, and the output says which those were.
"""

from __future__ import annotations

from kvcalc.engines.releases import Change, Releases, Rules

MEASURED = ("4.57.6", "5.24.0")
NEWEST = MEASURED[-1]


CHANGES: tuple[Change, ...] = (
    Change("latent_mla", "5.15.0", "MLA caches the latent and the rope part (before: keys and values of every head, expanded)"),
    Change("float32_states", "5.0.0", "Mamba states are float32 (before: the model's type, in most classes)"),
    Change("growing_windows", "5.0.0", "RecurrentGemma's windows grow with the tokens (before: allocated whole)"),
    Change("lean_hybrids", "5.0.0", "LFM2 keeps a convolution in its convolution layers only (before: in every layer)"),
    Change("model_type_keys", "5.0.0", "CTRL's keys follow the model's type (before: float32)"),
    Change("xlstm_offset", "5.0.0", "xLSTM keeps its sequence offset as a tensor"),
    Change("windows_alone", "5.0.0", "Gemma 3n keeps no more than its windows for the layers that share them"),
    Change("named_layers", "5.0.0", "Qwen2-MoE's layers slide by name (before: all of them, when windows are used)"),
    Change("static_states", "5.0.0", "models with recurrent states have a static cache"),
    Change("fp8_cache", "5.0.0", "the quantized cache has an fp8 backend"),
)
RELEASES = Releases("transformers", MEASURED, CHANGES)


def unmeasured(rules: Rules) -> tuple[str, ...]:
    """What a release between two measured ones takes, in words."""
    if rules.asked in MEASURED or rules.since(NEWEST):
        return ()
    said = [f"since {change.since}: {change.said}" for change in CHANGES if change.name in rules]
    missing = [f"not before {change.since}: {change.said}" for change in CHANGES if change.name not in rules]
    return (*said, *missing)
