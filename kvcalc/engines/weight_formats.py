"""The same model's weights in another format: an estimate by the format's own rules, tensor group by tensor group.

A format keeps three groups apart: the embedding table, the output head (the same tensor where they are tied) and the body, which
is every matrix of every layer. Formats for servers quantise the body alone; GGUF types quantise all three, the head in 6 bits,
and the ``_M`` mixes keep value and down projections of half the layers in a wider type (llama.cpp: src/llama-quant.cpp,
``use_more_bits``). Norms, biases and routers are counted as body: they are a thousandth of it.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from kvcalc.core.layers import FullAttention, Layer, SlidingAttention
from kvcalc.core.model import Model
from kvcalc.engines.other_memory.sizes import sizes_of
from kvcalc.errors import UsageError
from kvcalc.values import value

Bits = Fraction
SIXTEEN, Q4, Q5, Q6, Q8 = Bits(16), Bits("4.5"), Bits("5.5"), Bits("6.5625"), Bits("8.5")


@value
class Format:
    """Bits an element: of the body, of its value and down projections in half the layers, of embeddings, of the head."""

    body: Bits
    wide: Bits
    embeddings: Bits
    head: Bits
    said: str


def _server(body: Bits, said: str) -> Format:
    return Format(body, body, SIXTEEN, SIXTEEN, said)


def _gguf(body: Bits, wide: Bits | None = None, head: Bits = Q6) -> Format:
    return Format(body, wide or body, body, head, "llama.cpp's types")


FORMATS: dict[str, Format] = {
    "bf16": _server(SIXTEEN, "16 bits"),
    "fp16": _server(SIXTEEN, "16 bits"),
    "fp8": _server(8 + Bits(32, 128 * 128), "8 bits, and a float32 scale for 128 x 128 elements"),
    "int8": _server(Bits(8), "8 bits"),
    "awq": _server(4 + Bits(20, 128), "4 bits in groups of 128, with a scale and a zero point"),
    "gptq": _server(4 + Bits(20, 128), "4 bits in groups of 128, with a scale and a zero point"),
    "nvfp4": _server(4 + Bits(8, 16), "4 bits, and an 8-bit scale for 16 elements"),
    "mxfp4": _server(4 + Bits(8, 32), "4 bits, and an 8-bit scale for 32 elements"),
    "q8_0": _gguf(Q8, head=Q8),
    "q6_k": _gguf(Q6),
    "q5_k_m": _gguf(Q5, Q6),
    "q5_k_s": _gguf(Q5),
    "q4_k_m": _gguf(Q4, Q6),
    "q4_0": _gguf(Q4),
}


def bytes_in_format(name: str, parameters: int, model: Model) -> tuple[int, str]:
    """(bytes, how they were reckoned) of so many parameters. Raises UsageError for a format that is not known."""
    form = FORMATS.get(name.strip().lower().replace("-", "_"))
    if form is None:
        raise UsageError(f"--weights {name[:40]!r} is neither a size, auto nor a format", fix=f"formats: {', '.join(FORMATS)}")
    table, tied = _table(model)
    head = 0 if tied else table
    body = max(parameters - table - head, 0)
    shared = form.head if tied else form.embeddings  # a tied table is the head, and stored as one
    share = Bits(1, 2) * _wide_share(model, body)
    mixed = form.body + share * (form.wide - form.body)
    bits = body * mixed + table * shared + head * form.head
    known = "" if table else "; the file names no vocabulary, so embeddings count like the rest"
    return ceil(bits / 8), f"estimated: {parameters:,} parameters in {name.lower()} ({form.said}){known}"


def _table(model: Model) -> tuple[int, bool]:
    """Elements of the embedding table, and whether the head is the same tensor."""
    sizes = sizes_of(model)
    return (sizes.vocabulary or 0) * (sizes.hidden or 0), sizes.tied


USUAL_SHARE = Bits(31, 100)  # of Llama's layers: (4,096 · 1,024 + 4,096 · 14,336) / 218,112,000 = 0.29, Llama 2's 0.306


def _wide_share(model: Model, body: int) -> Fraction:
    """Of the body: the down projections (a third of a gated block) and the value projections."""
    sizes = sizes_of(model)
    attention = sum(_attention(layer, sizes.hidden or 0) for layer in model.layers)
    values = sum(_values(layer, sizes.hidden or 0) for layer in model.layers)
    if not body or not attention or attention >= body:
        return USUAL_SHARE
    return (Fraction(body - attention, 3) + values) / body


def _attention(layer: Layer, hidden: int) -> int:
    """Query and output projections, and one each for keys and values."""
    parts = [part for part in layer if isinstance(part, FullAttention | SlidingAttention)]
    return sum(hidden * part.head_dim * (2 * part.num_heads + 2 * part.num_kv_heads) for part in parts)


def _values(layer: Layer, hidden: int) -> int:
    parts = [part for part in layer if isinstance(part, FullAttention | SlidingAttention)]
    return sum(hidden * part.head_dim * part.num_kv_heads for part in parts)
