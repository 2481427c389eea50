"""ggml's cache types, byte for byte: q8_0, q4_0, q4_1, q5_0, q5_1 (ggml-common.h, ggml-quants.c, quantize_row_*_ref).

A block holds 32 numbers. ``d`` and ``m`` are fp16, little-endian. In the 4- and 5-bit types byte j of ``qs`` holds
number j in its low half and number j + 16 in its high half; bit j of the 32-bit ``qh`` is the fifth bit of number j.

    q8_0  d, 32 × int8           x = d·q            d = amax / 127
    q4_0  d, qs                  x = d·(q - 8)      d = (the number furthest from zero) / -8
    q4_1  d, m, qs               x = d·q + m        d = (max - min) / 15
    q5_0  d, qh, qs              x = d·(q - 16)     d = (the number furthest from zero) / -16
    q5_1  d, m, qh, qs           x = d·q + m        d = (max - min) / 31
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Block:
    """One layout: how many values q can take, whether a minimum is stored, and the bytes of a block."""

    levels: int
    minimum: bool
    block_bytes: int


BLOCKS = {
    "q8_0": Block(255, False, 2 + 32),
    "q4_0": Block(16, False, 2 + 16),
    "q4_1": Block(16, True, 4 + 16),
    "q5_0": Block(32, False, 2 + 4 + 16),
    "q5_1": Block(32, True, 4 + 4 + 16),
}


def quantize(name: str, rows: Tensor) -> Tensor:
    """``[n, elements]`` float32 → ``[n, bytes]`` uint8."""
    block, x = BLOCKS[name], rows.float().reshape(-1, 32)
    d, m = _scales(block, x)
    parts = [_bytes(d)]
    if block.minimum:
        parts.append(_bytes(m))
    inverse = torch.where(d == 0, torch.zeros_like(d), 1 / d)
    parts += _packed(block, x, inverse, m)
    return torch.cat(parts, dim=1).view(rows.shape[0], -1)


def dequantize(name: str, rows: Tensor) -> Tensor:
    """``[n, bytes]`` uint8 → ``[n, elements]`` float32."""
    block = BLOCKS[name]
    raw = rows.reshape(-1, block.block_bytes)
    head = 4 if block.minimum else 2
    scales = raw[:, :head].contiguous().view(torch.float16).float()
    body = raw[:, head:]
    q = body.contiguous().view(torch.int8).float() if block.levels == 255 else _unpacked(block, body).float()
    if block.minimum:
        x = scales[:, :1] * q + scales[:, 1:]
    else:
        x = scales[:, :1] * (q if block.levels == 255 else q - block.levels // 2)
    return x.view(rows.shape[0], -1)


def _scales(block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
    """(d, m) of each block in float32, ``[blocks, 1]``."""
    if block.minimum:
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        return (high - low) / (block.levels - 1), low
    if block.levels == 255:
        return x.abs().amax(1, keepdim=True) / 127, torch.zeros_like(x[:, :1])
    furthest = x.gather(1, x.abs().argmax(1, keepdim=True))
    return furthest / -(block.levels // 2), torch.zeros_like(furthest)


def _packed(block: Block, x: Tensor, inverse: Tensor, m: Tensor) -> list[Tensor]:
    """The bytes of q."""
    if block.levels == 255:
        scaled = x * inverse
        return [(torch.sign(scaled) * torch.floor(scaled.abs() + 0.5)).to(torch.int8).view(torch.uint8)]  # C's roundf
    offset = 0.5 if block.minimum else block.levels // 2 + 0.5
    q = ((x - m) * inverse + offset).to(torch.int32).clamp(max=block.levels - 1)  # C's cast cuts towards zero
    low, high = q[:, :16], q[:, 16:]
    nibbles = (low & 15 | (high & 15) << 4).to(torch.uint8)
    if block.levels == 16:
        return [nibbles]
    bits = (q >> 4).view(-1, 4, 8)  # bit j of qh, eight to a byte
    weights = 1 << torch.arange(8, device=x.device, dtype=torch.int32)
    return [(bits * weights).sum(2).to(torch.uint8), nibbles]


def _unpacked(block: Block, body: Tensor) -> Tensor:
    """Q of ``[blocks, bytes]``."""
    nibbles = body[:, -16:]
    q = torch.cat((nibbles & 15, nibbles >> 4), dim=1).to(torch.int32)
    if block.levels == 32:
        bits = body[:, :4].to(torch.int32).unsqueeze(2) >> torch.arange(8, device=body.device, dtype=torch.int32) & 1
        q = q | bits.flatten(1) << 4
    return q


def _bytes(scale: Tensor) -> Tensor:
    return scale.to(torch.float16).view(torch.uint8)
