"""What Hugging Face files call the neutral fields, when their type's own row doesn't say."""

from __future__ import annotations

COMMON_ALIASES: dict[str, tuple[str, ...]] = {
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    "num_kv_heads": (
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "n_kv_heads",
        "kv_n_heads",
        "num_query_groups",
        "num_attention_groups",
    ),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed", "model_dim", "dim"),
    "max_tokens": (
        "max_position_embeddings",
        "n_positions",
        "max_sequence_length",
        "seq_length",
        "max_seq_len",
        "n_ctx",
        "max_target_positions",
        "context_length",
        "model_max_length",
    ),
}

ENCODER_DECODER_ALIASES: dict[str, tuple[str, ...]] = {
    "num_layers": ("decoder_layers", "num_decoder_layers", "decoder_num_hidden_layers", "num_layers", "num_hidden_layers"),
    "num_attention_heads": (
        "decoder_attention_heads",
        "num_decoder_attention_heads",
        "num_heads",
        "decoder_num_attention_heads",
        "num_attention_heads",
    ),
    "num_kv_heads": ("decoder_num_key_value_heads", "num_key_value_heads"),
    "head_dim": ("d_kv", "head_dim"),
    "hidden_size": ("d_model", "hidden_size"),
    "max_tokens": ("max_target_positions", "n_positions", "max_position_embeddings"),
}

# Where a composite keeps its decoder, in the order in which libraries look.
NESTED_KEYS: tuple[str, ...] = (
    "thinker_config",
    "decoder",
    "generator",
    "text_config",
    "language_config",
    "llm_config",
    "llm_cfg",
    "decoder_config",
    "text_model_config",
    "lm_config",
    "language_model_config",
    "transformer_layer_config",  # a draft model as the speculators library writes it (vLLM configs/speculators)
)

# Names of layer kinds in files (``layer_types`` and its older forms) → the kinds that the rules build.
LAYER_KINDS: dict[str, str] = {
    "full_attention": "full_attention",
    "attention": "full_attention",
    "global_attention": "full_attention",
    "global": "full_attention",
    "sliding_attention": "sliding_attention",
    "sliding_window": "sliding_attention",
    "local_attention": "sliding_attention",
    "local": "sliding_attention",
    "chunked_attention": "chunked_attention",
    "linear_attention": "linear_attention",
    "linear": "linear_attention",
    "mamba": "linear_attention",
    "mamba2": "linear_attention",
    "recurrent": "linear_attention",
    "conv": "linear_attention",
    "hybrid": "hybrid",
    "hybrid_sliding": "hybrid_sliding",
    "reference_sliding_attention": "reference_sliding_attention",
    "minimax_m3_sparse": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
    "indexed_attention": "indexed_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "moe": "none",
    "mlp": "none",
}

# Keys outside the class defaults that published files may hold and that rules or readers look at.
# Sizes of weights and buffers alone: no cache goes by them.
SIZE_KEYS = (
    *("vocab_size", "padded_vocab_size", "tie_word_embeddings", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff"),
    *("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "num_experts_per_tok"),
    *("num_experts", "n_routed_experts", "num_local_experts", "n_shared_experts"),
)
EXTRA_KEYS: frozenset[str] = frozenset(
    (
        *SIZE_KEYS,
        "model_type",
        "dtype",
        "torch_dtype",
        "architectures",
        "quantization_config",
        "cache_implementation",
        "vision_config",
        "audio_config",
        "index_topk",
        "index_topk_freq",
        "index_topk_pattern",
        "index_skip_topk_offset",
        "index_share_for_mtp_iteration",
        "mtp_num_hidden_layers",
        "num_mtp_modules",
        "mtp_transformer_layers",
        "use_mtp",
        "_num_mtp_layers",
        "mtp_share_layers",
        "mamba_ssm_dtype",
        "mamba_ssm_cache_dtype",
        "attn_type_list",
        "swa_v_head_dim",
        "hybrid_layer_pattern",
        "block_configs",
        "blocksparse_block_size",
        "blocksparse_homo_head_pattern",
        "blocksparse_num_local_blocks",
        "blocksparse_triton_kernel_block_size",
        "blocksparse_vert_stride",
        "dense_attention_every_n_layers",
        "multi_query_attention",
        "multi_query_group_num",
        "full_attn_mod",
        "head_size",
        "sparse_attention_config",
        "compress_ratios",
        "ssm_cfg",
        "attn_config",
        "linear_attn_config",
        "num_query_heads",
        "num_transformer_layers",
        "max_context_length",
        "sliding_window_pattern",
    )
)
