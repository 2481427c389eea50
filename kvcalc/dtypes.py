"""Element types of a cache, as integers: elements per block and bytes per block.

A q8_0 block holds 32 values in 34 bytes (32 int8 and one fp16 scale), so no type needs a fractional byte.
Sources: torch's dtypes; ggml's block layouts (``ggml-common.h``); OCP MX v1.0 (mxfp4: 32 values, one e8m0 scale);
NVFP4 (16 values, one e4m3 scale).
"""

from __future__ import annotations

from difflib import get_close_matches

from kvcalc.errors import DtypeError
from kvcalc.units import ceil_div
from kvcalc.values import value


@value
class Dtype:
    """One element type: ``block_elements`` values take ``block_bytes`` bytes."""

    name: str
    block_elements: int
    block_bytes: int
    ggml: bool = False  # a ggml block type: rows are quantised whole blocks at a time

    def row_bytes(self, elements: int, where: str = "") -> int:
        """Bytes of one row of ``elements``. Raises DtypeError when the row is no whole number of blocks."""
        blocks, rest = divmod(elements, self.block_elements)
        if rest:
            raise DtypeError(
                f"a row of {elements} elements is no multiple of {self.name}'s block of {self.block_elements}",
                where,
                "take a type without blocks (bf16, fp8) for this side of the cache",
            )
        return blocks * self.block_bytes

    def padded_row_bytes(self, elements: int) -> int:
        """Bytes of one row rounded up to whole blocks."""
        return ceil_div(elements, self.block_elements) * self.block_bytes

    def __str__(self) -> str:
        return self.name


_ROWS: tuple[tuple[Dtype, tuple[str, ...]], ...] = (
    (Dtype("float32", 1, 4), ("f32", "fp32", "float", "torch.float32")),
    (Dtype("bfloat16", 1, 2), ("bf16", "torch.bfloat16")),
    (Dtype("float16", 1, 2), ("fp16", "f16", "half", "torch.float16")),
    (Dtype("fp8_e4m3", 1, 1), ("fp8", "float8", "e4m3", "float8_e4m3fn", "fp8_e4m3fn", "torch.float8_e4m3fn", "f8_e4m3")),
    (Dtype("fp8_e5m2", 1, 1), ("e5m2", "float8_e5m2", "torch.float8_e5m2", "f8_e5m2")),
    (Dtype("int8", 1, 1), ("i8", "torch.int8")),
    (Dtype("int4", 2, 1), ("i4", "uint4")),
    (Dtype("nvfp4", 16, 9), ("fp4_nv",)),
    (Dtype("mxfp4", 32, 17), ("fp4_mx",)),
    (Dtype("q8_0", 32, 34, ggml=True), ("q8",)),
    (Dtype("q4_0", 32, 18, ggml=True), ("q4",)),
    (Dtype("q4_1", 32, 20, ggml=True), ()),
    (Dtype("q5_0", 32, 22, ggml=True), ("q5",)),
    (Dtype("q5_1", 32, 24, ggml=True), ()),
    (Dtype("iq4_nl", 32, 18, ggml=True), ()),
    (Dtype("q1_0", 128, 18, ggml=True), ()),
)
DTYPES: dict[str, Dtype] = {dtype.name: dtype for dtype, _ in _ROWS}
ALIASES: dict[str, str] = {alias: dtype.name for dtype, aliases in _ROWS for alias in aliases}
FLOAT32 = DTYPES["float32"]


def find_dtype(name: str) -> Dtype:
    """The type called ``name`` in torch's, an engine's or ggml's spelling. Raises DtypeError with near matches."""
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    if key in DTYPES:
        return DTYPES[key]
    near = get_close_matches(key, [*DTYPES, *ALIASES], n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"known types: {', '.join(DTYPES)}"
    raise DtypeError(f"unknown element type {name[:40]!r}", fix=hint)
