"""QuantizedCache: the prompt quantised at once, new tokens beside it until they fill the residual.

Sources: transformers 5.24.0 ``cache_utils.py`` (QuantizedLayer, Fp8QuantizedLayer); optimum-quanto 0.2.7
``tensor/grouped.py``, ``tensor/packed.py``; hqq 0.2.8 ``core/quantize.py``, ``core/bitpack.py``.

Of N elements in groups of g, the codes take N/g rows of g (axis 0 in quanto, 1 in hqq) or g rows of N/g (the other
axis), several rows packed into one byte, and each group a scale and a zero point in the model's type.
"""

from __future__ import annotations

from kvcalc.core.layers import FullAttention, Layer, kind_of, runs
from kvcalc.core.model import Array, LayerTally, OptionValue
from kvcalc.dtypes import Dtype
from kvcalc.errors import EngineError
from kvcalc.units import ceil_div
from kvcalc.values import value

GROUP_SIZE = 64
RESIDUAL_LENGTH = 128
NBITS = 4


@value
class Backend:
    """What one backend takes: code widths, axes, and the axis on which a group is a row."""

    name: str
    nbits: tuple[int, ...]
    axes: tuple[int, ...]
    row_axis: int
    pads: bool  # rows that don't fill the last byte are padded (quanto), or refused (hqq)


BACKENDS: dict[str, Backend] = {
    "quanto": Backend("quanto", (2, 4), (0, -1), 0, pads=True),
    "hqq": Backend("hqq", (1, 2, 3, 4, 8), (0, 1), 1, pads=False),
}
# hqq packs ten 3-bit codes into an int32; everything else packs 8 // nbits codes into a byte.
_TEN_IN_INT32 = (10, 4)


@value
class Settings:
    """A quantised request: tokens in codes and tokens beside them."""

    backend: str
    batch: int
    codes: int
    residual: int
    nbits: int = NBITS
    group: int = GROUP_SIZE
    axis_key: int = 0
    axis_value: int = 0


def settings(options: dict[str, OptionValue], batch: int, tokens: int, prompt: int) -> Settings:
    """Checked settings. Raises EngineError where the library would."""
    backend = str(options.get("backend", "quanto"))
    if backend == "fp8":
        given = [name for name in ("nbits", "q-group-size", "residual-length", "axis-key", "axis-value") if name in options]
        if given:
            raise EngineError(f"the fp8 backend takes no {given[0]}", f"-o {given[0]}", "leave it out, or take quanto or hqq")
        return Settings("fp8", batch, tokens, 0)
    known, nbits = BACKENDS[backend], int(options.get("nbits", NBITS))
    axis_key, axis_value = int(options.get("axis-key", 0)), int(options.get("axis-value", 0))
    _one_of("nbits", nbits, known.nbits, backend)
    _one_of("axis-key", axis_key, known.axes, backend)
    _one_of("axis-value", axis_value, known.axes, backend)
    residual_length = int(options.get("residual-length", RESIDUAL_LENGTH))
    residual = (tokens - prompt) % residual_length if residual_length > 1 else 0
    if nbits == 3 and tokens > prompt:
        raise EngineError(
            "hqq's 3-bit codes can't be read back: the first token after the prompt fails",
            "-o nbits",
            "take 4 or 2 bits, or prompt-tokens equal to the tokens",
        )
    return Settings(
        backend, batch, tokens - residual, residual, nbits, int(options.get("q-group-size", GROUP_SIZE)), axis_key, axis_value
    )


def _one_of(name: str, value: int, known: tuple[int, ...], backend: str) -> None:
    if value not in known:
        raise EngineError(f"{backend} takes no {name} of {value}", f"-o {name}", f"one of {', '.join(map(str, known))}")


def tally(layers: tuple[Layer, ...], asked: Settings, model_dtype: Dtype) -> tuple[LayerTally, ...]:
    """Every run of layers, quantised. Raises EngineError for layers that the class refuses."""
    return tuple(
        LayerTally(first, count, layer, kind_of(layer), _arrays(layer, asked, model_dtype), asked.codes + asked.residual)
        for first, count, layer in runs(layers)
    )


def _arrays(layer: Layer, asked: Settings, model_dtype: Dtype) -> tuple[Array, ...]:
    if len(layer) != 1 or not isinstance(layer[0], FullAttention):
        raise EngineError(
            f"the quantized cache takes full-attention layers only, not {kind_of(layer)}", "-o cache", "take cache=dynamic"
        )
    part = layer[0]
    sides = (("keys", part.head_dim, asked.axis_key), ("values", part.v_head_dim, asked.axis_value))
    return tuple(array for side in sides for array in _side(*side, part.num_kv_heads, asked, model_dtype))


def _side(label: str, width: int, axis: int, heads: int, asked: Settings, model_dtype: Dtype) -> tuple[Array, ...]:
    row = heads * width
    if asked.backend == "fp8":
        note = "one fp8 byte an element; the scale is one number a layer"
        return (Array("kv", f"{label} in fp8", asked.batch * asked.codes, row, heads, width, "fp8_e4m3", note),)
    groups = _groups(heads, width, axis, asked)
    found = [
        Array(
            "kv", f"{label} in {asked.nbits} bits", 1, code_bytes(groups, axis, asked), heads, width, f"{asked.nbits}-bit codes"
        ),
        Array("kv", f"scales and zeros of {label}", 2 * groups, model_dtype.row_bytes(1), 1, 1, model_dtype.name),
    ]
    if asked.residual:
        note = f"tokens since the last quantisation, {asked.residual} of them, in the model's type"
        rows = asked.batch * asked.residual
        found.append(Array("kv", f"residual {label}", rows, model_dtype.row_bytes(row), heads, width, model_dtype.name, note))
    return tuple(found)


def _groups(heads: int, width: int, axis: int, asked: Settings) -> int:
    """How many groups. Raises EngineError where the backend's own check fails."""
    elements = asked.batch * asked.codes * heads * width
    whole = elements
    if asked.backend == "quanto":  # groups lie within one index of the axis; hqq's anywhere
        whole = elements // asked.batch if axis == 0 else elements // width
    if asked.group > whole or whole % asked.group:
        raise EngineError(
            f"{whole:,} elements don't divide into groups of {asked.group}",
            "-o q-group-size",
            "take a group size that divides them",
        )
    return elements // asked.group


def code_bytes(groups: int, axis: int, asked: Settings) -> int:
    """Bytes of the packed codes. Raises EngineError where rows don't fill a byte and the backend doesn't pad."""
    backend = BACKENDS[asked.backend]
    by_row = axis == backend.row_axis
    rows, columns = (groups, asked.group) if by_row else (asked.group, groups)
    packed, unit = _TEN_IN_INT32 if asked.nbits == 3 else (8 // asked.nbits, 1)
    if not backend.pads and asked.nbits in (2, 4) and rows % packed:
        raise EngineError(
            f"{backend.name} packs {packed} rows into one, and {rows:,} rows don't divide",
            "-o q-group-size",
            "take another group size",
        )
    if backend.name == "hqq" and asked.nbits == 1:
        return rows // packed * columns  # rows that don't fill the last byte are dropped: they can't be read back either
    return ceil_div(rows, packed) * columns * unit
