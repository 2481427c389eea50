"""What each model type of transformers wants to be fed, where that is more than token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Inputs = dict[str, Any]
Feed = Callable[[Any, int, int, str, Any], Inputs]  # config, batch, tokens, device, dtype → arguments


def inputs_of(
    config: Any,
    parameters: Mapping[str, object],
    batch: int,
    tokens: int,
    encoder_tokens: int | None,
    device: str,
    dtype: Any,
) -> Inputs:
    """The arguments of one step of ``tokens`` tokens."""
    import torch

    feed, encodes = FEEDS.get(config.model_type), takes_encoder(config, parameters)
    ids = torch.zeros((batch, tokens), dtype=torch.long, device=device)
    own_ids = {"decoder_input_ids" if encodes else "input_ids": ids}
    given = own_ids if feed is None else feed(config, batch, tokens, device, dtype)
    if not encodes:
        return given
    width = encoder_width(config)
    hidden = torch.zeros((batch, encoder_tokens or 8, width), dtype=dtype, device=device)
    own = config.get_text_config(decoder=True)
    narrow = torch.zeros((batch, hidden.shape[1], int(getattr(own, "d_model", 0) or own.hidden_size)), dtype=dtype, device=device)
    return {**given, "encoder_outputs": _encoded(hidden, narrow)}


def images_of(
    config: Any, parameters: Mapping[str, object], batch: int, encoder_tokens: int | None, device: str, dtype: Any
) -> Inputs:
    """What only the first step is given: an image's positions, for layers that attend to them (Llama 3.2 Vision)."""
    import torch

    if not encoder_tokens or "cross_attention_states" not in parameters:
        return {}
    width = int(config.get_text_config(decoder=True).hidden_size)
    return {"cross_attention_states": torch.zeros((batch, encoder_tokens, width), dtype=dtype, device=device)}


def takes_encoder(config: Any, parameters: Mapping[str, object]) -> bool:
    """Whether the model decodes beside an encoder."""
    return bool(getattr(config, "is_encoder_decoder", False)) or {"decoder_input_ids", "encoder_outputs"} <= set(parameters)


def _encoded(hidden: Any, pooled: Any) -> Any:
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    # Made by a call: without the library at hand a type checker can't follow a base class.
    encoded = type("Encoded", (BaseModelOutputWithPooling,), {"attention_mask": None, "router_logits": None})
    return encoded(last_hidden_state=hidden, pooler_output=pooled)


def encoder_width(config: Any) -> int:
    """Features of the encoder's output."""
    for name in ("encoder_config", "encoder", "text_encoder", "audio_encoder", "audio_config", "vision_config"):
        nested = getattr(config, name, None)
        if nested is None or isinstance(nested, int | str | dict):
            continue
        nested = getattr(nested, "text_config", nested)
        for key in ("hidden_size", "d_model"):
            if isinstance(getattr(nested, key, None), int):
                return int(getattr(nested, key))
    for key in ("d_model", "hidden_size", "encoder_hidden_size"):
        if isinstance(getattr(config, key, None), int):
            return int(getattr(config, key))
    return int(config.get_text_config().hidden_size)


def settle(config: Any) -> None:
    """Choices that the library leaves open and that don't touch the cache: experts one by one can't run on meta."""
    for name in ("use_mamba_kernels", "use_mambapy"):
        if getattr(config, name, False):
            setattr(config, name, False)


def _codebooks(key: str, extra: int = 0) -> Feed:
    def feed(config: Any, batch: int, tokens: int, device: str, dtype: Any) -> Inputs:  # noqa: ARG001 - a feed like the others
        import torch

        count = int(getattr(config, key)) + extra
        return {"input_ids": torch.zeros((batch, tokens, count), dtype=torch.long, device=device)}

    return feed


def _flat_codebooks(config: Any, batch: int, tokens: int, device: str, dtype: Any) -> Inputs:  # noqa: ARG001 - a feed
    """Every codebook a row of the batch (MusicGen)."""
    import torch

    rows = batch * int(config.get_text_config(decoder=True).num_codebooks)
    return {"decoder_input_ids": torch.zeros((rows, tokens), dtype=torch.long, device=device)}


def _channels(config: Any, batch: int, tokens: int, device: str, dtype: Any) -> Inputs:  # noqa: ARG001 - a feed
    """A column a channel (Dia)."""
    import torch

    shape = (batch, tokens, int(config.decoder_config.num_channels))
    return {"decoder_input_ids": torch.zeros(shape, dtype=torch.long, device=device)}


def _seen(config: Any, batch: int, tokens: int, device: str, dtype: Any) -> Inputs:
    """An image's features, and which tokens see them (IDEFICS)."""
    import torch

    return {
        "input_ids": torch.zeros((batch, tokens), dtype=torch.long, device=device),
        "image_encoder_embeddings": torch.zeros((batch, 1, 4, int(config.vision_config.embed_dim)), dtype=dtype, device=device),
        "image_attention_mask": torch.ones((batch, tokens, 1), dtype=torch.long, device=device),
    }


def _timed(config: Any, batch: int, tokens: int, device: str, dtype: Any) -> Inputs:
    """The delay's embedding besides (Voxtral Realtime)."""
    import torch

    condition = torch.zeros((1, int(config.hidden_size)), dtype=dtype, device=device)
    return {"input_ids": torch.zeros((batch, tokens), dtype=torch.long, device=device), "t_cond": condition}


# Arguments instead of token ids; a model with an encoder gets that encoder's output besides.
FEEDS: dict[str, Feed] = {
    "dia": _channels,
    "idefics": _seen,
    "kyutai_speech_to_text": _codebooks("num_codebooks", 1),
    "musicgen": _flat_codebooks,
    "musicgen_melody": _flat_codebooks,
    "voxtral_realtime_text": _timed,
}
