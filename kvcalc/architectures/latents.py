"""Rules of MLA's relatives: who keeps an indexer, who shares a latent, and which layers have none of its rope part."""

from __future__ import annotations

from dataclasses import replace

from kvcalc.architectures import parts, patterns
from kvcalc.architectures.patterns import SLIDING
from kvcalc.architectures.rules import depth, indexer_owners
from kvcalc.core.fields import Fields
from kvcalc.core.layers import Indexer, LatentAttention, Layer, Shared

INDEXED = "indexed_attention"


def listed_indexers(fields: Fields) -> tuple[Layer, ...]:
    """HY-V4: ``indexer_types``, else the first layer and every fourth after it run their own indexer."""
    count = depth(fields)
    words = fields.texts("indexer_types") or [
        "full" if index == 0 or (index - 1) % 4 == 0 else "shared" for index in range(count)
    ]
    return tuple(parts.indexed_latent(fields) if word == "full" else parts.latent(fields) for word in words[:count])


def interleaved_rope(fields: Fields) -> tuple[Layer, ...]:
    """Mistral Large 4: no rope part in every fourth layer; ``kv_source_layers`` may share latents, indexers stay."""
    count = depth(fields)
    ropes = fields.ints("no_rope_layers") or [
        int((index + 1) % fields.int("no_rope_layer_interval", 4) != 0) for index in range(count)
    ]
    sources = fields.ints("kv_source_layers") or list(range(count))
    owners = indexer_owners(fields, count)
    latent = parts.latent_part(fields)
    return tuple(
        _interleaved(
            latent if rope else _without_rope(latent),
            source if source != index else None,
            Indexer(fields.int("index_head_dim")) if own else None,
        )
        for index, (rope, source, own) in enumerate(zip(ropes, sources, owners, strict=False))
    )


def _without_rope(latent: LatentAttention) -> LatentAttention:
    return replace(latent, rope_dim=0, nope_dim=latent.nope_dim + latent.rope_dim)


def _interleaved(latent: LatentAttention, source: int | None, indexer: Indexer | None) -> Layer:
    kept = (latent,) if source is None else (Shared(source),)
    return (*kept, indexer) if indexer else kept


_SWA_DEFAULTS = {"kv_lora_rank": 1024, "head_dim": 256, "qk_nope_head_dim": 192, "v_head_dim": 128, "num_attention_heads": 64}


def dots3(fields: Fields) -> tuple[Layer, ...]:
    """dots3-note: indexed MLA, whose index keys are float32, among windows of MLA with a rank of their own."""
    count = depth(fields)
    kinds = patterns.named(fields, count) or _dots3_kinds(fields, count)
    dsa = fields.raw("use_dsa")
    indexed = dsa is not False if "per_layer_config" not in fields else None
    return tuple(_dots3_layer(fields, index, kind, indexed) for index, kind in enumerate(kinds))


def _dots3_kinds(fields: Fields, count: int) -> list[str]:
    slides = fields.flag("use_sliding_window", True)
    return [SLIDING if slides and index >= 2 and index % 4 != 1 else INDEXED for index in range(count)]


def _dots3_layer(fields: Fields, index: int, kind: str, indexed: bool | None) -> Layer:
    if kind == SLIDING:
        return (_dots3_window(fields, index),)
    own = kind == INDEXED if indexed is None else indexed
    return (*parts.latent(fields, index), *((Indexer(fields.int("index_head_dim"), "float32"),) if own else ()))


def _dots3_window(fields: Fields, index: int) -> LatentAttention:
    sizes = {name: fields.int(f"swa_{name}", default) for name, default in _SWA_DEFAULTS.items()}
    rope = fields.int("swa_qk_rope_head_dim", sizes["head_dim"] - sizes["qk_nope_head_dim"], minimum=0)
    own = (
        {name: parts.item(fields, name, index) for name in ("kv_lora_rank", "qk_rope_head_dim")}
        if "per_layer_config" in fields
        else {}
    )
    return LatentAttention(
        own.get("kv_lora_rank") or sizes["kv_lora_rank"],
        rope if own.get("qk_rope_head_dim") is None else own["qk_rope_head_dim"] or 0,
        sizes["num_attention_heads"],
        sizes["qk_nope_head_dim"],
        sizes["v_head_dim"],
        fields.int_or_none("sliding_window") or fields.int("sliding_window_size", 512),
    )
