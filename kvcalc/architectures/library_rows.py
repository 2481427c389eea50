"""Rows of the model types that transformers has beside the widely served ones of ``table.py``.

Read from the config and model classes of transformers 5.24.0; the rules are the same small set.
"""

from __future__ import annotations

from kvcalc.architectures import encoders, hybrids, latents, loops, parts, patterns, rules
from kvcalc.architectures.aliases import ENCODER_DECODER_ALIASES
from kvcalc.architectures.base import Architecture
from kvcalc.architectures.hybrids import HYBRID, HYBRID_SLIDING, INDEXED, by_index, cycle
from kvcalc.architectures.patterns import FULL, LINEAR, SLIDING

PLAIN = Architecture(rules.decoder())
WINDOWED = Architecture(rules.decoder(patterns.full_unless_window))
UPPER_SLIDE = Architecture(rules.decoder(patterns.upper_layers_slide))
ENCODER_DECODER = Architecture(rules.encoder_decoder, ENCODER_DECODER_ALIASES)
DECODER_ALIASES = {**ENCODER_DECODER_ALIASES, "num_kv_heads": ("num_key_value_heads",)}
AS_DECODER = Architecture(encoders.as_decoder(rules.decoder()))
CROSS_IF_ADDED = Architecture(encoders.crossed_if_added(rules.decoder()))
DELTA_STATES = {LINEAR: parts.gated_delta_net}
QSA = hybrids.ngram_states(
    rules.decoder(
        patterns.every_nth(INDEXED, LINEAR, "full_attention_interval", 4),
        {**DELTA_STATES, INDEXED: hybrids.key_index, FULL: hybrids.key_index},
    )
)


def _windowed(pattern: patterns.Pattern) -> Architecture:
    """Full and sliding layers of the model's own heads, by a pattern of its own."""
    return Architecture(rules.decoder(pattern))


_PLAIN_TYPES = (
    "apertus1p5_text",
    "blip_text_model",
    "cohere_compass_text",
    "cosmos3_edge_text",
    "csm",
    "csm_depth_decoder_model",
    "deepseek_ocr2_text",
    "emu3_text_model",
    "ernie4_5_vl_moe_text",
    "evolla",
    "glm_ocr_text",
    "gradium_phonon_tts",
    "granite4_vision_text",
    "granite_docling_text",
    "higgs_audio_v2",
    "hunyuan_vl_text",
    "hy_v3",
    "hyperclovax",
    "idefics",
    "iquestcoder",
    "jetmoe",
    "kosmos_2_5_text_model",
    "kosmos_2_text_model",
    "laguna",
    "mellum",
    "molmo2_text",
    "paddleocr_vl_text",
    "pocket_tts",
    "sarvam_moe",
    "solar_open",
    "step3p5",
    "video_llama_3",
)
_PLAIN_WHILE_NO_WINDOW = ("phi4_multimodal", "qwen3_omni_moe_text", "voxtral_realtime_text", "moshi", "kyutai_speech_to_text")
AS_DECODER_TYPES = (
    "bert",
    "bert-generation",
    "big_bird",
    "camembert",
    "data2vec-text",
    "electra",
    "ernie",
    "megatron-bert",
    "rembert",
    "roberta",
    "roberta-prelayernorm",
    "roc_bert",
    "roformer",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
)
_ENCODER_DECODER_TYPES = (
    "bigbird_pegasus",
    "blenderbot-small",
    "cohere_asr",
    "fsmt",
    "moonshine",
    "moonshine_streaming",
    "mvp",
    "nllb-moe",
    "pegasus_x",
    "plbart",
    "pop2piano",
    "pp_formulanet_text",
    "prophetnet",
    "seamless_m4t",
    "seamless_m4t_v2",
    "speech_to_text",
    "speecht5",
    "switch_transformers",
    "udop",
)

