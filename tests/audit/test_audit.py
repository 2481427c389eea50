"""``kvcalc audit`` on lines in every engine's own wording: published figures, measured caches, and what explains a slip."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvcalc.cli import main

DATA = Path(__file__).parents[1] / "data"
ORACLE = os.environ.get("KVCALC_ORACLE", "")
LLAMA_8B = ("--layers", "32", "--kv-heads", "8", "--head-dim", "128")
CACHE = "llama_kv_cache: size = {:7.2f} MiB ({:6d} cells, {:3d} layers,  {}/{} seqs), K ({}): {:7.2f} MiB, V ({}): {:7.2f} MiB"


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


FIELD = cases("audit_field.jsonl")
MEASURED = cases("audit_llamacpp.jsonl")
VLLM = json.loads((DATA / "vllm.json").read_text())


@dataclass(frozen=True)
class Answer:
    """What the verb said."""

    code: int
    document: dict[str, Any]
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Every figure of every load."""
        return [finding for load in self.document["loads"] for finding in load["findings"]]

    def of(self, verdict: str) -> list[dict[str, Any]]:
        """The figures with this verdict."""
        return [finding for finding in self.findings if finding["verdict"] == verdict]

    def why(self) -> str:
        """What explains the differences."""
        return "; ".join(finding["why"] for finding in self.of("differs"))


Auditor = Callable[..., Answer]


@pytest.fixture
def audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Auditor:
    """Audit these lines, with a model as config.json, as GGUF keys, or in ``args``."""

    def run(
        log: Sequence[str], *args: str, config: Mapping[str, Any] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Answer:
        path = tmp_path / "engine.log"
        path.write_text("\n".join(log) + "\n")
        words = ["audit", str(path), "--json", *args]
        for option, content in (("--config", config), ("--gguf", metadata)):
            if content is not None:
                (tmp_path / "model.json").write_text(json.dumps(content))
                words += [option, str(tmp_path / "model.json")]
        code = main(words)
        out = capsys.readouterr()
        return Answer(code, json.loads(out.out), out.err)

    return run


# Published figures, on lines in the engine's own wording


@pytest.mark.parametrize("case", FIELD, ids=lambda case: case["id"])
def test_a_published_figure(case: dict[str, Any], audit: Auditor) -> None:
    answer = audit(case["log"], *case["args"], config=case["config"])
    assert answer.of("unchecked") == []
    assert answer.code == (0 if case["agrees"] else 1), answer.findings
    assert bool(answer.of("differs")) != case["agrees"]


def test_the_memory_of_another_rank_is_the_likely_reason(audit: Auditor) -> None:
    for name, filled in (("vllm-qwen3-235b-tp4-8.11", "8.02 GiB"), ("vllm-r1distill14b-tp2-8.69", "7.46 GiB")):
        case = next(case for case in FIELD if case["id"] == name)
        answer = audit(case["log"], config=case["config"])
        assert f"the tightest rank decides: these tokens fill {filled}" in answer.why()
        assert "1 of" in answer.why()


def test_parts_are_rounded_one_by_one(audit: Auditor) -> None:
    case = next(case for case in FIELD if case["id"] == "lcpp-gptoss20b-q8-swa")  # 1.59 + 1.59, and 3.19 in all
    total = audit(case["log"], config=case["config"]).findings[-1]
    assert (total["verdict"], total["why"]) == ("agrees", "the parts are rounded one by one")


# Measured caches: the engine's own log of each, every figure of it


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case["id"])
def test_a_measured_llama_cpp_log(case: dict[str, Any], audit: Auditor) -> None:
    answer = audit(case["log"], *case["args"], metadata=case["metadata"])
    assert (answer.code, answer.of("unchecked"), answer.of("differs")) == (0, [], [])
    caches = sum(" cells, " in line or "KV self size" in line for line in case["log"])
    assert len(answer.findings) >= 3 * caches


