"""Every model type that kvcalc knows: one row each.

To add one: a row here, a fixture under ``tests/data/configs`` and its expected bytes.
"""

from __future__ import annotations

from kvcalc.architectures import hybrids, parts, patterns, remote_rules, rules
from kvcalc.architectures.aliases import ENCODER_DECODER_ALIASES
from kvcalc.architectures.base import Architecture
from kvcalc.architectures.library_rows import LIBRARY_ROWS
from kvcalc.architectures.patterns import FULL, LINEAR, SLIDING
from kvcalc.architectures.table_remote import remote_rows

PLAIN = Architecture(rules.decoder())
WINDOWED = Architecture(rules.decoder(patterns.full_unless_window))
UPPER_SLIDE = Architecture(rules.decoder(patterns.upper_layers_slide))
LATENT = Architecture(rules.uniform(parts.latent))
INDEXED = Architecture(rules.indexed_latent)
ENCODER_DECODER = Architecture(rules.encoder_decoder, ENCODER_DECODER_ALIASES)
DELTA_HYBRID = Architecture(rules.hybrid(patterns.every_nth(FULL, LINEAR, "full_attention_interval", 4), parts.gated_delta_net))
MAMBA_ALIASES = {
    "mamba_inner_size": ("intermediate_size", "d_inner"),
    "mamba_expand": ("expand", "mamba_expand"),
    "mamba_d_conv": ("conv_kernel", "d_conv", "mamba_d_conv"),
    "mamba_d_state": ("state_size", "d_state", "mamba_d_state"),
    "hidden_size": ("hidden_size", "d_model"),
}

PLAIN_TYPES = (
    # in transformers
    "apertus",
    "arcee",
    "aria",
    "aria_text",
    "biogpt",
    "bitnet",
    "bloom",
    "chameleon",
    "codegen",
    "cohere",
    "ctrl",
    "diffllama",
    "doge",
    "emu3",
    "ernie4_5",
    "ernie4_5_moe",
    "ernie4_5_vl_moe",
    "exaone",
    "flex_olmo",
    "fuyu",
    "gemma",
    "git",
    "glm",
    "glm4",
    "glm46v",
    "glm4v",
    "glm4v_text",
    "got_ocr2",
    "gpt_neo",
    "gpt_neox",
    "gpt_neox_japanese",
    "gptj",
    "granite",
    "granitemoe",
    "granitemoeshared",
    "helium",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "idefics3",
    "internlm3",
    "internvl",
    "jais2",
    "janus",
    "llama",
    "llava",
    "llava_next",
    "llava_onevision",
    "minimax_m2",
    "mistral3",
    "nanochat",
    "nemotron",
    "olmo",
    "olmo2",
    "olmoe",
    "opt",
    "paligemma",
    "persimmon",
    "phi",
    "pixtral",
    "qwen2_audio",
    "qwen3_vl",
    "qwen3_vl_text",
    "qwen3_vl_moe",
    "qwen3_vl_moe_text",
    "seed_oss",
    "smolvlm",
    "stablelm",
    "voxtral",
    "exaone4_5",
    # remote code: one KV head a query head, or num_key_value_heads, of hidden_size // heads
    "aquila",
    "baichuan",
    "codeshell",
    "deepseek",
    "internlm",
    "internlm2",
    "internvl_chat",
    "minicpm",
    "minicpmv",
    "molmo",
    "orion",
    "phi-msft",
    "phi3small",
    "qwen",
    "skywork",
    "telechat",
    "xverse",
    "yi",
    "bailing_moe",
    "arctic",
    "grok-1",
    "jais",
    "Yi",
)

