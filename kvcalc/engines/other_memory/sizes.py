"""The sizes of a model that buffers go by, read from its own file: config.json or GGUF keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvcalc.architectures.aliases import NESTED_KEYS
from kvcalc.core.gguf import GgufMetadata
from kvcalc.core.layers import Recurrent
from kvcalc.core.model import Model
from kvcalc.values import value

_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_INTERMEDIATE = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff")
_EXPERT = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
_CHOSEN = ("num_experts_per_tok", "moe_topk", "num_experts_per_token", "top_k_experts", "moe_k")
_ENCODERS = (
    *("vision_config", "audio_config", "vision_tower", "mm_vision_tower"),
    *("visual", "vit_config", "thinker_config", "img_processor"),
)
_GPT_TYPES = ("gpt2", "gpt_bigcode", "gptj", "bloom", "falcon", "codegen", "gpt_neo")  # four times as wide where nothing is said


@value
class Sizes:
    """None where the file doesn't say."""

    hidden: int | None
    intermediate: int | None  # of the experts that one token passes, where there are experts
    vocabulary: int | None
    multimodal: bool = False
    latent: bool = False
    attention_only: bool = True
    layers: int = 0
    tied: bool = False  # embeddings and head are one tensor
    experts: int = 0  # parameters of all routed experts; 0 where there are none, or the file doesn't say


def sizes_of(model: Model) -> Sizes:
    """What the file says. Numbers that can't be sizes count as unsaid."""
    held = model.metadata
    found = _of_gguf(held) if isinstance(held, GgufMetadata) else _of_config(held, model)
    recurrent = any(isinstance(part, Recurrent) for layer in model.layers for part in layer)
    return Sizes(
        *found, attention_only=not recurrent, layers=len(model.layers), tied=_tied(held, model), experts=_experts(held, model)
    )


_COUNTS = ("n_routed_experts", "num_experts", "num_local_experts")


def _experts(held: Mapping[str, object], model: Model) -> int:
    """Three matrices an expert, in every layer but the leading dense ones."""
    places = [] if isinstance(held, GgufMetadata) else list(_places(held))
    hidden, wide, count = (_first(places, names) for names in (_HIDDEN, _EXPERT, _COUNTS))
    dense = _first(places, ("first_k_dense_replace",)) or 0
    return 3 * hidden * wide * count * max(len(model.layers) - dense, 0) if hidden and wide and count else 0


# Classes whose default ties the two (transformers, configuration_*.py: tie_word_embeddings = True).
_TIED_BY_CLASS = (
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "gemma3n",
    "gemma4",
    "gpt2",
    "bloom",
    "cohere",
    "cohere2",
    "falcon",
    "opt",
    "t5",
)


def _tied(held: Mapping[str, object], model: Model) -> bool:
    if isinstance(held, GgufMetadata):
        return held.has_tensor("output.weight") is False
    said = (place.get("tie_word_embeddings") for place in reversed(list(_places(held))))
    return next((each for each in said if isinstance(each, bool)), model.model_type in _TIED_BY_CLASS)


def _of_gguf(held: Mapping[str, object]) -> tuple[int | None, int | None, int | None, bool, bool]:
    arch = held.get("general.architecture")
    words = held.get("tokenizer.ggml.tokens")
    listed = len(words) if isinstance(words, list | tuple) else None
    wide = _number(held.get(f"{arch}.feed_forward_length"))
    expert, chosen = _number(held.get(f"{arch}.expert_feed_forward_length")), _number(held.get(f"{arch}.expert_used_count"))
    width = expert * chosen if expert and chosen else wide
    vocabulary = _number(held.get(f"{arch}.vocab_size")) or listed
    latent = f"{arch}.attention.kv_lora_rank" in held
    return _number(held.get(f"{arch}.embedding_length")), width, vocabulary, False, latent


def _of_config(held: Mapping[str, object], model: Model) -> tuple[int | None, int | None, int | None, bool, bool]:
    places = list(_places(held))
    multimodal = any(key in held for key in _ENCODERS) or (len(places) > 1 and "is_encoder_decoder" not in held)
    hidden, chosen = _first(places, _HIDDEN), _first(places, _CHOSEN)
    wide = _first(places, _INTERMEDIATE)
    if chosen:
        expert = _first(places, _EXPERT)
        wide = expert * chosen if expert else None
    elif wide is None and hidden and model.model_type in _GPT_TYPES:
        wide = 4 * hidden
    vocabulary, latent = _first(places, ("vocab_size", "padded_vocab_size")), _first(places, ("kv_lora_rank",))
    return hidden, wide, vocabulary, multimodal, latent is not None


def _places(held: Mapping[str, object], depth: int = 0) -> Iterator[Mapping[str, object]]:
    """The innermost decoder first, since that is the one that runs."""
    for key in NESTED_KEYS if depth < 3 else ():
        inner = held.get(key)
        if isinstance(inner, Mapping):
            yield from _places(inner, depth + 1)
    yield held


def _first(places: list[Mapping[str, object]], names: tuple[str, ...]) -> int | None:
    found = (_number(place.get(name)) for place in places for name in names)
    return next((each for each in found if each), None)


def _number(found: object) -> int | None:
    if isinstance(found, list | tuple) and found:
        found = max((each for each in found if isinstance(each, int)), default=None)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 2**40 else None
