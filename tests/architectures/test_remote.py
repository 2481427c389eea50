"""Model types outside transformers: published or worked config.json files, and their bytes as arithmetic.

Every figure is bfloat16, one sequence. Origins stand beside each case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kvcalc.cli.model_args import recognise
from kvcalc.core.layers import Recurrent, Shared, SlidingAttention, kind_of
from kvcalc.core.model import Model
from kvcalc.errors import ArchitectureError, ConfigError
from kvcalc.readers.hf_config import model_of, read_config

T = 4096
BF16 = 2


def read(config: Mapping[str, object]) -> Model:
    return model_of(config, "config.json", "model")


def tally(config: Mapping[str, object], tokens: int = T) -> dict[str, int]:
    """Bytes by component under the equation."""
    from kvcalc.core.model import Request
    from kvcalc.dtypes import find_dtype
    from kvcalc.engines.exact import ENGINE

    dtype = find_dtype("bf16")
    return ENGINE.allocate(read(config), Request(tokens=tokens, k_dtype=dtype, v_dtype=dtype)).component_bytes()


def kv(config: Mapping[str, object], tokens: int = T) -> int:
    return tally(config, tokens)["kv"]


def heads(layers: int, kv_heads: int, width: int, tokens: int = T) -> int:
    """2 · L · T · H_kv · D_h · s."""
    return 2 * layers * tokens * kv_heads * width * BF16


LLAMA = {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}


# Published files ----------------------------------------------------------------------------------------------------


def test_dbrx_s_kv_heads_stand_inside_attn_config() -> None:
    # sgl-project/ome testdata/dbrx_132b.json
    config = {
        "architectures": ["DbrxForCausalLM"],
        "d_model": 6144,
        "attn_config": {"attn_pdrop": 0.0, "clip_qkv": None, "kv_n_heads": 12, "rope_theta": 10000.0},
        "max_seq_len": 32768,
        "model_type": "dbrx",
        "n_heads": 48,
        "n_layers": 48,
        "torch_dtype": "bfloat16",
    }
    assert kv(config) == heads(48, 12, 6144 // 48)
    assert kv({**config, "attn_config": {}}) == heads(48, 1, 6144 // 48)  # DbrxAttentionConfig: kv_n_heads = 1
    assert read(config).max_tokens == 32768


def test_deepseek_vl2_tiny_turns_mla_off() -> None:
    # sgl-project/ome testdata/deepseek_vl2_tiny.json: use_mla false, null ranks, 10 heads of 1280 // 10
    inner = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "hidden_size": 1280,
        "kv_lora_rank": None,
        "max_position_embeddings": 4096,
        "model_type": "deepseek_v2",
        "num_attention_heads": 10,
        "num_hidden_layers": 12,
        "num_key_value_heads": 10,
        "q_lora_rank": None,
        "qk_nope_head_dim": 0,
        "qk_rope_head_dim": 0,
        "torch_dtype": "bfloat16",
        "use_mla": False,
        "v_head_dim": 0,
    }
    assert kv({"language_config": inner, "model_type": "deepseek_vl_v2"}) == heads(12, 10, 128)


def test_step_3_7_flash_is_flat() -> None:
    # ai-dynamo/aiconfigurator stepfun-ai--Step-3.7-Flash_config.json: 12 full layers of 45, windows of 512
    config = {
        "architectures": ["Step3p7FlashForCausalLM"],
        "model_type": "step3p7",
        "num_hidden_layers": 45,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "sliding_window": 512,
        "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 11 + ["full_attention"],
        "num_nextn_predict_layers": 3,
    }
    assert kv(config) == heads(12, 8, 128) + heads(33, 8, 128, tokens=512)
    assert len(read(config).draft_layers) == 3


def test_falcon_perception_uses_meta_s_names() -> None:
    # sophgo/LLM-TPU models/Falcon-Perception/config/config.json
    config = {
        "model_type": "falcon_perception",
        "torch_dtype": "float32",
        "dim": 1024,
        "n_layers": 28,
        "n_heads": 16,
        "head_dim": 128,
        "n_kv_heads": 8,
        "max_seq_len": 8192,
    }
    assert kv(config) == heads(28, 8, 128)
    assert read(config).max_tokens == 8192


def test_minicpm_v_has_its_decoder_s_keys_flat() -> None:
    # sophgo/LLM-TPU models/MiniCPM-V-2_6/compile/files/MiniCPM-V-2_6/config.json: a Qwen2 beside a vision tower
    config = {
        "architectures": ["MiniCPMV"],
        "hidden_size": 3584,
        "model_type": "minicpmv",
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "vision_config": {"hidden_size": 1152, "model_type": "siglip", "num_attention_heads": 16, "num_hidden_layers": 27},
    }
    assert kv(config) == heads(28, 4, 128)


def test_a_composite_of_unknown_type_has_a_known_decoder() -> None:
    # sophgo/LLM-TPU models/LocateAnything/config/config.json
    decoder = {
        "model_type": "qwen2",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_hidden_layers": 36,
        "num_key_value_heads": 2,
        "sliding_window": 32768,
        "use_sliding_window": False,
    }
    vision = {"model_type": "moonvit", "num_attention_heads": 16, "num_hidden_layers": 27}
    assert kv({"model_type": "locateanything", "text_config": decoder, "vision_config": vision}) == heads(36, 2, 128)


def test_phi_4_mini_flash_keeps_one_full_cache() -> None:
    # franciskamande-ai/cloned_models Phi-4-mini-flash-reasoning/config.json; configuration_phi4flash.py: the odd layers below
    # the middle slide, layer n/2 + 1 is full, later ones read its cache; even layers are Mamba up to the middle
    config = {
        "architectures": ["Phi4FlashForCausalLM"],
        "hidden_size": 2560,
        "max_position_embeddings": 262144,
        "mb_per_layer": 2,
        "model_type": "phi4flash",
        "num_attention_heads": 40,
        "num_hidden_layers": 32,
        "num_key_value_heads": 20,
        "sliding_window": 512,
        "torch_dtype": "bfloat16",
    }
    mamba = 5120 * 3 * BF16 + 5120 * 16 * 4
    assert tally(config) == {
        "kv": heads(8, 20, 64, tokens=512) + heads(1, 20, 64),
        "index": 0,
        "state": 9 * mamba,
        "other": 0,
    }
    assert [part.source for layer in read(config).layers for part in layer if isinstance(part, Shared)] == [16, 17] * 7


def test_telechat3_is_a_llama() -> None:
    # mlx-community/Telechat3-36B-Thinking-4bit, as a test of lablup/mlxcel has it
    config = {
        "architectures": ["Telechat3ForCausalLM"],
        "head_dim": 128,
        "hidden_size": 6144,
        "model_type": "telechat3",
        "num_attention_heads": 48,
        "num_hidden_layers": 64,
        "num_key_value_heads": 8,
        "torch_dtype": "bfloat16",
    }
    assert kv(config) == heads(64, 8, 128)


def test_plamo_13b_shares_each_kv_head_among_eight() -> None:
    # pfnet/plamo-13b's config: 40 query heads, n_shared_head 8; its num_key_value_heads 40 plays no part (mlx-lm plamo.py)
    config = {
        "architectures": ["PlamoForCausalLM"],
        "hidden_size": 5120,
        "max_position_embeddings": 4096,
        "model_type": "plamo",
        "n_shared_head": 8,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
        "num_key_value_heads": 40,
    }
    assert kv(config) == heads(40, 5, 128)


def test_plamo_2_1b_attends_in_every_other_layer() -> None:
    # pfnet/plamo-2-1b: mamba_step 2, heads of hidden_size_per_head
    config = {
        "model_type": "plamo2",
        "hidden_size": 2048,
        "hidden_size_per_head": 128,
        "mamba_d_conv": 4,
        "mamba_d_state": 64,
        "mamba_enabled": True,
        "mamba_num_heads": 32,
        "mamba_step": 2,
        "num_attention_heads": 16,
        "num_hidden_layers": 16,
        "num_key_value_heads": 1,
        "attention_window_size": 2048,
    }
    conv, state = 32 * 128 * 3 * BF16, 32 * 128 * 64 * 4
    assert tally(config) == {"kv": heads(8, 1, 128), "index": 0, "state": 8 * (conv + state), "other": 0}
    assert kind_of(read(config).layers[0]) == "mamba2"
    assert kv({**config, "mamba_enabled": False}) == heads(16, 1, 128)
    assert kind_of(read({**config, "num_hidden_layers": 2, "mamba_step": 4}).layers[1]) == "full_attention"


# Worked files: the sizes are plausible, the keys and the rule are the source's -----------------------------------------


PLAIN_TYPES = (
    "llava_llama",
    "llava_qwen",
    "llava_qwen2",
    "bunny-llama",
    "GOT",
    "dots_ocr",
    "kimi_audio",
    "isaac",
    "mimo",
    "openvla",
    "Keye",
    "KeyeVL1_5",
    "minicpmo",
    "param2moe",
    "sdar",
    "sdar_moe",
    "solar",
    "stablelm_epoch",
    "teleflm",
    "xllm",
    "k2_horizon",
    "llada2_moe",
    "bailing_moe_v2",
    "ernie4_5_moe_vl",
    "internlm2_ve",
    "internlmxcomposer2",
    "PanguProMoE",
)


@pytest.mark.parametrize("model_type", PLAIN_TYPES)
def test_plain_decoders(model_type: str) -> None:
    assert kv({**LLAMA, "model_type": model_type}) == heads(32, 8, 128)


@pytest.mark.parametrize("model_type", ["llava_mistral", "phi4mm", "phi4-siglip"])
def test_a_window_named_in_the_file_is_kept(model_type: str) -> None:
    assert kv({**LLAMA, "model_type": model_type, "sliding_window": 1024}) == heads(32, 8, 128, tokens=1024)
    assert kv({**LLAMA, "model_type": model_type, "sliding_window": None}) == heads(32, 8, 128)


@pytest.mark.parametrize(
    "model_type", ["kimi_vl", "dots_vlm", "AXK1", "joyai_llm_flash", "youtu_llm", "youtu_vl", "pangu_ultra_moe"]
)
def test_latent_decoders(model_type: str) -> None:
    config = {**LLAMA, "model_type": model_type, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert kv(config) == 32 * T * (512 + 64) * BF16


def test_vila_keeps_its_decoder_in_llm_cfg() -> None:
    # NVIDIA/TensorRT-LLM tests: VILA_1_5_3B_CONFIG names its decoder's sizes under llm_cfg
    assert kv({"model_type": "llava_llama", "hidden_size": 2560, "llm_cfg": {**LLAMA, "model_type": "llama"}}) == heads(
        32, 8, 128
    )


def test_mpt_counts_by_its_attention_kind() -> None:
    config = {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32}
    assert kv({**config, "attn_config": {"attn_type": "multihead_attention"}}) == heads(32, 32, 128)
    assert kv({**config, "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 8}}) == heads(32, 8, 128)
    assert kv({**config, "attn_config": {"attn_type": "multiquery_attention"}}) == heads(32, 1, 128)


def test_decilm_names_kv_heads_a_layer_or_blocks() -> None:
    config = {"model_type": "deci", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4}
    assert kv({**config, "num_key_value_heads_per_layer": [4, 4, 2, 1]}) == heads(1, 4 + 4 + 2 + 1, 128)
    blocks = [{"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": True}}] * 2
    assert kv({**config, "block_configs": blocks}) == heads(2, 32 // 8, 128)
    with pytest.raises(ConfigError, match="none for layer 3"):
        read({**config, "num_key_value_heads_per_layer": [4, 4, 2]})


def test_cogvlm2_names_its_kv_heads_multi_query() -> None:
    config = {"model_type": "cogvlm", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
    assert kv({**config, "num_multi_query_heads": 8}) == heads(32, 8, 128)
    assert kv(config) == heads(32, 32, 128)


def test_step_3_keeps_one_head_of_256() -> None:
    text = {"architectures": ["Step3TextForCausalLM"], "num_hidden_layers": 61, "num_attention_heads": 64, "head_dim": 256}
    assert kv({"model_type": "step3_vl", "text_config": text}) == heads(61, 1, 256)
    assert kv({**text, "model_type": "step3_text", "num_attention_groups": 1}) == heads(61, 1, 256)


def test_sizes_inside_an_object_of_their_own() -> None:
    # mlx-vlm jina_vlm and vLLM configs/moondream3.py
    block = {"attn_config": {"n_heads": 16, "n_kv_heads": 8, "head_dim": 128}}
    text = {"hidden_size": 2048, "n_layers": 28, "block_config": block, "max_sequence_length": 40960}
    assert kv({"model_type": "jvlm", "text_config": text}) == heads(28, 8, 128)
    assert kv({"model_type": "moondream3", "config": {"text": {"n_layers": 20, "n_kv_heads": 8}}}) == heads(20, 8, 2048 // 32)
    assert kv({"model_type": "moondream3", "config": {}}) == heads(24, 32, 64)


def test_mistral_s_own_format() -> None:
    # vLLM configs/mistral.py: a window, or a list of windows that repeats; MLA where the file names a rank
    sizes = {"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8, "norm_eps": 1e-5}
    assert kv(sizes) == heads(32, 8, 128)
    assert kv({**sizes, "sliding_window": 1024}) == heads(32, 8, 128, tokens=1024)
    assert kv({**sizes, "sliding_window": [None, 1024, 1024, 1024]}) == heads(8, 8, 128) + heads(24, 8, 128, tokens=1024)
    assert kv({**sizes, "kv_lora_rank": 512, "qk_rope_head_dim": 64}) == 32 * T * 576 * BF16
    with pytest.raises(ConfigError, match="sliding_window is an empty list"):
        read({**sizes, "sliding_window": []})
    with pytest.raises(ConfigError, match="must be an integer"):
        read({**sizes, "sliding_window": ["none"]})


def test_meta_s_own_format() -> None:
    assert kv({"dim": 8192, "n_layers": 80, "n_heads": 64, "n_kv_heads": 8, "multiple_of": 4096}) == heads(80, 8, 128)


def test_plamo_3_slides_but_in_every_eighth_layer() -> None:
    config = {**LLAMA, "model_type": "plamo3", "head_dim": 128, "num_key_value_heads": 4}
    expected = heads(4, 4, 128) + heads(28, 4, 128, tokens=2048)
    assert kv({**config, "window_size": 2048, "sliding_window_pattern": 8}) == expected
    assert kv({**config, "interleaved_sliding_window": [*[2048] * 7, None]}) == expected


def test_spark_slides_but_in_every_fourth_layer() -> None:
    config = {**LLAMA, "model_type": "spark2_5", "sliding_window": 1024}
    assert kv(config) == heads(8, 8, 128) + heads(24, 8, 128, tokens=1024)


def test_iquest_q1_frames_a_block_that_repeats() -> None:
    # SGLang configs/iquest_q1.py: 1 + 21 x 4 + 3 layers, of which 63 slide over 4096
    config = {"model_type": "iquest_q1"}
    assert kv(config, 8192) == heads(25, 8, 128, 8192) + heads(63, 8, 128, tokens=4096)
    assert kv({**config, "use_sliding_window": False}, 8192) == heads(88, 8, 128, 8192)
    with pytest.raises(ConfigError, match="do not make 88 layers"):
        read({**config, "num_hybrid_layers_block": 2})


def test_baichuan_m1_convolves_keys_and_values() -> None:
    config = {
        "model_type": "baichuan_m1",
        "hidden_size": 5120,
        "num_hidden_layers": 4,
        "num_attention_heads": 40,
        "num_key_value_heads": 2,
        "num_swa_attention_heads": 20,
        "num_swa_key_value_heads": 4,
        "sliding_window": 1024,
        "sliding_window_layers": [1, 3],
        "conv_window": 2,
    }
    column = 2 * BF16  # one past column of keys and one of values
    assert tally(config) == {
        "kv": heads(2, 2, 128) + heads(2, 4, 256, tokens=1024),
        "index": 0,
        "state": 2 * (2 * 128 + 4 * 256) * column,
        "other": 0,
    }


def test_pangu_s_windows_and_sinks() -> None:
    config = {**LLAMA, "model_type": "PanguEmbedded", "interleaved_sliding_window": [None, 512]}
    assert kv(config) == heads(16, 8, 128) + heads(16, 8, 128, tokens=512)
    sink = {**config, "model_type": "PanguProMoEV2", "qk_nope_dim": 128, "qk_rope_dim": 64, "v_channels": 128}
    assert kv(sink) == 16 * (T + 512) * 8 * (192 + 128) * BF16


def test_hunyuan_reads_the_first_layer_s_keys_in_each_group() -> None:
    # tencent/Tencent-Hunyuan-Large: use_cla with cla_share_factor 2 (SGLang hunyuan.py, mlx-lm hunyuan.py)
    config = {
        "model_type": "hunyuan",
        "hidden_size": 6400,
        "num_hidden_layers": 64,
        "num_attention_heads": 80,
        "num_key_value_heads": 8,
        "attention_head_dim": 128,
        "use_cla": True,
        "cla_share_factor": 2,
    }
    assert kv(config) == heads(32, 8, 128)
    assert read(config).layers[3] == (Shared(2),)
    assert kv({**config, "use_cla": False}) == heads(64, 8, 128)


def test_loops_keep_a_cache_each() -> None:
    coder = {**LLAMA, "model_type": "iquestloopcoder", "loop_num": 3, "loop_window_size": 64}
    assert kv(coder) == heads(32, 8, 128) + 2 * heads(32, 8, 128, tokens=64)
    nanbeige = {**LLAMA, "model_type": "nanbeige", "num_loops": 2}
    assert kv(nanbeige) == 2 * heads(32, 8, 128)
    assert kv({**nanbeige, "loop_loss_weights": [0.1, 0.2]}) == 3 * heads(32, 8, 128)
    assert kv({**nanbeige, "loop_share_kv": True}) == heads(32, 8, 128)
    for config in ({**coder, "loop_num": 10**6}, {**nanbeige, "num_loops": 10**6}):
        with pytest.raises(ConfigError, match="are more than 10,000"):
            read(config)


def test_afm7_s_last_layers_read_an_earlier_cache() -> None:
    config = {
        "model_type": "afm7",
        "hidden_dim": 2048,
        "num_layers": 56,
        "num_kv_reuse_layers": 21,
        "num_heads": 16,
        "num_kv_heads": 2,
    }
    assert kv(config) == heads(35, 2, 128)


def test_minimax_text_01_says_each_layer_s_kind_by_number() -> None:
    config = {
        "model_type": "minimax_text_01",
        "hidden_size": 6144,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attn_type_list": ([0] * 7 + [1]) * 10,
    }
    state = 70 * 64 * 128 * 128 * 4
    assert tally(config) == {"kv": heads(10, 8, 128), "index": 0, "state": state, "other": 0}
    with pytest.raises(ArchitectureError, match="attn_type_list: 2 is not known"):
        read({**config, "attn_type_list": [2] * 80})


def test_minicpm_sala_says_it_by_word() -> None:
    config = {**LLAMA, "model_type": "minicpm_sala", "lightning_nkv": 32, "mixer_types": ["minicpm4", "lightning"]}
    assert tally(config) == {"kv": heads(16, 8, 128), "index": 0, "state": 16 * 32 * 128 * 128 * 4, "other": 0}
    with pytest.raises(ArchitectureError, match="mixer_types: 'mamba' is not known"):
        read({**config, "mixer_types": ["mamba"]})


def test_bailing_linear_attends_at_the_end_of_each_group() -> None:
    config = {**LLAMA, "model_type": "bailing_moe_linear", "layer_group_size": 5}  # 6 groups, and 2 layers left over
    assert kv(config) == heads(6 + 2, 8, 128)


def test_gigachat_3_5_mixes_latents_and_delta_nets() -> None:
    config = {
        "model_type": "gigachat3_5",
        "hidden_size": 1280,
        "num_hidden_layers": 12,
        "num_attention_heads": 16,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "full_attention_layers": [3, 7, 11],
        "linear_num_key_heads": 8,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    }
    layer = (2 * 8 + 16) * 128 * 3 * BF16 + 16 * 128 * 128 * 4
    assert tally(config) == {"kv": 3 * T * 576 * BF16, "index": 0, "state": 9 * layer, "other": 0}


def test_jet_nemotron_s_blocks() -> None:
    own = {"swa": {"window_size": 1024}, "jet": {"num_heads": 12, "head_dim": 96, "expand_v": 2.0, "conv_size": 4}}
    config = {
        "model_type": "jet_nemotron",
        "hidden_size": 2048,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "layer_types": ["jet", "attn", "swa", "jet"],
        "efficient_attention_config": own,
    }
    block = 12 * 192 * 3 * BF16 + 12 * 192 * 96 * 4
    assert tally(config) == {
        "kv": heads(1, 2, 128) + heads(1, 2, 128, tokens=1024),
        "index": 0,
        "state": 2 * block,
        "other": 0,
    }


def test_deepseek_v4_1_compresses_in_its_source_layers_alone() -> None:
    # vLLM models/deepseek_v41/attention.py: windows in every layer, compressed and index rows in kv_source_layer_ids
    text = {
        "model_type": "deepseek_v41_text",
        "num_hidden_layers": 6,
        "num_attention_heads": 64,
        "head_dim": 512,
        "sliding_window": 128,
        "compress_ratios": [0, 0, 1, 1, 2, 2],
        "kv_source_layer_ids": [2, 4],
        "index_source_layer_ids": [2, 4],
        "index_head_dim": 128,
    }
    rows = T + T // 2
    assert tally({"model_type": "deepseek_v41", "text_config": text}) == {
        "kv": (6 * 128 + rows) * 512 * BF16,
        "index": rows * 128 * BF16,
        "state": 2 * 2 * 512 * 4,
        "other": 0,
    }


def test_longcat_s_ngram_model_is_known_by_its_class() -> None:
    config = {
        "architectures": ["LongcatFlashNgramForCausalLM"],
        "num_layers": 14,
        "hidden_size": 3072,
        "num_attention_heads": 32,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    }
    assert kv(config) == 2 * 14 * T * 576 * BF16


def test_zaya_vl_keeps_a_convolution_beside_its_heads() -> None:
    config = {
        "model_type": "zaya1_vl",
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 8,
        "num_query_groups": 2,
        "head_dim": 128,
    }
    assert kv(config) == heads(40, 2, 128)


def test_the_original_mamba_files() -> None:
    # state-spaces/mamba-2.8b, mamba2-2.7b and mamba2attn-2.7b: ssm_cfg, and attention in listed layers
    sizes = {"d_model": 2560, "n_layer": 64, "pad_vocab_size_multiple": 8}
    first = {**sizes, "ssm_cfg": {}}
    assert tally(first)["state"] == 64 * (5120 * 3 * BF16 + 5120 * 16 * 4)
    second = {**sizes, "ssm_cfg": {"layer": "Mamba2"}}
    assert tally(second)["state"] == 64 * ((5120 + 2 * 128) * 3 * BF16 + 80 * 64 * 128 * 4)
    attention = {"num_heads": 30, "head_dim": 128, "d_conv": 4}
    both = {**second, "attn_layer_idx": [9, 18, 27, 36, 45, 56], "attn_cfg": attention}
    assert kv(both) == heads(6, 30, 128)
    assert sum(isinstance(part, Recurrent) for layer in read(both).layers for part in layer) == 64
    assert kv({**both, "attn_cfg": {"num_heads": 20, "num_heads_kv": 4}}) == heads(6, 4, 128)
    with pytest.raises(ConfigError, match="do not divide the inner width"):
        read({**sizes, "ssm_cfg": {"layer": "Mamba2", "headdim": 60}})


def test_windows_of_a_layer_are_windows() -> None:
    config = {**LLAMA, "model_type": "iquestloopcoder"}
    assert all(isinstance(layer[0], SlidingAttention) for layer in read(config).layers[32:])


def test_falcon_s_first_files_name_their_heads_without_a_switch() -> None:
    # tiiuae/falcon-40b and falcon-7b as first published (vLLM configs/falcon.py): n_head_kv alone, multi_query alone
    large = {"model_type": "RefinedWeb", "n_head": 128, "n_head_kv": 8, "n_layer": 60, "hidden_size": 8192}
    assert kv(large) == heads(60, 8, 64)
    small = {"model_type": "RefinedWebModel", "n_head": 71, "n_layer": 32, "hidden_size": 4544, "multi_query": True}
    assert kv(small) == heads(32, 1, 64)


@pytest.mark.parametrize(
    ("model_type", "decoder"),
    [("cambrian_llama", "llama"), ("moe_llava_mistral", "mistral"), ("vita-Qwen2", "qwen2"), ("ola_qwen", "qwen2")],
)
def test_llava_s_format_names_the_decoder_at_the_end(model_type: str, decoder: str) -> None:
    config = {**LLAMA, "model_type": model_type, "mm_vision_tower": "openai/clip", "sliding_window": None}
    assert read(config).model_type == decoder
    assert kv(config) == heads(32, 8, 128)


def test_llava_s_format_without_a_known_decoder_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="'weird_vl' is not known"):
        read({**LLAMA, "model_type": "weird_vl", "mm_vision_tower": "openai/clip"})
    with pytest.raises(ArchitectureError, match="'cambrian_llama' is not known"):
        read({**LLAMA, "model_type": "cambrian_llama"})


def test_a_first_qwen_in_llava_s_format_has_one_kv_head_a_query_head() -> None:
    config = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "kv_channels": 128}
    assert kv({**config, "model_type": "llava_first_qwen", "mm_hidden_size": 1024}) == heads(32, 32, 128)


@pytest.mark.parametrize(
    ("model_type", "why"),
    [
        ("ultravox", "text_model_id"),
        ("hymba", "meta tokens"),
        ("retnet", "retention"),
        ("medusa", "without a cache of their own"),
    ],
)
def test_a_type_that_is_not_modelled_is_refused_with_its_reason(model_type: str, why: str) -> None:
    with pytest.raises(ArchitectureError, match=why):
        read({**LLAMA, "model_type": model_type})


def test_ultravox_with_its_decoder_s_sizes_is_that_decoder() -> None:
    assert kv({"model_type": "ultravox", "text_config": {**LLAMA, "model_type": "llama"}}) == heads(32, 8, 128)


def test_ouro_keeps_a_cache_a_step() -> None:
    config = {**LLAMA, "model_type": "ouro"}
    assert kv(config) == 4 * heads(32, 8, 128)
    assert kv({**config, "total_ut_steps": 2}) == 2 * heads(32, 8, 128)


def test_motif_s_latents_slide_but_in_every_fourth_layer() -> None:
    # Motif-Technologies/Motif-3: 53 layers, 14 of them global, rank 512 and 64 rope columns
    config = {
        "model_type": "Motif",
        "hidden_size": 4096,
        "num_hidden_layers": 53,
        "num_attention_heads": 80,
        "num_key_value_heads": 16,
        "head_dim": 192,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "use_sliding_window": True,
        "sliding_window": 128,
        "sliding_window_period": 4,
    }
    assert kv(config) == (14 * T + 39 * 128) * 576 * BF16
    assert kv({**config, "qk_rope_head_dim": None}) == (14 * T + 39 * 128) * (512 + 96) * BF16
    plain = {"model_type": "Motif", "hidden_size": 2048, "num_hidden_layers": 32, "num_attention_heads": 16}
    assert kv({**plain, "num_key_value_heads": 16}) == heads(32, 16, 128)


def test_olmo_s_own_format() -> None:
    config = {"model_type": "hf_olmo", "d_model": 4096, "n_heads": 32, "n_layers": 32}
    assert kv(config) == heads(32, 32, 128)
    assert kv({**config, "n_kv_heads": 8}) == heads(32, 8, 128)
    assert kv({**config, "multi_query_attention": True}) == heads(32, 1, 128)


@pytest.mark.parametrize("model_type", ["mixformer-sequential", "moss"])
def test_gpt_2_s_names_for_the_sizes(model_type: str) -> None:
    assert kv({"model_type": model_type, "n_embd": 2048, "n_head": 32, "n_layer": 24}) == heads(24, 32, 64)


def test_cpm_bee_names_a_head_s_width() -> None:
    config = {"model_type": "cpmbee", "hidden_size": 4096, "num_attention_heads": 32, "dim_head": 128, "num_hidden_layers": 48}
    assert kv(config) == heads(48, 32, 128)


# Draft layers, and where files stand -----------------------------------------------------------------------------------


def test_step_3_5_s_list_of_kinds_goes_on_to_its_draft_layers() -> None:
    # stepfun-ai/Step-3.5-Flash: 45 layers and 3 of prediction; layer_types has 48 words, the last three sliding
    words = ["full_attention", *["sliding_attention"] * 3] * 12
    config = {
        "model_type": "step3p5",
        "num_hidden_layers": 45,
        "num_nextn_predict_layers": 3,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "num_attention_groups": 8,
        "attention_other_setting": {
            "attention_type": "sliding_attention",
            "num_attention_heads": 96,
            "num_attention_groups": 8,
            "head_dim": 128,
        },
        "head_dim": 128,
        "sliding_window": 512,
        "layer_types": words,
    }
    drafts = read(config).draft_layers
    assert [kind_of(layer) for layer in drafts] == [SlidingAttention.kind] * 3
    assert kind_of(read({**config, "layer_types": words[:45]}).draft_layers[0]) == "full_attention"


def test_a_draft_model_of_the_speculators_library() -> None:
    # vLLM configs/speculators: the sizes stand in transformer_layer_config
    inner = {**LLAMA, "model_type": "llama", "num_hidden_layers": 1, "head_dim": 128}
    config = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "transformer_layer_config": inner}
    assert kv(config) == heads(1, 8, 128)


def test_nemotron_s_puzzle_differs_in_its_experts_alone() -> None:
    config = {
        "model_type": "nemotron_h_puzzle",
        "hidden_size": 2688,
        "hybrid_override_pattern": "MEM*E",
        "num_hidden_layers": 5,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "block_configs": [{}, {"n_routed_experts": 96}, {}, {}, {"n_routed_experts": 128}],
    }
    assert kv(config) == heads(1, 2, 128)


def test_a_folder_may_hold_a_params_json_instead(tmp_path: Path) -> None:
    # mistralai/Mistral-7B-v0.1's params.json
    sizes = {"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8}
    (tmp_path / "params.json").write_text(json.dumps({**sizes, "vocab_size": 32000}))
    assert read_config(tmp_path).name == tmp_path.name
    assert len(read_config(tmp_path).layers) == 32
    assert recognise(str(tmp_path)).kind == "config"
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "model_type": "llama", "num_hidden_layers": 2}))
    assert len(read_config(tmp_path).layers) == 2


def test_the_cache_type_of_an_older_compressed_file() -> None:
    # vLLM transformers_utils/model_arch_config_convertor.py: compression_config, before it was quantization_config
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    model = read({**LLAMA, "model_type": "llama", "compression_config": {"kv_cache_scheme": scheme}})
    assert (model.cache_dtype, model.cache_dtype_origin) == ("fp8_e4m3", "config.json: compression_config.kv_cache_scheme")