ARCHITECTURES: dict[str, Architecture] = {
    "equation": Architecture(rules.uniform(parts.stated)),  # the flags of the command line
    **LIBRARY_ROWS,
    **dict.fromkeys(PLAIN_TYPES, PLAIN),
    # windows
    **dict.fromkeys(("mistral", "mixtral", "ministral", "ministral3", "phi3", "phimoe", "starcoder2", "phi3_v"), WINDOWED),
    **dict.fromkeys(("qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3"), UPPER_SLIDE),
    "qwen3_moe": Architecture(rules.decoder(patterns.all_slide_if_used)),
    "qwen2_moe": Architecture(rules.decoder(patterns.even_layers_below_slide)),
    "dots1": Architecture(rules.decoder(patterns.upper_layers_slide_always)),
    "smollm3": Architecture(rules.decoder(patterns.layers_without_rope_slide)),
    **dict.fromkeys(
        ("gemma2", "gpt_oss", "vaultgemma"), Architecture(rules.decoder(patterns.every_nth(FULL, SLIDING, "_pair", 2)))
    ),
    **dict.fromkeys(
        ("gemma3", "gemma3_text"),
        Architecture(
            rules.decoder(patterns.windowed_every_nth("sliding_window_pattern", 6), {SLIDING: parts.halved_sliding}),
            {"sliding_window_pattern": ("sliding_window_pattern", "_sliding_window_pattern")},
        ),
    ),
    "cohere2": Architecture(
        rules.decoder(patterns.windowed_every_nth("sliding_window_pattern", 4)),
        {"sliding_window_pattern": ("sliding_window_pattern", "_sliding_window_pattern")},
    ),
    **dict.fromkeys(
        ("exaone4", "exaone4_5_text"), Architecture(rules.decoder(patterns.windowed_letters("sliding_window_pattern", 4)))
    ),
    "olmo3": Architecture(rules.decoder(patterns.windowed_every_nth("_period", 4))),
    **dict.fromkeys(
        ("gemma3n", "gemma3n_text"),
        Architecture(rules.sharing_last(rules.decoder(patterns.every_nth(FULL, SLIDING, "_period", 5)))),
    ),
    **dict.fromkeys(
        ("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"),
        Architecture(
            rules.sharing_last(
                rules.decoder(
                    patterns.last_is_full(patterns.every_nth(FULL, SLIDING, "_period", 6)),
                    {FULL: rules.gemma4_full, SLIDING: parts.halved_sliding},
                )
            )
        ),
    ),
    **dict.fromkeys(("llama4", "llama4_text"), Architecture(rules.decoder(patterns.layers_with_rope_chunk))),
    **dict.fromkeys(("mimo_v2_flash", "mimo_v2"), Architecture(rules.two_widths)),
    # one or few KV heads by a switch
    "falcon": Architecture(rules.falcon),
    **dict.fromkeys(("RefinedWeb", "RefinedWebModel"), Architecture(remote_rules.refined_web)),
    "gpt_bigcode": Architecture(rules.multi_query(default=True)),
    **dict.fromkeys(
        ("chatglm", "glm-4v"),
        Architecture(rules.chatglm, {"num_layers": ("num_layers", "num_hidden_layers"), "max_tokens": ("seq_length",)}),
    ),
    "dbrx": Architecture(
        rules.decoder(), {"num_kv_heads": ("attn_config.kv_n_heads",)}, own_defaults={"attn_config.kv_n_heads": 1}
    ),
    "mpt": Architecture(remote_rules.attention_kind, {"num_kv_heads": ("attn_config.kv_n_heads",)}),
    # heads by layer
    "nemotron-nas": Architecture(rules.block_configs),
    "openelm": Architecture(
        rules.decoder(),
        {
            "num_layers": ("num_transformer_layers",),
            "num_attention_heads": ("num_query_heads",),
            "max_tokens": ("max_context_length",),
        },
    ),
    # latent
    **dict.fromkeys(
        (
            "deepseek_v2",
            "deepseek_v3",
            "kimi_k2",
            "kimi_k25",
            "minicpm3",
            "glm4_moe_lite",
            "youtu",
            "mistral4",
            "sarvam_mla",
            "axk1",
            "deepseek_vl_v2",
        ),
        LATENT,
    ),
    "longcat_flash": Architecture(
        rules.doubled(rules.uniform(parts.latent)), {"num_layers": ("num_layers", "num_hidden_layers")}
    ),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa", "axk2"), INDEXED),
    "deepseek_v4": Architecture(rules.compressed),
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"), Architecture(rules.sparse_indexed)),
    "kimi_linear": Architecture(hybrids.kimi_linear),
    # state space and linear attention, alone or among attention layers
    "mamba": Architecture(rules.uniform(parts.mamba), MAMBA_ALIASES),
    "falcon_mamba": Architecture(rules.uniform(parts.mamba), MAMBA_ALIASES),
    "mamba2": Architecture(
        rules.uniform(parts.mamba2),
        {
            "mamba_n_heads": ("num_heads", "nheads"),
            "mamba_d_head": ("head_dim", "headdim"),
            "mamba_n_groups": ("n_groups", "ngroups"),
            "mamba_d_conv": ("conv_kernel", "d_conv"),
            "mamba_d_state": ("state_size", "d_state"),
        },
    ),
    "jamba": Architecture(rules.hybrid(patterns.period_and_offset, parts.mamba)),
    "bamba": Architecture(rules.hybrid(patterns.listed_indices("attn_layer_indices", FULL, LINEAR), parts.mamba2)),
    "granitemoehybrid": Architecture(rules.hybrid(patterns.every_nth(LINEAR, LINEAR, "_period", 1), parts.mamba2)),
    "falcon_h1": Architecture(rules.every_layer_both(parts.mamba2)),
    "nemotron_h": Architecture(
        rules.letter_pattern,
        {
            "mamba_n_heads": ("mamba_num_heads",),
            "mamba_d_head": ("mamba_head_dim",),
            "mamba_n_groups": ("n_groups", "mamba_n_groups"),
            "mamba_d_conv": ("conv_kernel", "mamba_d_conv"),
            "mamba_d_state": ("ssm_state_size", "mamba_d_state"),
        },
    ),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), DELTA_HYBRID),
    **dict.fromkeys(
        ("lfm2", "lfm2_moe"),
        Architecture(rules.hybrid(patterns.listed_or_all_full("full_attn_idxs"), parts.short_conv)),
    ),
    "minimax": Architecture(rules.hybrid(patterns.every_nth(FULL, LINEAR, "_period", 2, offset=0), parts.lightning)),
    "recurrent_gemma": Architecture(
        rules.decoder(patterns.repeated_blocks, {LINEAR: parts.rg_lru}), {"sliding_window": ("attention_window_size",)}
    ),
    "rwkv": Architecture(rules.uniform(parts.rwkv4)),
    **dict.fromkeys(("rwkv5", "rwkv6", "rwkv7"), Architecture(rules.uniform(parts.rwkv_matrix))),
    "xlstm": Architecture(rules.uniform(parts.mlstm), {"num_layers": ("num_hidden_layers", "num_blocks")}),
    # an encoder's keys beside the decoder's own
    **dict.fromkeys(
        ("t5", "mt5", "umt5", "longt5", "bart", "mbart", "marian", "pegasus", "m2m_100", "led", "blenderbot"), ENCODER_DECODER
    ),
    "whisper": Architecture(rules.encoder_decoder, ENCODER_DECODER_ALIASES, encoder_tokens="max_source_positions"),
    **dict.fromkeys(
        ("mllama", "mllama_text_model"), Architecture(rules.vision_cross, notes=("an image's positions fill the cross layers",))
    ),
}
ARCHITECTURES.update((name, row) for name, row in remote_rows(ARCHITECTURES).items() if name not in ARCHITECTURES)
