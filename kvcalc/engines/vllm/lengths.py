"""The longest sequence that vLLM serves a model at, read from its file.

Rules: vLLM 0.32.0, ``vllm/config/model.py`` (``_get_and_verify_max_len``),
``vllm/transformers_utils/model_arch_config_convertor.py`` (``derive_max_model_len_and_key``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from kvcalc.core.model import Model

UNKNOWN_LENGTH = 2048  # what vLLM assumes of a file that names no length
_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# Kinds of rope whose max_position_embeddings is stretched already.
_STRETCHED = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})


def longest_length(model: Model) -> int | None:
    """What the file admits: its length, stretched by a linear or dynamic rope; None where it names none."""
    if model.format not in ("hf", "preset"):
        return model.max_tokens
    own = _positive(model.fields.raw("model_max_length"))
    found = [value for key in _KEYS if (value := _positive(model.fields.raw(key))) is not None]
    length = own or min(found, default=model.max_tokens)
    if length is None or "gemma3" in model.model_type:
        return length
    return int(length * _stretch(model))


def fitted_from(model: Model) -> int:
    """Where fitting a length (-1) begins: LongRoPE models at the length before stretching."""
    before = _positive(model.fields.raw("original_max_position_embeddings"))
    if before and any(_kind(rope) == "longrope" for rope in _ropes(model)):
        return before
    return longest_length(model) or UNKNOWN_LENGTH


def _stretch(model: Model) -> Fraction:
    factor = Fraction(1)
    for rope in _ropes(model):
        value = rope.get("factor")
        if _kind(rope) in _STRETCHED or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if 0 < value < 2**20:
            factor = Fraction(value)
    return factor


def _kind(rope: Mapping[str, object]) -> str:
    kind = rope.get("rope_type", rope.get("type"))
    return kind if isinstance(kind, str) else ""


def _ropes(model: Model) -> Iterator[Mapping[str, object]]:
    """The rope's parameters; one set a kind of layer in some files."""
    for name in ("rope_scaling", "rope_parameters"):
        value = model.fields.raw(name)
        if not isinstance(value, Mapping):
            continue
        nested = [item for item in value.values() if isinstance(item, Mapping)]
        yield from nested or [value]


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
