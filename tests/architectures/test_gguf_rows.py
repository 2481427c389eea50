"""The two readers of a GGUF file's keys agree on what an architecture's name says; the engine's departures are named."""

from __future__ import annotations

import pytest

from kvcalc.architectures.gguf import ENCODER_NAMES, GGUF_ROWS, find_row
from kvcalc.engines.llamacpp.arches import ARCHES
from kvcalc.errors import ArchitectureError

EVERY_LAYER = frozenset({"deepseek4", "lfm2", "dflash"})  # their own rules say which
KEEPS_MORE = frozenset({"t5encoder"})  # an encoder, which gets a cache all the same


@pytest.mark.parametrize("name", sorted(ARCHES))
def test_both_say_which_layers_slide(name: str) -> None:
    row, window = GGUF_ROWS[name], ARCHES[name].window
    if name in EVERY_LAYER:
        return
    assert (row.period != 0) == (window is not None)
    if window is not None:
        assert row.period == (-1 if window.pattern is None else window.pattern)
        assert row.dense_first == window.dense_first


@pytest.mark.parametrize("name", sorted(ARCHES))
def test_both_say_which_layers_are_recurrent(name: str) -> None:
    row, arch = GGUF_ROWS[name], ARCHES[name]
    if arch.memory.startswith("hybrid"):
        assert row.linear == ("" if arch.recurrent == "both" else arch.recurrent)
        assert row.interval == arch.interval
    else:
        assert row.linear in ("", "empty")


def test_both_say_what_keeps_nothing() -> None:
    nothing = {name for name, arch in ARCHES.items() if arch.memory == "none" and not arch.beside}
    assert set(ENCODER_NAMES) - KEEPS_MORE == nothing


def test_a_name_that_is_not_known_is_refused() -> None:
    for name, why in (("clip", "vision projector"), ("nosuch", "'nosuch' is not known")):
        with pytest.raises(ArchitectureError, match=why):
            find_row(name, "file.gguf")
