"""A part that is weighed and not stepped: its arrays are made and filled row by row, and nothing is computed from them."""

from __future__ import annotations

import torch
from torch import Tensor

from kvcalc.core.counting import slabs_of
from kvcalc.core.layers import Part
from kvcalc.verify.caches.base import RowShape
from kvcalc.verify.layouts import Maker
from kvcalc.verify.parts.base import Context
from kvcalc.verify.results import Measure


class HeldProof:
    """The arrays that the count names, as bytes."""

    def __init__(self, context: Context, part: Part) -> None:
        self.context, self.part = context, part

    def prepare(self) -> None:
        """Nothing to compare with."""

    def open(self, layout: Maker) -> OpenHeld:
        """Make the arrays."""
        return OpenHeld(self, layout)


class OpenHeld:
    """The arrays, filled as the length grows."""

    def __init__(self, proof: HeldProof, layout: Maker) -> None:
        self.device = proof.context.device
        self.arrays = [
            (slab, layout.cache(RowShape(1, slab.row_bytes, torch.uint8), slab.reach))
            for slab in slabs_of(proof.part, proof.context.types)
        ]

    def step(self, sequence: int, start: int, stop: int) -> None:
        """Append as many rows as the positions start … stop - 1 add; a fixed array is filled before the first."""
        for slab, cache in self.arrays:
            reach = slab.reach
            grown = reach.fixed * (start == 0) if reach.fixed is not None else stop // reach.ratio - start // reach.ratio
            if grown:
                cache.append(sequence, torch.zeros(1, grown, slab.row_bytes, dtype=torch.uint8, device=self.device))

    def tensors(self) -> list[Tensor]:
        """All arrays."""
        return [tensor for _, cache in self.arrays for tensor in cache.tensors()]

    def measures(self, layer: int) -> list[Measure]:  # noqa: ARG002 - part of the protocol
        """None."""
        return []
