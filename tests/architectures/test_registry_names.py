"""Files of ollama's registry: the same model under upstream's names."""

from __future__ import annotations

from kvcalc.architectures.registry_names import upstream
from kvcalc.core.gguf import GgufMetadata
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf

GPT_OSS = {"gptoss.block_count": 4, "gptoss.embedding_length": 512, "gptoss.context_length": 4096}
GPT_OSS |= {"gptoss.attention.head_count": 8, "gptoss.attention.head_count_kv": 8, "gptoss.attention.sliding_window": 128}
GLM = {"glm4moelite.attention.kv_lora_rank": 512, "glm4moelite.rope.dimension_count": 64, "glm4moelite.block_count": 4}
GLM |= {
    "glm4moelite.attention.key_length": 256,
    "glm4moelite.attention.value_length": 256,
    "glm4moelite.attention.head_count": 20,
}


def test_keys_take_upstream_s_name() -> None:
    found = upstream(GgufMetadata({"general.architecture": "gptoss", **GPT_OSS}))
    assert found["general.architecture"] == "gpt-oss"
    assert found["gpt-oss.attention.sliding_window"] == 128
    assert not any(key.startswith("gptoss.") for key in found)


def test_a_model_of_the_registry_is_that_of_upstream() -> None:
    own = GgufFile(GgufMetadata({"general.architecture": "gptoss", **GPT_OSS}), "a")
    renamed = {key.replace("gptoss.", "gpt-oss."): value for key, value in GPT_OSS.items()}
    other = GgufFile(GgufMetadata({"general.architecture": "gpt-oss", **renamed}), "a")
    assert model_of_gguf(own, {}).layers == model_of_gguf(other, {}).layers


def test_widths_of_a_head_become_those_of_the_latent() -> None:
    found = upstream(GgufMetadata({"general.architecture": "glm4moelite", **GLM}))
    keys = ("head_count_kv", "key_length", "value_length", "key_length_mla", "value_length_mla")
    assert [found[f"deepseek2.attention.{key}"] for key in keys] == [1, 512 + 64, 512, 256, 256]


def test_other_files_are_left_as_they_are() -> None:
    metadata = GgufMetadata({"general.architecture": "llama", "llama.block_count": 4})
    assert upstream(metadata) is metadata