def vllm_words(params: Mapping[str, Any]) -> list[str]:
    """A case's parameters as options, but for those that the log states."""
    platform = "sm" + str(params["sm"]).replace(".", "") if params["sm"] else "cpu"
    stated = ("sm", "extra", "available_bytes", "tp", "max_model_len", "kv_cache_dtype")
    asked = {key: value for key, value in params.items() if key not in stated and value is not None} | params["extra"]
    words = {key.replace("_", "-"): str(value).lower() if isinstance(value, bool) else str(value) for key, value in asked.items()}
    return [part for key, value in {"platform": platform, **words}.items() for part in ("-o", f"{key}={value}")]


def vllm_log(case: Mapping[str, Any]) -> list[str]:
    params, want = case["params"], case["want"]
    device, length, memory = "GPU" if params["sm"] else "CPU", params["max_model_len"], params["available_bytes"] / 2**30
    config = f"dtype=auto, max_seq_len={length}, tensor_parallel_size={params['tp'] or 1}"
    capacity = f"Maximum concurrency for {length:,} tokens per request: {want['max_concurrency']:.2f}x"
    return [
        f"INFO Initializing a V1 LLM engine (v0.32.0) with config: {config}, kv_cache_dtype={params['kv_cache_dtype'] or 'auto'}",
        f"INFO Available KV cache memory: {memory:.2f} GiB",
        f"INFO {device} KV cache size: {want['kv_tokens']:,} tokens, {capacity}",
    ]


@pytest.mark.parametrize(
    "case",
    [case for case in VLLM["cases"] if "kv_tokens" in case["want"] and case["params"]["max_model_len"] > 0][::8],
    ids=lambda case: case["id"],
)
def test_a_measured_vllm_line(case: dict[str, Any], audit: Auditor) -> None:
    answer = audit(vllm_log(case), *vllm_words(case["params"]), config=VLLM["configs"][case["model"]])
    assert (answer.code, len(answer.findings), answer.of("unchecked")) == (0, 2, [])


@pytest.mark.oracle
@pytest.mark.skipif(not ORACLE, reason="KVCALC_ORACLE doesn't name the folder of measured figures")
@pytest.mark.parametrize("name", ["llamacpp.jsonl", "llamacpp-versions.jsonl"])
def test_every_measured_llama_cpp_log(name: str, audit: Auditor) -> None:
    for case in measured(Path(ORACLE) / name):
        answer = audit(case["log"], *case["args"], metadata=case["metadata"])
        assert (answer.code, answer.of("differs")) == (0, []), case["id"]


