"""The shape of a row in the table of architectures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from kvcalc.core.fields import Fields
from kvcalc.core.layers import Layer
from kvcalc.values import value

Rule = Callable[[Fields], tuple[Layer, ...]]


@value
class Architecture:
    """One model type: the rule from fields to layers, and what its files call things.

    ``aliases`` maps a neutral name to the keys that this type's files may use for it, first come first served, besides
    the common ones. ``constants`` are fields that the type fixes by its code, whatever its file says or leaves out.
    ``defaults`` names the row of class defaults to use where it isn't the type's own (remote-code types).
    """

    rule: Rule
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    constants: Mapping[str, object] = field(default_factory=dict)
    defaults: str = ""
    own_defaults: Mapping[str, object] = field(default_factory=dict)  # what its class declares, where no row of those exists
    over_nested: bool = False  # the rule reads the nested decoder's fields: a parent that gives its decoder an encoder
    gguf: tuple[str, ...] = ()  # the names that GGUF files use for it
    encoder_tokens: str = ""  # the field that fixes the encoder's length (Whisper: max_source_positions)
    notes: tuple[str, ...] = ()
