"""GGUF metadata as read, and ggml's tensor types: what readers hand over and engines look at.

A metadata value is what the file says under its own key (``llama.attention.head_count_kv``); large arrays, which no
rule needs, stand as ``Skipped``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Skipped:
    """A value that was passed over: an array (or text) of ``count`` elements of ``kind``."""

    kind: str
    count: int

    def __str__(self) -> str:
        return f"<{self.count:,} x {self.kind}, not read>"


class TensorInfo(NamedTuple):
    """One row of the tensor table. ``shape`` is ggml's order: the row's length first."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int

    @property
    def type_name(self) -> str:
        """Ggml's name of the type, or ``type 99`` for one that came later."""
        known = TENSOR_TYPES.get(self.type_id)
        return known[0] if known else f"type {self.type_id}"

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)

    @property
    def bytes(self) -> int | None:
        """Elements / block elements · block bytes; None for an unknown type."""
        known = TENSOR_TYPES.get(self.type_id)
        return self.elements // known[1] * known[2] if known else None


# id → name, elements a block, bytes a block (ggml.h: enum ggml_type; ggml-common.h: the blocks; 0.5.0-dev)
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 36),
    10: ("q2_K", 256, 84),
    11: ("q3_K", 256, 110),
    12: ("q4_K", 256, 144),
    13: ("q5_K", 256, 176),
    14: ("q6_K", 256, 210),
    15: ("q8_K", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    31: ("q4_0_4_4", 32, 18),
    32: ("q4_0_4_8", 32, 18),
    33: ("q4_0_8_8", 32, 18),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    36: ("iq4_nl_4_4", 32, 18),
    37: ("iq4_nl_4_8", 32, 18),
    38: ("iq4_nl_8_8", 32, 18),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
    42: ("q2_0", 64, 18),
}


class GgufMetadata(Mapping[str, object]):
    """The keys of a GGUF header, with the type that the file gives each and, where they were read, its tensors.

    ``types`` is empty for a JSON dump, which has none; ``tensors`` is None where no tensor table was seen.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        types: Mapping[str, str] | None = None,
        tensors: tuple[TensorInfo, ...] | None = None,
    ) -> None:
        self._values = dict(values)
        self.types = dict(types or {})
        self.tensors = tensors
        self._names = frozenset(tensor.name for tensor in tensors or ())

    def __getitem__(self, key: str) -> object:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def has_tensor(self, name: str) -> bool | None:
        """Whether the file holds a tensor ``name``; None where its tensor table is not known."""
        return None if self.tensors is None else name in self._names
