"""The same model in another format, held against published files, in GiB as benchmarks and file listings print them."""

from __future__ import annotations

import pytest

from kvcalc.cli import main
from kvcalc.engines.weight_formats import FORMATS, bytes_in_format
from kvcalc.errors import UsageError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import preset_model
from kvcalc.readers.weights import parameters_of_preset

# Public benchmark tables of llama.cpp (Arc Pro B70, RTX 5060, ROCm, M1 Max) and its own table of bits a weight.
PUBLISHED = (
    ("llama-8b", "q4_k_m", 4.58),
    ("llama-8b", "q5_k_m", 5.33),
    ("llama-8b", "q6_k", 6.14),
    ("llama-8b", "q8_0", 7.95),
    ("llama-8b", "q4_0", 4.34),
    ("llama-70b", "q4_k_m", 39.59),
    ("llama-2-7b", "q4_k_m", 4.84 * 6_738_415_616 / 8 / 2**30),
    ("llama-2-7b", "q5_k_m", 5.68 * 6_738_415_616 / 8 / 2**30),
    ("llama-2-7b", "q5_k_s", 5.52 * 6_738_415_616 / 8 / 2**30),
    ("llama-2-7b", "q6_k", 6.56 * 6_738_415_616 / 8 / 2**30),
    ("qwen3-8b", "q4_k_m", 4.68),
    ("qwen3-14b", "q4_k_m", 8.38),
    ("qwen3-30b-a3b", "q4_k_m", 17.28),
    ("qwen3-30b-a3b", "q6_k", 23.36),
    ("qwen2.5-7b", "q4_k_m", 4.36),
    ("qwen2.5-coder-7b", "q4_k_m", 4.36),
    ("mistral-7b", "q4_k_m", 4.07),
    ("phi-4", "q4_k_m", 8.43),
)


@pytest.mark.parametrize(("name", "form", "published"), PUBLISHED)
def test_published_files_within_two_percent(name: str, form: str, published: float) -> None:
    found, said = bytes_in_format(form, parameters_of_preset(name, None), preset_model(name))
    assert abs(found / 2**30 / published - 1) < 0.02
    assert said.startswith("estimated")


def test_sixteen_bits_are_two_bytes_a_parameter() -> None:
    model = preset_model("qwen3-8b")
    assert bytes_in_format("bf16", 8_190_735_360, model)[0] == 2 * 8_190_735_360


def test_servers_formats_leave_embeddings_and_head_in_16_bits() -> None:
    """AWQ: 4 bits and 20 for each 128; 151,936 · 4,096 elements twice at 2 bytes."""
    table = 151_936 * 4_096
    body = 8_190_735_360 - 2 * table
    assert bytes_in_format("awq", 8_190_735_360, preset_model("qwen3-8b"))[0] == body * (4 * 128 + 20) // 1024 + 4 * table


def test_a_tied_table_is_stored_once() -> None:
    tied, apart = preset_model("qwen3-4b"), preset_model("qwen3-8b")
    assert bytes_in_format("q8_0", 5 * 10**9, tied)[0] == bytes_in_format("q8_0", 5 * 10**9, apart)[0]
    assert bytes_in_format("fp8", 4_022_468_096, tied)[0] < 4_022_468_096 + 151_936 * 2_560 + 10**6


@pytest.mark.parametrize("form", FORMATS)
def test_more_parameters_never_take_less(form: str) -> None:
    model = preset_model("llama-8b")
    sizes = [bytes_in_format(form, count, model)[0] for count in range(0, 2 * 10**9, 10**8)]
    assert sizes == sorted(sizes)


def test_without_a_vocabulary_it_is_said() -> None:
    model = model_of(
        {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}, "config.json", "toy"
    )
    assert "names no vocabulary" in bytes_in_format("q4_k_m", 1000, model)[1]


def test_a_word_that_is_no_format(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="neither a size"):
        bytes_in_format("q9_x", 1, preset_model("llama-8b"))
    assert main(["fit", "llama-8b", "--memory", "24GiB", "--weights", "q9_x"]) == 2
    assert "q4_k_m" in capsys.readouterr().err


def test_fit_takes_a_format() -> None:
    assert main(["fit", "llama-8b", "--memory", "24GiB", "--weights", "Q4-K-M"]) == 0
