"""Stored bytes to numbers, from the formats' definitions, and how far a number may be from what is stored for it.

fp8: a sign, 4 exponent bits (bias 7) and 3 of fraction, or 5 (bias 15) and 2. int8 and int4: one integer a number, two int4 in
a byte, low half first, over one step for all: 1.75 / 127 and 1.75 / 7. ggml: blocks of 32 numbers, a half-precision scale d
(and a minimum m) before their integers; of 4 bits the first sixteen numbers lie in the low halves of sixteen bytes, the others
in the high halves; a fifth bit of each number lies in a 32-bit word before them.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = {"int8": 1.75 / 127, "int4": 1.75 / 7}
HALF_UNITS = {"bfloat16": 2.0**-9, "float16": 2.0**-12, "float32": 2.0**-25}  # of a number in [0.5, 1)
FP8 = {"fp8_e4m3": (3, 7), "fp8_e5m2": (2, 15)}  # fraction bits, bias
BLOCKS = {"q8_0": (8, False), "q4_0": (4, False), "q4_1": (4, True), "q5_0": (5, False), "q5_1": (5, True)}  # bits, minimum


def decode(name: str, rows: Tensor) -> Tensor:
    """Stored rows ``[n, stored width]`` → ``[n, numbers]`` in float32."""
    if name in FP8:
        return _fp8(rows, *FP8[name])
    if name == "int8":
        return rows.to(torch.float32) * STEPS[name]
    if name == "int4":
        pairs = rows.to(torch.int32)
        return torch.stack((pairs % 16 - 8, pairs // 16 - 8), dim=2).reshape(len(rows), -1).to(torch.float32) * STEPS[name]
    return _ggml(rows, *BLOCKS[name]) if name in BLOCKS else rows.to(torch.float32)


def _fp8(rows: Tensor, bits: int, bias: int) -> Tensor:
    code = rows.view(torch.uint8).to(torch.int32)
    sign, exponent, fraction = 1 - 2 * (code // 128), code % 128 // 2**bits, code % 2**bits
    whole = torch.where(exponent > 0, fraction + 2**bits, fraction).to(torch.float32)
    return torch.ldexp(sign * whole, exponent.clamp(min=1) - bias - bits)


def _half(two: Tensor) -> Tensor:
    """Two bytes, the lower first, as a half-precision number."""
    code = two[..., 0].to(torch.int32) + 256 * two[..., 1].to(torch.int32)
    sign, exponent, fraction = 1 - 2 * (code // 32768), code % 32768 // 1024, code % 1024
    whole = torch.where(exponent > 0, fraction + 1024, fraction).to(torch.float32)
    found: Tensor = torch.ldexp(sign * whole, exponent.clamp(min=1) - 25)
    return found


def _ggml(rows: Tensor, bits: int, minimum: bool) -> Tensor:
    size = 2 + 2 * minimum + (32 if bits == 8 else 16 + 4 * (bits == 5))
    blocks = rows.reshape(len(rows), -1, size)
    scale, body = _half(blocks[..., 0:2])[..., None], blocks[..., 2 + 2 * minimum :].to(torch.int32)
    if bits == 8:
        return (scale * torch.where(body > 127, body - 256, body)).reshape(len(rows), -1)
    numbers = torch.cat((body[..., -16:] % 16, body[..., -16:] // 16), dim=2)
    if bits == 5:
        places = torch.arange(32, device=rows.device)
        numbers = numbers + 16 * (body[..., places // 8] // 2 ** (places % 8) % 2)
    if minimum:
        return (scale * numbers + _half(blocks[..., 2:4])[..., None]).reshape(len(rows), -1)
    middle = int(2 ** (bits - 1))
    return (scale * (numbers - middle)).reshape(len(rows), -1)


def bound(name: str, rows: Tensor) -> Tensor:
    """How far each of ``[n, numbers]`` may be from the number that is stored for it: half of the format's step there."""
    sizes = rows.abs()
    if name in HALF_UNITS:
        return torch.ldexp(torch.full_like(sizes, HALF_UNITS[name]), torch.frexp(sizes)[1])
    if name in FP8:
        bits, bias = FP8[name]
        exponent = (torch.frexp(sizes)[1] - 1).clamp(min=1 - bias)
        return torch.ldexp(torch.full_like(sizes, 0.5), exponent - bits)
    if name in STEPS:
        return torch.full_like(sizes, STEPS[name] / 2 + 2.0**-22)
    return _ggml_bound(rows.reshape(len(rows), -1, 32), *BLOCKS[name]).reshape(rows.shape)


def _ggml_bound(blocks: Tensor, bits: int, minimum: bool) -> Tensor:
    """Half a step; where 4 or 5 bits without a minimum end before the far side's last half step, what is cut off there.

    The scale is half precision: it errs by 2^-11 of itself, times the integer; a minimum by 2^-11 of itself.
    """
    low, high = blocks.amin(2, keepdim=True), blocks.amax(2, keepdim=True)
    if minimum:
        step = (high - low) / (2**bits - 1)
        reach, extra = 2**bits - 1, low.abs() * 2.0**-11 + 2.0**-25
    else:
        step = torch.maximum(high, -low) / (127 if bits == 8 else 2 ** (bits - 1))
        reach, extra = 127 if bits == 8 else 2 ** (bits - 1), torch.zeros_like(low)
    error = (step / 2).expand_as(blocks)
    if not minimum and bits != 8:
        side = torch.where(high > -low, -blocks, blocks)  # the far side of the number furthest from zero
        error = torch.maximum(error, side - (2 ** (bits - 1) - 1) * step)
    total: Tensor = error + reach * (step * 2.0**-11 + 2.0**-25) + extra + 2.0**-21
    return total
