"""Rules of decoders beside an encoder, and of encoders that can be run as decoders."""

from __future__ import annotations

from kvcalc.architectures import parts
from kvcalc.architectures.base import Rule
from kvcalc.core.fields import Fields
from kvcalc.core.layers import CrossAttention, Layer
from kvcalc.errors import ArchitectureError


def crossed(rule: Rule) -> Rule:
    """Every layer of ``rule``, and the encoder's keys and values of the layer's own heads beside it."""

    def with_encoder(fields: Fields) -> tuple[Layer, ...]:
        return tuple(layer + parts.cross(fields, index) for index, layer in enumerate(rule(fields)))

    return with_encoder


def crossed_if_added(rule: Rule) -> Rule:
    """The encoder's keys and values where ``add_cross_attention`` says so."""
    with_encoder = crossed(rule)
    return lambda fields: (with_encoder if fields.flag("add_cross_attention") else rule)(fields)


def as_decoder(rule: Rule) -> Rule:
    """BERT and its kin: a cache only where ``is_decoder`` turns the encoder into a decoder. Raises ArchitectureError."""
    added = crossed_if_added(rule)

    def only(fields: Fields) -> tuple[Layer, ...]:
        if not fields.flag("is_decoder"):
            raise ArchitectureError(
                "an encoder keeps no cache: is_decoder is not true",
                fields.where,
                "name a decoder, or set is_decoder if the model is run as one",
            )
        return added(fields)

    return only


def own_cross_heads(rule: Rule) -> Rule:
    """Dia: the encoder's keys have a head count and width of their own."""

    def with_encoder(fields: Fields) -> tuple[Layer, ...]:
        heads, width = fields.int_of(("cross_num_key_value_heads", "num_kv_heads")), fields.int_of(("cross_head_dim", "head_dim"))
        cross = CrossAttention(heads, width, width, fields.int("cross_num_attention_heads", 0, minimum=0))
        return tuple((*layer, cross) for layer in rule(fields))

    return with_encoder
