"""Looped models: some layers run several times, and each run keeps a cache of its own."""

from __future__ import annotations

from kvcalc.architectures.base import Rule
from kvcalc.architectures.patterns import FULL, SLIDING, named
from kvcalc.architectures.rules import ATTENTION, build, depth, times
from kvcalc.core.fields import Field, Fields
from kvcalc.core.layers import Layer
from kvcalc.errors import ConfigError


def again(layers: tuple[Layer, ...], start: int, end: int, passes: int, at: str) -> tuple[Layer, ...]:
    """The layers, and those from ``start`` to ``end`` once more for every pass after the first. Raises ConfigError."""
    if not 0 <= start <= end <= len(layers):
        raise ConfigError(f"the loop from layer {start} to {end} does not lie within {len(layers)} layers", at)
    return layers + times(layers[start:end], passes - 1, at)


def cycles(rule: Rule) -> Rule:
    """HRM-Text: a slow and a fast stack in turn, H_cycles · (L_cycles + 1) runs of ``num_layers`` layers each.

    A file that the library wrote gives the whole number as its depth, and a stack's as ``num_layers_per_stack``.
    """

    def looped(fields: Fields) -> tuple[Layer, ...]:
        if fields.int_or_none("num_layers_per_stack"):
            return rule(fields)
        return times(rule(fields), fields.int("H_cycles", 2) * (fields.int("L_cycles", 3) + 1), fields.at("H_cycles"))

    return looped


def looped_core(rule: Rule) -> Rule:
    """Inkling 2 Loop: layers ``loop_layer_index_start`` to ``_end`` run ``loop_num_passes`` times."""

    def looped(fields: Fields) -> tuple[Layer, ...]:
        own = fields.mapping("loop_config")
        start = own.int("core_start", fields.int("loop_layer_index_start", 6, minimum=0), minimum=0)
        end = own.int("core_end", fields.int("loop_layer_index_end", 18, minimum=0), minimum=0)
        passes = own.int("num_passes", fields.int("loop_num_passes", 3))
        return again(rule(fields), start, end, passes, fields.where)

    return looped


def dory(fields: Fields) -> tuple[Layer, ...]:
    """Dory: input, recurrent and output layers; the recurrent ones keep a cache a loop, or the last loop's alone.

    Its published files list attention and MLP blocks apart, two a layer.
    """
    words = fields.texts("layer_types")
    blocks = 2 if words and "mlp" in words else 1
    count = depth(fields) // blocks
    if words and blocks == 2:
        fields = fields.with_values({"layer_types": Field(words[::2], fields.at("layer_types"))})
    kinds = named(fields, count) or [FULL if (index + 1) % 4 == 0 else SLIDING for index in range(count)]
    layers = build(fields, kinds, ATTENTION)
    if fields.text("recurrent_kv_cache_mode", "per_loop") == "last_loop":
        return layers
    start = fields.int("n_input_layers", 8, minimum=0) // blocks
    last = fields.int("n_output_layers", 8, minimum=0) // blocks
    recurrent = fields.int_or_none("n_recurrent_layers", minimum=0)
    end = count - last if recurrent is None else start + recurrent // blocks
    return again(layers, start, end, fields.int("n_recurrent_loops", 2), fields.where)
