"""``kvcalc check``: the verdict on a launch line, its figures and what it says to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

GIB = 2**30
# Llama 3.1 8B: 32 layers x 8 key/value heads x 128 x key and value x 2 bytes
LLAMA_TOKEN = 32 * 8 * 128 * 2 * 2
LLAMA = "meta-llama/Meta-Llama-3.1-8B"


def asked(cli: Cli, *words: object) -> tuple[int, list[dict[str, Any]]]:
    ran = cli("check", *words, "--json")
    assert "Traceback" not in ran.err
    return ran.code, json.loads(ran.out)["commands"]


def answered(cli: Cli, *words: object) -> tuple[int, dict[str, Any]]:
    code, commands = asked(cli, *words)
    (command,) = commands
    return code, command["answer"]


def test_a_line_that_fits(cli: Cli) -> None:
    line = f"vllm serve {LLAMA} --max-model-len 8192"
    code, answer = answered(cli, line, "--memory", "24GiB", "--weights", "16GB")
    left = int(24 * GIB * 0.92) - 16_000_000_000
    assert (code, answer["verdict"], answer["tokens"]) == (0, "fits", 8192)
    assert answer["cache_bytes"] == 8192 * LLAMA_TOKEN
    assert answer["sequences"] == left // (8192 * LLAMA_TOKEN)


def test_a_line_that_does_not_fit_is_answered_with_a_flag_that_does(cli: Cli) -> None:
    line = f"vllm serve {LLAMA} --max-model-len 131072"
    code, answer = answered(cli, line, "--memory", "24GiB", "--weights", "16GB")
    assert (code, answer["verdict"]) == (1, "does not fit")
    change = next(change for change in answer["changes"] if change["flag"] == "--max-model-len")
    assert change["before"] == "131072"
    longest = int(change["after"])
    for tokens, expected in ((longest, 0), (longest + 16, 1)):
        line = f"vllm serve {LLAMA} --max-model-len {tokens}"
        assert answered(cli, line, "--memory", "24GiB", "--weights", "16GB")[0] == expected


@pytest.mark.parametrize("index", range(3))
def test_every_change_gives_what_it_says(cli: Cli, index: int) -> None:
    line = f"vllm serve {LLAMA} --max-model-len 131072"
    _, answer = answered(cli, line, "--memory", "24GiB", "--weights", "12GB")
    if index >= len(answer["changes"]):
        pytest.skip("fewer changes")
    change = answer["changes"][index]
    changed = line.replace(f"{change['flag']} {change['before']}", "") + f" {change['flag']} {change['after']}"
    code, after = answered(cli, changed, "--memory", "24GiB", "--weights", "12GB")
    assert (code, after["verdict"]) == (0, "fits")


def test_a_narrower_cache_is_advised_where_it_holds_more(cli: Cli) -> None:
    line = f"vllm serve {LLAMA} --max-model-len 8192"
    _, answer = answered(cli, line, "--memory", "24GiB", "--weights", "16GB")
    change = next(change for change in answer["changes"] if change["flag"] == "--kv-cache-dtype")
    _, after = answered(cli, f"{line} --kv-cache-dtype fp8", "--memory", "24GiB", "--weights", "16GB")
    assert change["gives"].startswith(f"{after['sequences']} instead of {answer['sequences']}")
    assert all(change["flag"] != "--kv-cache-dtype" for change in after["changes"])


def test_ranks_share_heads_and_weights(cli: Cli) -> None:
    line = f"vllm serve {LLAMA} --max-model-len 8192 -tp 2"
    _, answer = answered(cli, line, "--memory", "24GiB", "--weights", "16GB")
    assert answer["ranks"] == 2
    assert answer["cache_bytes"] == 8192 * LLAMA_TOKEN // 2
    assert answer["budget_bytes"] == pytest.approx(int(24 * GIB * 0.92) - 8_000_000_000, abs=3 * 2**20)


def test_sglang_starts_all_the_same(cli: Cli) -> None:
    line = f"python -m sglang.launch_server --model-path {LLAMA} --context-length 131072 --mem-fraction-static 0.85"
    code, answer = answered(cli, line, "--memory", "24GiB", "--weights", "16GB")
    assert (code, answer["verdict"]) == (1, "does not fit")
    assert any("starts" in why for why in answer["why"])


def test_dp_attention_keeps_whole_heads(cli: Cli) -> None:
    line = "sglang serve --model-path Qwen/Qwen3-8B --tp 8 --dp 8 --context-length 4096"
    _, plain = answered(cli, line, "--memory", "80GiB", "--weights", "16GB")
    _, attention = answered(cli, f"{line} --enable-dp-attention", "--memory", "80GiB", "--weights", "16GB")
    assert (plain["ranks"], attention["ranks"]) == (64, 8)
    assert attention["cache_bytes"] == pytest.approx(8 * plain["cache_bytes"], rel=0.01)


def test_llamacpp_allocates_every_slot(cli: Cli) -> None:
    line = "llama-server -m qwen3-8b.gguf -c 16384 -np 4"
    code, answer = answered(cli, line, "--model", "qwen3-8b", "--memory", "24GiB", "--weights", "5GB")
    # 36 layers x 8 heads x 128 x key and value x 2 bytes
    assert (code, answer["cache_bytes"]) == (0, 16384 * 36 * 8 * 128 * 2 * 2)
    code, answer = answered(cli, line, "--model", "qwen3-8b", "--memory", "6GiB", "--weights", "5GB")
    # each of the four slots is padded to 256 cells
    shorter = next(change for change in answer["changes"] if change["flag"] == "--ctx-size")
    assert (code, shorter["after"]) == (1, str((6 * GIB - 5_000_000_000) // (36 * 8 * 128 * 2 * 2) // 1024 * 1024))


def test_without_a_card_the_cache_is_told(cli: Cli) -> None:
    code, answer = answered(cli, f"vllm serve {LLAMA} --max-model-len 8192")
    assert (code, answer["verdict"], answer["cache_bytes"]) == (0, "open", 8192 * LLAMA_TOKEN)


def test_without_weights_nothing_is_promised(cli: Cli) -> None:
    code, answer = answered(cli, "llama-server -m Qwen3-8B-IQ4_NL.gguf -c 4096", "--memory", "24GiB")
    assert (code, answer["verdict"]) == (0, "open")
    code, answer = answered(cli, "llama-server -m Qwen3-8B-IQ4_NL.gguf -c 4096", "--memory", "512MiB")
    assert (code, answer["verdict"]) == (1, "does not fit")


def test_weights_of_a_format_that_the_name_tells(cli: Cli) -> None:
    parameters = 8_190_735_360  # of Qwen3 8B; AWQ keeps about 4 bits of each, its embeddings and head in 16
    _, answer = answered(cli, "vllm serve Qwen/Qwen3-8B-AWQ --max-model-len 8k", "--memory", "24GiB")
    assert parameters // 2 < answer["weights_bytes"] < parameters
    assert any("estimated" in note for note in answer["notes"])
    _, said = answered(cli, "vllm serve Qwen/Qwen3-8B --max-model-len 8k", "--memory", "24GiB", "--weights", "awq")
    assert said["weights_bytes"] == answer["weights_bytes"]
    _, named = answered(cli, "vllm serve x/y --max-model-len 8k", "--model", "qwen3-8b", "--memory", "24GiB", "--weights", "awq")
    assert named["weights_bytes"] == answer["weights_bytes"]


CONTRADICTED = (
    "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-8B -tp 4",
    "docker run --gpus 1 vllm/vllm-openai --model Qwen/Qwen3-8B -tp 2",
)


def test_more_ranks_than_cards_are_named(cli: Cli) -> None:
    line = "vllm serve Qwen/Qwen3-8B -tp 4 --max-model-len 4k"
    assert answered(cli, line, "--gpu", "2xh100")[1]["verdict"] == "contradicts itself"
    assert answered(cli, line, "--gpu", "4xh100")[1]["verdict"] != "contradicts itself"


@pytest.mark.parametrize("line", CONTRADICTED)
def test_more_ranks_than_cards(cli: Cli, line: str) -> None:
    code, answer = answered(cli, line, "--memory", "24GiB")
    assert (code, answer["verdict"]) == (2, "contradicts itself")


REFUSED = {
    "vllm serve Qwen/Qwen3-8B -tp 3": "32 attention heads",
    "vllm serve Qwen/Qwen3-8B --max-model-len 100k": "100,000 tokens",
    "vllm serve Qwen/Qwen3-8B --max-num-seqs many": "no whole number",
    "docker run vllm/vllm-openai:v0.32.0 --model Qwen/Qwen3-8B --swap-space 4": "--swap-space",
    "llama-server -m Qwen3-8B.gguf -c 4096 -ctv q8_0 -fa off": "flash attention",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_the_engine_refuses(cli: Cli, line: str) -> None:
    code, answer = answered(cli, line, "--memory", "24GiB")
    assert (code, answer["verdict"]) == (4, "refused")
    assert any(REFUSED[line] in why for why in answer["why"])


@pytest.mark.parametrize(
    ("words", "code", "fix"),
    [
        (["vllm serve someone/something-unheard-of"], 2, "--model"),
        (["vllm serve Qwen/Qwen3-8B -tp $TP", "--memory", "24GiB"], 2, "--var"),
        (["ls -l"], 3, "starts vLLM"),
        (["missing.yaml"], 3, "path"),
        (["vllm serve Qwen/Qwen3-8B", "--gpu", "h100", "--memory", "24GiB"], 2, "--gpu or --memory"),
        (["vllm serve Qwen/Qwen3-8B", "--var", "x"], 2, "TP=4"),
    ],
)
def test_what_cannot_be_answered(cli: Cli, words: list[str], code: int, fix: str) -> None:
    ran = cli("check", *words)
    assert ran.code == code
    assert fix in ran.err


def test_a_variable_from_the_command_line(cli: Cli) -> None:
    code, answer = answered(
        cli, f"vllm serve {LLAMA} -tp $TP --max-model-len 8k", "--var", "TP=2", "--memory", "24GiB", "--weights", "16GB"
    )
    assert (code, answer["ranks"], answer["tokens"]) == (0, 2, 8000)


def test_files_beside_each_other(cli: Cli, tmp_path: Path) -> None:
    script, config = tmp_path / "run.sh", tmp_path / "server.yaml"
    script.write_text(f"vllm serve {LLAMA} --config server.yaml --max-num-seqs 4\n")
    config.write_text("max-model-len: 4096\nmax-num-seqs: 8\nenforce-eager: true\n")
    _, commands = asked(cli, script, config, "--settings")
    assert commands[0]["place"] == f"{script}: line 1"
    settings = commands[0]["settings"]
    assert {"max-model-len": 4096, "max-num-seqs": 4, "enforce-eager": True}.items() <= settings.items()


def test_the_worst_launch_decides_the_code(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"vllm serve {LLAMA} --max-model-len 4k\nvllm serve {LLAMA} --max-model-len 128000\n")
    code, commands = asked(cli, script, "--memory", "24GiB", "--weights", "16GB")
    assert (code, [command["answer"]["verdict"] for command in commands]) == (1, ["fits", "does not fit"])


def test_what_a_terminal_would_obey_is_escaped(cli: Cli) -> None:
    ran = cli("check", "vllm serve 'a/\x1b[31mb' --max-model-len '\x1b]0;x\x07'", "--settings")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert "\\x1b" in ran.out


@pytest.mark.parametrize("share", ["0.$98", "-0.5", "1.5", "0", '{"a": 1}'])
def test_what_is_no_share(cli: Cli, share: str) -> None:
    for name in ("--gpu-memory-utilization", "--gpu-memory-utilization.a"):
        ran = cli("check", f"vllm serve Qwen/Qwen3-8B {name}='{share}'", "--memory", "24GiB")
        assert ran.code in (2, 4)
        assert "bug" not in ran.err


@pytest.mark.parametrize("verb", ["estimate", "fit", "inspect"])
def test_the_other_verbs_point_to_this_one(cli: Cli, verb: str) -> None:
    ran = cli(verb, "vllm serve Qwen/Qwen3-8B -tp 2")
    assert ran.code == 2
    assert "kvcalc check" in ran.err


def test_what_is_read_and_no_part_of_the_figures_is_said(cli: Cli) -> None:
    line = f"vllm serve {LLAMA} --max-model-len 8k --enable-lora --speculative-model x/y"
    _, answer = answered(cli, line, "--memory", "24GiB", "--weights", "16GB")
    notes = " ".join(answer["notes"])
    assert "enable-lora" in notes
    assert "draft" in notes


def test_a_release_older_than_any_that_is_known_is_promised_nothing(cli: Cli) -> None:
    line = f"docker run vllm/vllm-openai:v0.6.6 --model {LLAMA} --max-model-len 8192"
    code, answer = answered(cli, line, "--memory", "24GiB", "--weights", "16GB")
    assert (code, answer["verdict"], answer["cache_bytes"]) == (0, "open", 8192 * LLAMA_TOKEN)
    assert "0.6.6 are not known" in answer["why"][0]


def test_the_dtype_of_tensorrt_llm_is_the_models(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    start = f"trtllm-serve {LLAMA} --max_seq_len 8192 --extra_llm_api_options x.yml\n"
    file.write_text(
        f"cat > x.yml <<EOF\ndtype: bfloat16\nkv_cache_config:\n  dtype: fp8\n  free_gpu_memory_fraction: 0.5\nEOF\n{start}"
    )
    code, answer = answered(cli, file, "--memory", "24GiB", "--weights", "8GB")
    assert (code, answer["cache_bytes"]) == (0, 8192 * LLAMA_TOKEN // 2)
    assert answer["budget_bytes"] == (24 * GIB - 8_000_000_000) // 2


def test_ollama_starts_llamacpps_server(cli: Cli) -> None:
    # 36 layers x 8 heads x 128 x key and value x 2 bytes
    cell = 36 * 8 * 128 * 2 * 2
    line = "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=2 ollama run qwen3:8b"
    _, answer = answered(cli, line, "--memory", "24GiB", "--weights", "5GB")
    assert answer["cache_bytes"] == 2 * 8192 * cell
    for memory, tokens in (("16GiB", 4096), ("24GiB", 32_768)):  # by the card, where nothing is said
        _, answer = answered(cli, "ollama run qwen3:8b", "--memory", memory, "--weights", "5GB")
        assert answer["cache_bytes"] == tokens * cell


def test_llamacpp_shortens_what_is_not_said(cli: Cli) -> None:
    code, answer = answered(cli, "llama-server -m Qwen3-8B-Q4_K_M.gguf", "--memory", "8GiB", "--weights", "5GB")
    assert (code, answer["verdict"]) == (0, "open")
    assert any("--fit" in why for why in answer["why"])
    assert answered(cli, "llama-server -m Qwen3-8B-Q4_K_M.gguf --fit off", "--memory", "8GiB", "--weights", "5GB")[0] == 1


def test_a_slot_longer_than_the_model_was_made_for(cli: Cli) -> None:
    line = "llama-server -m Qwen3-8B-Q4_K_M.gguf -c 262144 -np 2"
    _, answer = answered(cli, line, "--memory", "80GiB", "--weights", "5GB")
    assert [change["after"] for change in answer["changes"]] == [str(2 * 40_960)]


def test_vllms_refusal_names_the_longest(cli: Cli) -> None:
    _, answer = answered(cli, f"vllm serve {LLAMA} --max-model-len 131072", "--memory", "24GiB", "--weights", "16GB")
    longest = next(change["after"] for change in answer["changes"] if change["flag"] == "--max-model-len")
    assert f"{int(longest):,}" in answer["why"][1]
    assert "16 GiB are needed" in answer["why"][1]


ELSEWHERE = (
    "docker run vllm/vllm-openai-rocm:latest deepseek-ai/DeepSeek-V3 --block-size 1 --max-model-len 4k",
    "VLLM_ROCM_USE_AITER=1 vllm serve deepseek-ai/DeepSeek-V3 --block-size 1 --max-model-len 4k",
)


@pytest.mark.parametrize("line", ELSEWHERE)
def test_another_platform_is_refused_nothing(cli: Cli, line: str) -> None:
    code, answer = answered(cli, line, "--memory", "192GiB", "--weights", "90GB")
    assert (code, answer["verdict"]) == (4, "not answered")
    assert "another platform" in answer["why"][0]


def test_a_value_that_the_rules_do_not_know_promises_nothing(cli: Cli) -> None:
    line = "sglang serve --model-path Qwen/Qwen3-8B --attention-backend wave --context-length 4096"
    code, answer = answered(cli, line, "--memory", "80GiB", "--weights", "16GB")
    assert (code, answer["verdict"]) == (0, "open")
    assert "wave" in answer["why"][0]


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve m --hf-overrides" + ".a" * 5000 + " 1",
        "vllm serve m --hf-overrides '" + '{"a":' * 800 + "1" + "}" * 800 + "'",
        "vllm serve m --hf-overrides '" + "[" * 90_000 + "'",
        'vllm serve m --hf-overrides \'{"a": NaN, "b": 1e999}\' --hf-overrides.c Infinity --gpu-memory-utilization nan',
        "from vllm import LLM\nLLM(model='m', rope_theta=1e999, gpu_memory_utilization=float('nan'))",
        "from vllm import LLM\nLLM(model=" + "-" * 3000 + "1, max_model_len=" + "[" * 900 + "]" * 900 + ")",
    ],
    ids=["keys", "objects", "lists", "no numbers", "no numbers in Python", "expressions"],
)
@pytest.mark.parametrize("how", [["--settings"], ["--settings", "--json"], ["--json", "--memory", "24GiB"]], ids=" ".join)
def test_what_no_json_holds(cli: Cli, line: str, how: list[str]) -> None:
    ran = cli("check", *how, "--", line)
    assert ran.code in (0, 2, 3, 4)
    assert "bug" not in ran.err


def test_a_card_has_two_ends(cli: Cli) -> None:
    """What else vLLM takes of a card is an interval: what fits at its upper end fits, at its lower end alone is open."""
    line = f"vllm serve {LLAMA} --max-model-len"
    _, first = answered(cli, f"{line} 8192", "--gpu", "rtx-4090", "--weights", "16GB")
    assert first["other_low_bytes"] < first["other_high_bytes"]
    assert first["sequences"] <= first["sequences_at_most"]
    between = first["budget_bytes"] + (first["other_high_bytes"] - first["other_low_bytes"]) // 2
    tokens = between // LLAMA_TOKEN
    code, answer = answered(cli, f"{line} {tokens}", "--gpu", "rtx-4090", "--weights", "16GB")
    assert (code, answer["verdict"], answer["sequences"], answer["sequences_at_most"]) == (0, "open", 0, 1)
    overhead = f"{first['other_high_bytes']}B"
    code, answer = answered(cli, f"{line} {tokens}", "--gpu", "rtx-4090", "--weights", "16GB", "--overhead", overhead)
    assert (code, answer["verdict"]) == (1, "does not fit")


def test_experts_are_split_over_copies_too(cli: Cli) -> None:
    line = "vllm serve deepseek-ai/DeepSeek-V3 --max-model-len 8k --data-parallel-size 8"
    whole = answered(cli, line, "--memory", "140GiB", "--weights", "640GB")
    split = answered(cli, f"{line} --enable-expert-parallel", "--memory", "140GiB", "--weights", "640GB")
    assert (whole[0], whole[1]["verdict"]) == (1, "does not fit")
    assert (split[0], split[1]["verdict"]) == (0, "open")
    assert split[1]["budget_bytes"] == pytest.approx(int(140 * GIB * 0.92) - 80_000_000_000, abs=3 * 2**20)
