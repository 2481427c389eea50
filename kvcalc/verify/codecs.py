"""How numbers become stored rows and numbers again, for every type that a cache can be made of.

A codec takes ``[heads, n, width]`` float32 and gives what a ``RowCache`` stores. How far a number may be from itself after the
way there and back follows from the format, and is written down apart from the codecs, with the reference.

All numbers that verify makes lie in [-LIMIT, LIMIT] and are exact in the plain types, so those lose nothing.
int8 and int4 take one fixed scale, LIMIT over their largest integer, that belongs to the layer as a calibrated scale
does, not to the cache: a row is its integers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kvcalc.dtypes import Dtype
from kvcalc.errors import DtypeError
from kvcalc.verify import ggml_blocks
from kvcalc.verify.caches.base import RowShape

LIMIT = 1.75  # the largest number that verify makes; exact in every plain type

PLAIN = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FP8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


class Codec(Protocol):
    """One element type."""

    @property
    def name(self) -> str:
        """Say what ``--dtype`` calls it."""

    def shape(self, heads: int, width: int) -> RowShape:
        """Say what one stored row is. Raises DtypeError where the type's blocks don't fill a row."""

    def encode(self, values: Tensor) -> Tensor:
        """Turn ``[heads, n, width]`` float32 into stored rows."""

    def decode(self, rows: Tensor, heads: int) -> Tensor:
        """Turn stored rows into ``[heads, n, width]`` float32."""


@dataclass(frozen=True, slots=True)
class PlainCodec:
    """float32, bfloat16, float16: stored as they are."""

    name: str

    def shape(self, heads: int, width: int) -> RowShape:
        """The numbers themselves."""
        return RowShape(heads, width, PLAIN[self.name])

    def encode(self, values: Tensor) -> Tensor:
        """Convert."""
        return values.to(PLAIN[self.name])

    def decode(self, rows: Tensor, heads: int) -> Tensor:  # noqa: ARG002 - part of the protocol
        """Convert back."""
        return rows.to(torch.float32)


@dataclass(frozen=True, slots=True)
class Fp8Codec:
    """fp8 with a scale of one. Kept as bytes: few operations know the type."""

    name: str

    def shape(self, heads: int, width: int) -> RowShape:
        """A byte a number."""
        return RowShape(heads, width, torch.uint8)

    def encode(self, values: Tensor) -> Tensor:
        """Round to nearest."""
        return values.to(FP8[self.name]).view(torch.uint8)

    def decode(self, rows: Tensor, heads: int) -> Tensor:  # noqa: ARG002 - part of the protocol
        """Convert back."""
        return rows.contiguous().view(FP8[self.name]).to(torch.float32)


@dataclass(frozen=True, slots=True)
class IntegerCodec:
    """int8, and int4 with two numbers in a byte, under one fixed scale."""

    name: str
    largest: int  # 127 or 7
    scale: float = 0.0  # 0: LIMIT / largest

    @property
    def step(self) -> float:
        """What one integer stands for."""
        return self.scale or LIMIT / self.largest

    def shape(self, heads: int, width: int) -> RowShape:
        """A byte a number, or the whole row's numbers two in a byte."""
        if self.name == "int8":
            return RowShape(heads, width, torch.int8)
        return RowShape(1, heads * width // 2, torch.uint8)

    def encode(self, values: Tensor) -> Tensor:
        """Divide by the scale and round."""
        integers = torch.round(values / self.step).clamp(-self.largest, self.largest)
        if self.name == "int8":
            return integers.to(torch.int8)
        halves = (flat_rows(integers) + 8).to(torch.uint8)
        return (halves[:, 0::2] | halves[:, 1::2] << 4).unsqueeze(0)

    def decode(self, rows: Tensor, heads: int) -> Tensor:
        """Multiply by the scale."""
        if self.name == "int8":
            return rows.to(torch.float32) * self.step
        halves = torch.stack((rows[0] & 15, rows[0] >> 4), dim=-1).flatten(1)
        return split_rows((halves.to(torch.float32) - 8) * self.step, heads)


@dataclass(frozen=True, slots=True)
class GgmlCodec:
    """ggml's blocks of 32, in their own byte layout, over the row of all heads as llama.cpp quantises it."""

    name: str

    def shape(self, heads: int, width: int) -> RowShape:
        """The row's blocks as bytes."""
        return RowShape(1, heads * width // 32 * ggml_blocks.BLOCKS[self.name].block_bytes, torch.uint8)

    def encode(self, values: Tensor) -> Tensor:
        """Quantise whole rows."""
        return ggml_blocks.quantize(self.name, flat_rows(values)).unsqueeze(0)

    def decode(self, rows: Tensor, heads: int) -> Tensor:
        """Dequantise whole rows."""
        return split_rows(ggml_blocks.dequantize(self.name, rows[0]), heads)


def flat_rows(values: Tensor) -> Tensor:
    """``[heads, n, width]`` → ``[n, heads · width]``: one position's row."""
    return values.transpose(0, 1).flatten(1)


def split_rows(rows: Tensor, heads: int) -> Tensor:
    """``[n, heads · width]`` → ``[heads, n, width]``."""
    return rows.view(rows.shape[0], heads, -1).transpose(0, 1)


CODECS: dict[str, Codec] = {
    **{name: PlainCodec(name) for name in PLAIN},
    **{name: Fp8Codec(name) for name in FP8},
    "int8": IntegerCodec("int8", 127),
    "int4": IntegerCodec("int4", 7),
    **{name: GgmlCodec(name) for name in ggml_blocks.BLOCKS},
}
QUANTIZED = tuple(name for name in CODECS if name not in PLAIN)


def codec_of(dtype: Dtype) -> Codec:
    """The codec of a type. Raises DtypeError for a type that verify can't make."""
    if dtype.name not in CODECS:
        raise DtypeError(f"verify can't make a cache of {dtype.name}", fix=f"it can make {', '.join(CODECS)}")
    return CODECS[dtype.name]


def fits(dtype: Dtype, elements: int) -> bool:
    """Whether a row of ``elements`` is a whole number of the type's blocks."""
    return elements % dtype.block_elements == 0