def measured(path: Path) -> Iterator[dict[str, Any]]:
    """Cases with the settings lines that llama.cpp prints before its caches."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        log = row["log"] if isinstance(row["log"], list) else (row["log"] or "").splitlines()
        if row["result"] != "ok" or not any("size =" in each for each in log):
            continue
        params = row["params"]
        context = {name: params.get(name) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "kv_unified", "n_rs_seq")}
        context["n_ctx"] = context["n_ctx"] or row["metadata"][f"{row['arch']}.context_length"]
        if not any("flash_attn" in each for each in log):
            context["flash_attn"] = params["flash_attn"]
        head = [f"llama_context: {name} = {str(value).lower()}" for name, value in context.items() if value is not None]
        build = [f"build: {row['version'][1:]} (0c1e5709) with cc"] if row["version"].startswith("b") else []
        args = ["-o", f"context-type={params['ctx_type']}"] if params.get("ctx_type") else []
        yield {"id": row["id"], "log": build + head + log, "metadata": row["metadata"], "args": args}


# What explains a difference


def cache(
    total: float, cells: int, layers: int, k_type: str = "f16", v_type: str = "f16", streams: int = 1, keys: float | None = None
) -> str:
    keys = total / 2 if keys is None else keys
    return CACHE.format(total, cells, layers, streams, streams, k_type, keys, v_type, total - keys)


SLIPS = {
    "a draft layer": (cache(528, 4096, 33), "1 more layer kept: a draft or MTP head"),
    "another size than its own type's": (cache(272, 4096, 32), "the line is 0.531 times the prediction"),  # no guess at types
    "another model": (cache(700, 4096, 32), "another model, or settings that the log doesn't state"),
    "one of two ranks": (cache(256, 4096, 32), "the line is one of 2 ranks'"),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_named(name: str, audit: Auditor) -> None:
    line, words = SLIPS[name]
    answer = audit([line], *LLAMA_8B)
    assert answer.code == 1
    assert words in answer.why()


def test_a_latent_that_keeps_its_values_is_an_old_release(audit: Auditor) -> None:
    config = {"model_type": "deepseek_v3", "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128}
    config |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}  # DeepSeek-V3
    keys, values = 4096 * 61 * 576 * 2 / 2**20, 4096 * 61 * 512 * 2 / 2**20
    answer = audit([cache(keys + values, 4096, 61, keys=keys)], config=config)
    assert "as llama.cpp did up to b7698" in answer.why()


def test_states_that_their_line_counts_are_not_guessed_at(audit: Auditor) -> None:
    """The line says one cell and no snapshots: neither is the reason."""
    case = next(case for case in FIELD if case["id"] == "lcpp-rs-qwen-27b-rs2")
    line = case["log"][0].replace("1 seqs  2 rs_seq", "1 seqs  0 rs_seq")
    why = audit([line], config=case["config"]).why()
    assert "another model" in why
    assert "rollback" not in why


def test_cells_follow_from_the_context(audit: Auditor) -> None:
    metadata = {"general.architecture": "llama", "llama.block_count": 32, "llama.context_length": 8192}
    metadata |= {"llama.embedding_length": 4096, "llama.attention.head_count": 32, "llama.attention.head_count_kv": 8}
    context = ["llama_context: n_seq_max = 3", "llama_context: n_ctx = 1000", "llama_context: kv_unified = false"]
    # 1,000 is 1,024; a third of it is 341, up to 512; three streams of 512 cells of 32 · 2 · 1024 · 2 B
    right = audit([*context, cache(3 * 512 * 32 * 4096 / 2**20, 512, 32, streams=3)], metadata=metadata)
    assert (right.code, [finding["what"] for finding in right.of("exact")]) == (0, ["cache, layers", "cache, cells"])
    wrong = audit([*context, cache(3 * 341 * 32 * 4096 / 2**20, 341, 32, streams=3)], metadata=metadata)
    assert (wrong.code, wrong.of("differs")[0]["what"], wrong.of("differs")[0]["predicted_low"]) == (1, "cache, cells", 512)


def test_the_log_s_own_dump_of_the_file_is_a_model(audit: Auditor) -> None:
    keys = {"general.architecture str": "llama", "llama.block_count u32": "32", "llama.context_length u32": "8192"}
    keys |= {
        "llama.embedding_length u32": "4096",
        "llama.attention.head_count u32": "32",
        "llama.attention.head_count_kv u32": "8",
    }
    dump = [f"llama_model_loader: - kv {i:3d}: {key} = {value}" for i, (key, value) in enumerate(keys.items())]
    answer = audit(["llama_model_loader: loaded meta data with 6 pairs", *dump, cache(512, 4096, 32)])
    assert (answer.code, answer.of("unchecked"), answer.of("differs")) == (0, [], [])
    assert answer.document["loads"][0]["model"]["num_layers"] == 32


def test_the_log_s_own_layer_widths_are_a_shape(audit: Auditor) -> None:
    layers = [f"llama_kv_cache_init: layer {i}: n_embd_k_gqa = 192, n_embd_v_gqa = 128" for i in range(6)]
    init = "llama_kv_cache_init: kv_size = 8000, offload = 1, type_k = 'f16', type_v = 'f16', n_layer = 6, can_shift = 1"
    keys, values = 8000 * 6 * 192 * 2 / 2**20, 8000 * 6 * 128 * 2 / 2**20
    sizes = f"KV self size = {keys + values:.2f} MiB, K (f16): {keys:.2f} MiB, V (f16): {values:.2f} MiB"
    assert audit([init, *layers, f"llama_init_from_model: {sizes}"]).code == 0


# Where something is missing


def test_a_missing_shape_is_asked_for(audit: Auditor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = audit([cache(512, 4096, 32)])
    assert answer.code == 3
    assert "name the model" in answer.document["loads"][0]["missing"][0]
    assert main(["audit", str(tmp_path / "engine.log")]) == 3
    out = capsys.readouterr()
    assert "nothing could be checked" in out.err
    assert "--layers --kv-heads --head-dim" in out.err
    assert "512.00 MiB" in out.out  # what was read is shown all the same


def test_missing_memory_is_asked_for(audit: Auditor) -> None:
    log = ["GPU KV cache size: 23,648 tokens", "Maximum concurrency for 29,000 tokens per request: 0.82x"]
    answer = audit(log, *LLAMA_8B)
    assert "doesn't state the memory" in answer.document["loads"][0]["missing"][0]
    assert [finding["verdict"] for finding in answer.findings] == ["unchecked", "agrees"]  # the second needs no memory


def test_a_log_without_a_cache_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text("hello\n" * 7)
    assert main(["audit", str(tmp_path / "a.log"), *LLAMA_8B]) == 3
    assert "nothing about a KV cache in 7 lines" in capsys.readouterr().err


def test_two_models_are_one_too_many(audit: Auditor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(cache(512, 4096, 32))
    assert main(["audit", str(tmp_path / "a.log"), "llama-8b", "--preset", "qwen3-8b"]) == 2
    assert "2 models are named" in capsys.readouterr().err


# The verb


def test_a_pipe_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Piped:
        buffer = io.BytesIO(cache(512, 4096, 32).encode())

    monkeypatch.setattr("sys.stdin", Piped())
    assert main(["audit", "-", *LLAMA_8B]) == 0
    out = capsys.readouterr().out
    assert "all 4 figures agree" in out
    assert "stdin" not in out


def test_the_table_shows_stated_predicted_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(cache(528, 4096, 33))
    assert main(["audit", str(tmp_path / "a.log"), *LLAMA_8B]) == 1
    out = capsys.readouterr().out
    for words in ("528.00 MiB", "512.00 MiB", "+16.00 MiB", "differs", "1 more layer kept", "4 of 4 figures differ"):
        assert words in out


def test_the_json_has_its_keys(audit: Auditor) -> None:
    document = audit([cache(512, 4096, 32)], *LLAMA_8B).document
    assert list(document) == ["schema_version", "verb", "log", "agrees", "checked", "restated", "loads"]
    assert list(document["loads"][0]) == [
        "engine",
        "version",
        "rules",
        "line",
        "model",
        "settings",
        "agrees",
        "findings",
        "missing",
        "notes",
    ]
    assert document["loads"][0]["findings"][1] == {
        "line": 1,
        "what": "cache, keys (f16)",
        "stated": "256.00 MiB",
        "stated_low": 268430214,
        "stated_high": 268440698,
        "predicted_low": 2**28,
        "predicted_high": 2**28,
        "unit": "bytes",
        "difference": 0,
        "bytes": None,
        "verdict": "agrees",
        "restates_line": None,
        "why": "",
    }


def test_ranks_on_the_command_line_stand_instead_of_the_log_s(audit: Auditor) -> None:
    log = [
        "server_args=ServerArgs(tp_size=1, x=1)",
        "KV Cache is allocated. #tokens: 1048576, K size: 16.00 GB, V size: 16.00 GB",
    ]
    assert audit(log, *LLAMA_8B, "--tp", "4").code == 0  # 2^20 tokens · 32 layers · 2 heads · 128 · 2 B
    assert audit(log, *LLAMA_8B).code == 1


VLLM_LINES = (
    "INFO [gpu_worker.py:298] Available KV cache memory: 20.00 GiB",
    "INFO [kv_cache_utils.py:1087] GPU KV cache size: 163,840 tokens",
    "INFO [kv_cache_utils.py:1091] Maximum concurrency for 32,768 tokens per request: 5.00x",
)


def test_what_fits_twice_is_told_twice(audit: Auditor) -> None:
    """Half the tokens: a wider type, or fewer ranks than were named."""
    why = audit(VLLM_LINES, *LLAMA_8B, "--tp", "2").why()
    assert "float32" in why
    assert "fewer ranks" in why


def test_the_last_line_counts_what_was_left_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "v.log"
    log.write_text("\n".join(VLLM_LINES[1:]))
    assert main(["audit", str(log)]) == 0
    assert "1 follows from other lines of the log, 1 could not be checked" in capsys.readouterr().out
