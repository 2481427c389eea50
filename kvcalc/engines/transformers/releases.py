"""Which rules a release of transformers follows: the releases that were measured, and what changed between them.

A change is one row: the release that brought it, as far as it is known, and what it did. Releases between two measured
ones take the changes up to their own number, and the output says which those were.
"""

from __future__ import annotations

from kvcalc.errors import EngineError, UsageError
from kvcalc.values import value

MEASURED = ("4.57.6", "5.24.0")
NEWEST = MEASURED[-1]


@value
class Change:
    """From ``since`` on, ``name`` holds. ``said`` is for people."""

    name: str
    since: str
    said: str


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


@value
class Release:
    """A release's number and the names of the changes that it has."""

    name: str
    has: frozenset[str]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def newest_major(self) -> bool:
        """Whether it is of the line that is measured last."""
        return _number(self.name)[0] >= _number(NEWEST)[0]


def _number(text: str) -> tuple[int, ...]:
    parts = text.strip().removeprefix("v").split(".")
    if not 1 < len(parts) <= 4 or not all(part.isascii() and part.isdigit() and len(part) < 6 for part in parts[:3]):
        raise UsageError(f"-o release={text[:40]} is no release number", fix=f"write it like {NEWEST}")
    return tuple(int(part) for part in parts[:3])


def find_release(text: str) -> Release:
    """The rules of one release. Raises UsageError on a malformed number, EngineError on one older than is known."""
    number = _number(text)
    if number < _number(MEASURED[0]):
        raise EngineError(
            f"the rules of transformers {text} are not known", "-o release", f"the oldest measured release is {MEASURED[0]}"
        )
    has = tuple(change for change in CHANGES if number >= _number(change.since))
    name = text.strip().removeprefix("v")
    names = frozenset(change.name for change in has)
    if name in MEASURED:
        return Release(name, names)
    if number > _number(NEWEST):
        return Release(
            name, names, (f"transformers {name} is newer than {NEWEST}, the newest that was measured: its rules are taken",)
        )
    said = [f"since {change.since}: {change.said}" for change in has]
    missing = [f"not before {change.since}: {change.said}" for change in CHANGES if change not in has]
    note = f"transformers {name} was not measured; it takes the rules between {MEASURED[0]} and {NEWEST}"
    return Release(name, names, (), (note, *said, *missing))