LIBRARY_ROWS: dict[str, Architecture] = {
    **dict.fromkeys(_PLAIN_TYPES, PLAIN),
    **dict.fromkeys(_PLAIN_WHILE_NO_WINDOW, WINDOWED),
    # classes whose own default sizes don't divide: hidden_size // heads, rounded down
    **dict.fromkeys(("glm4_moe", "glm4v_moe_text"), Architecture(rules.decoder(), constants={"head_dim_floors": True})),
    # windows among full layers
    "afmoe": _windowed(patterns.every_nth(FULL, SLIDING, "global_attn_every_n_layers", 4)),
    "beam": _windowed(by_index(lambda i, n: FULL if (i + 1) % 6 == 0 or i == n - 1 else SLIDING)),
    "cohere2_moe": _windowed(patterns.prefix_then_every_nth),
    **dict.fromkeys(("cwm", "granite_swa", "granitemoe_swa"), _windowed(by_index(lambda i, _: SLIDING if i % 4 else FULL))),
    "exaone_moe": _windowed(patterns.windowed_every_nth("sliding_window_pattern", 4)),
    "flint": _windowed(by_index(lambda i, n: FULL if i < 2 or i % 4 == 1 or i == n - 1 else SLIDING)),
    "kolibri1": _windowed(by_index(lambda i, _: SLIDING if (i + 1) % 5 else FULL)),
    **dict.fromkeys(
        ("muse_glimmer_text", "muse_spark_text"), _windowed(by_index(lambda i, n: SLIDING if (n - 1 - i) % 4 else FULL))
    ),
    "modernbert-decoder": Architecture(
        rules.decoder(
            patterns.every_nth(FULL, SLIDING, "global_attn_every_n_layers", 3, offset=0), {SLIDING: parts.half_local_sliding}
        )
    ),
    **dict.fromkeys(("qwen2_5_omni_text", "qwen2_5_omni_talker"), UPPER_SLIDE),
    "diffusion_gemma_text": Architecture(
        rules.decoder(
            patterns.last_is_full(patterns.every_nth(FULL, SLIDING, "_period", 6)),
            {FULL: rules.gemma4_full_ungated, SLIDING: parts.halved_sliding},
        )
    ),
    "unlimited_ocr_text": Architecture(
        rules.decoder(patterns.all_full, {"reference_sliding_attention": parts.full}),
        notes=("its window slides over decoded tokens only; the prompt's stay",),
    ),
    "cpmant": Architecture(rules.decoder(), {"head_dim": ("dim_head",)}),
    # looped
    "dory": Architecture(loops.dory),
    "hrm_text": Architecture(loops.cycles(rules.decoder())),
    "inkling2_loop_text": Architecture(
        loops.looped_core(
            rules.decoder(
                patterns.every_nth(HYBRID, HYBRID_SLIDING, "_period", 6),
                {HYBRID: hybrids.inkling(sliding=False), HYBRID_SLIDING: hybrids.inkling(sliding=True)},
            )
        )
    ),
    # latent
    **dict.fromkeys(("hy_v4", "hy_v4_vl_text"), Architecture(latents.listed_indexers)),
    "dots3_note_text": Architecture(latents.dots3),
    "mistral_large4_text": Architecture(latents.interleaved_rope),
    # states among attention
    "bailing_hybrid": Architecture(rules.decoder(hybrids.grouped_pattern, {LINEAR: parts.kda, FULL: parts.latent})),
    "glm5_next_text": Architecture(
        rules.decoder(
            by_index(lambda i, _: INDEXED if i % 4 == 3 else LINEAR),
            {LINEAR: parts.kda, INDEXED: hybrids.pooled_index, FULL: hybrids.pooled_index},
        )
    ),
    **dict.fromkeys(
        ("inkling_text", "inkling2_text"),
        Architecture(
            rules.decoder(
                hybrids.inkling_pattern,
                {HYBRID: hybrids.inkling(sliding=False), HYBRID_SLIDING: hybrids.inkling(sliding=True)},
            )
        ),
    ),
    "lara_mini": Architecture(rules.decoder(cycle(LINEAR, SLIDING, LINEAR, FULL, SLIDING), DELTA_STATES)),
    "lfm3": Architecture(
        rules.decoder(
            by_index(lambda i, _: FULL if i % 4 == 2 else SLIDING if i % 4 == 0 and i else LINEAR), {LINEAR: parts.short_conv}
        )
    ),
    "olmo_hybrid": Architecture(rules.decoder(patterns.every_fourth_full, DELTA_STATES)),
    "qwen4_exp_text": Architecture(QSA),
    "zamba": Architecture(
        rules.decoder(hybrids.zamba_pattern, {LINEAR: parts.mamba, HYBRID: hybrids.both(hybrids.zamba_attention, parts.mamba)}),
        {"head_dim": ("attention_head_dim",)},
    ),
    "zamba2": Architecture(
        rules.decoder(
            hybrids.zamba2_pattern, {LINEAR: parts.mamba2, HYBRID: hybrids.both(hybrids.zamba2_attention, parts.mamba2)}
        ),
        {
            "mamba_n_heads": ("n_mamba_heads",),
            "mamba_d_head": ("mamba_headdim",),
            "mamba_n_groups": ("mamba_ngroups",),
        },
    ),
    "zaya": Architecture(
        rules.decoder(
            by_index(lambda _, __: HYBRID),
            {HYBRID: hybrids.both(parts.full, hybrids.cca), HYBRID_SLIDING: hybrids.both(parts.sliding, hybrids.cca)},
        )
    ),
    # encoders run as decoders, and decoders beside an encoder
    **dict.fromkeys(AS_DECODER_TYPES, AS_DECODER),
    **dict.fromkeys(_ENCODER_DECODER_TYPES, ENCODER_DECODER),
    "reformer": Architecture(
        encoders.as_decoder(rules.hashed_states), notes=("it keeps its layers' inputs, not keys and values",)
    ),
    "trocr": Architecture(encoders.crossed_if_added(rules.decoder()), DECODER_ALIASES),
    "canary_decoder": Architecture(encoders.crossed(rules.decoder())),
    "dia_decoder": Architecture(encoders.own_cross_heads(rules.decoder())),
    **dict.fromkeys(("gpt2", "gpt-sw3", "xglm", "musicgen_decoder"), CROSS_IF_ADDED),
    "musicgen_melody_decoder": PLAIN,
    "musicgen": Architecture(encoders.crossed(rules.decoder()), over_nested=True, defaults="musicgen_decoder"),
    "pix2struct_text_model": Architecture(encoders.crossed(rules.decoder()), DECODER_ALIASES),
    "t5_gemma_module": Architecture(encoders.crossed(rules.decoder(patterns.every_nth(FULL, SLIDING, "_pair", 2)))),
    "t5gemma2_decoder": Architecture(
        encoders.crossed(rules.decoder(patterns.every_nth(FULL, SLIDING, "sliding_window_pattern", 6)))
    ),
}

REFUSED: dict[str, str] = {
    "bark": "three models in turn, each with a cache of its own; give one's own sizes with --layers and --kv-heads",
    "semantic": "a part of Bark, whose cache is not modelled",
    "coarse_acoustics": "a part of Bark, whose cache is not modelled",
    "blt": "its patcher, local and global models each keep a cache over another length",
    "fastspeech2_conformer": "it speaks in one pass and keeps no cache",
    "fastspeech2_conformer_with_hifigan": "it speaks in one pass and keeps no cache",
    "vits": "it speaks in one pass and keeps no cache",
    "gemma4_assistant": "a draft model that reads another model's cache and keeps none",
    "gemma4_unified_assistant": "a draft model that reads another model's cache and keeps none",
    "openai-gpt": "its code keeps no cache",
    "xlm": "its code keeps no cache",
    "xlnet": "its memory of past segments is no key-value cache",
    "pi0": "a robot policy: its cache is made of image, text and state inputs",
}
