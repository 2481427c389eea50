"""``kvcalc sweep``: axes, formats, and rows that stream."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import EQUATION, Cli

A_TOKEN = 2 * 2 * 2 * 4 * 2
LLAMA_TOKEN = 2 * 32 * 8 * 128 * 2


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_it_needs_no_model_and_says_which_it_takes(cli: Cli) -> None:
    ran = cli("sweep", "--tokens", "1k..32k")
    assert (ran.code, ran.err) == (0, "note: no model is named: llama-8b is taken\n")
    for tokens in (1024, 2048, 4096, 8192, 16384, 32768):
        assert f"{tokens * LLAMA_TOKEN:,}" in ran.out


@pytest.mark.parametrize("words", [("llama-8b",), ("--preset", "llama-8b"), EQUATION], ids=str)
def test_a_named_model_needs_no_note(words: tuple[str, ...], cli: Cli) -> None:
    assert cli("sweep", *words).err == ""


def test_what_is_the_same_in_every_row_stands_in_one_line_above(cli: Cli) -> None:
    first, *_ = cli("sweep", "llama-8b", "--tokens", "1k..4k").out.splitlines()
    assert first.split() == ["model", "llama-8b", "K", "type", "bfloat16", "V", "type", "bfloat16", "batch", "1"]


def test_every_axis(cli: Cli) -> None:
    words = ("llama-8b", "qwen3-8b", "--tokens", "1,2", "--batch", "1,8", "--dtype", "bf16,fp8", "--format", "csv")
    found = rows(cli("sweep", *words).out)
    assert len(found) == 2 * 2 * 2 * 2
    assert [(row["model"], row["k_dtype"], row["batch_size"], row["tokens"]) for row in found[:5]] == [
        ("llama-8b", "bfloat16", "1", "1"),
        ("llama-8b", "bfloat16", "1", "2"),
        ("llama-8b", "bfloat16", "8", "1"),
        ("llama-8b", "bfloat16", "8", "2"),
        ("llama-8b", "fp8_e4m3", "1", "1"),
    ]
    assert int(found[3]["total_bytes"]) == 8 * 2 * LLAMA_TOKEN


def test_keys_and_values_of_their_own_types(cli: Cli) -> None:
    found = rows(cli("sweep", "llama-8b", "--k-dtype", "q8_0", "--v-dtype", "q4_0", "--tokens", 1, "--format", "csv").out)
    assert [(row["k_dtype"], row["v_dtype"]) for row in found] == [("q8_0", "q4_0")]
    assert int(found[0]["total_bytes"]) == 32 * 8 * 128 // 32 * (34 + 18)


def test_the_formats_say_the_same(cli: Cli) -> None:
    words = ("sweep", *EQUATION, "--tokens", "1..4:1", "--dtype", "fp16")
    wanted = [(tokens, tokens * A_TOKEN) for tokens in (1, 2, 3, 4)]
    as_json = cli(*words, "--format", "json").json
    assert [(cell["tokens"], cell["total_bytes"]) for cell in as_json["cells"]] == wanted
    assert cli(*words, "--json").json == as_json
    as_csv = rows(cli(*words, "--format", "csv").out)
    assert [(int(row["tokens"]), int(row["total_bytes"])) for row in as_csv] == wanted
    heading, rule, *body = cli(*words, "--format", "markdown").out.splitlines()
    assert heading.count("|") == rule.count("|")
    cells = [[word.strip() for word in line.strip("|").split("|")] for line in body]
    assert [(int(cell[4]), int(cell[5])) for cell in cells] == wanted
    table = cli(*words).out
    assert all(f"{total:,}" in table for _, total in wanted)


def test_memory_marks_what_fits(cli: Cli) -> None:
    limit = 2 * A_TOKEN
    words = ("sweep", *EQUATION, "--tokens", "1..3:1", "--dtype", "fp16", "--memory", f"{limit}B")
    found = cli(*words, "--json").json
    assert [cell["fits"] for cell in found["cells"]] == [True, True, False]
    assert found["request"]["memory_bytes"] == limit
    assert [row["fits"] for row in rows(cli(*words, "--format", "csv").out)] == ["True", "True", "False"]
    assert [line.split()[-1] for line in cli(*words).out.splitlines() if "no" in line.split()]


def test_what_fits_is_judged_by_what_the_allocator_holds(cli: Cli, tmp_path: Path) -> None:
    """A window's slice keeps its parent alive: the cell fits when that does, and the row says so."""
    config = {"model_type": "mistral", "num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 64, "sliding_window": 9}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    words = ("sweep", "--config", path, "--engine", "transformers", "--tokens", "1000", "--dtype", "fp16", "--memory")
    total, held = 2 * 8 * 64 * 2, 2 * 1000 * 64 * 2
    for budget, fits in ((held, True), (held - 1, False)):
        (cell,) = cli(*words, f"{budget}B", "--json").json["cells"]
        assert (cell["total_bytes"], cell["needed_bytes"], cell["fits"]) == (total, held, fits)
    assert "250 KiB must be free" in cli(*words, f"{held}B").out


def test_a_length_beyond_the_model_s_maximum_is_marked(cli: Cli) -> None:
    words = ("sweep", "gpt2", "--tokens", "1024,1025")
    assert [cell["beyond_model_maximum"] for cell in cli(*words, "--json").json["cells"]] == [False, True]
    assert "beyond the model's maximum" in cli(*words).out


def test_bars_grow_with_the_figures(cli: Cli) -> None:
    bars = [line.count("█") for line in cli("sweep", *EQUATION, "--tokens", "1k..8k").out.splitlines() if "█" in line]
    assert bars == [2, 5, 10, 20]


def test_a_long_table_goes_on_under_the_same_columns(cli: Cli) -> None:
    lines = cli("sweep", *EQUATION, "--tokens", "1..1000:1").out.splitlines()
    assert len(lines) == 1 + 1000
    assert lines[0].split() == ["model", "K", "type", "V", "type", "batch", "tokens", "bytes", "size"]
    assert lines[1].split() == ["the", "equation", "float16", "float16", "1", "1", "64", "64", "B"]
    assert lines[1000].split()[4:7] == ["1", "1,000", "64,000"]
    assert {line.index("float16") for line in lines[1:]} == {lines[0].index("K type")}


@pytest.mark.parametrize("engine", ["static", "paged", "transformers"])
def test_another_engine_s_rules(engine: str, cli: Cli) -> None:
    found = cli("sweep", "llama-8b", "--tokens", "100,5000", "--engine", engine, "--json")
    assert found.code == 0, found.err
    for cell in found.json["cells"]:
        alone = cli("estimate", "llama-8b", "--engine", engine, "--tokens", cell["tokens"], "--json").json
        assert cell["total_bytes"] == alone["total_bytes"]


BAD: dict[str, tuple[tuple[str, ...], int]] = {
    "an open range": (("--tokens", "1k.."), 2),
    "no length": (("--tokens", ""), 2),
    "backwards": (("--tokens", "4k..1k"), 2),
    "steps without number": (("--tokens", "1..1000000000:1"), 2),
    "a thousands comma": (("--tokens", "1,024"), 2),
    "half a token": (("--tokens", "1.5"), 2),
    "no batch": (("--batch", "0"), 2),
    "batches without number": (("--batch", "1..100000:1"), 2),
    "memory of no size": (("--memory", "24XB"), 2),
    "memory of nothing": (("--memory", ""), 2),
    "an unknown format": (("--format", "xml"), 2),
    "an empty type": (("--dtype", "bf16,,fp8"), 4),
    "an unknown type": (("--dtype", "bf16,fp7"), 4),
    "an unknown engine": (("--engine", "nope"), 4),
    "an option that the engine lacks": (("-o", "x=1"), 2),
    "an unknown preset": (("nope",), 3),
    "a broken block": ((*EQUATION, "--dtype", "q8_0"), 4),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refusal_comes_before_any_output(name: str, cli: Cli) -> None:
    words, code = BAD[name]
    ran = cli("sweep", *words)
    assert (ran.code, ran.out) == (code, "")
    assert "error: " in ran.err
    assert "Traceback" not in ran.err


def test_output_goes_to_a_new_file_and_never_over_another(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    words = ("sweep", *EQUATION, "--tokens", "1,2", "--format", "csv", "--output", target)
    ran = cli(*words)
    assert (ran.code, ran.out) == (0, "")
    assert [row["tokens"] for row in rows(target.read_text())] == ["1", "2"]
    again = cli(*words)
    assert again.code == 2
    assert "--force" in again.err
    assert cli(*words, "--force").code == 0


def run(*words: str, **more: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kvcalc", "sweep", *EQUATION, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown"])
def test_a_reader_that_goes_away_ends_it_quietly(form: str) -> None:
    process = run("--tokens", "1..10000000:1", "--format", form)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 0


MEASURED = """
import resource, sys
from kvcalc.cli import main
main(["sweep", "--layers", "2", "--kv-heads", "2", "--head-dim", "4", "--tokens", "1..10:1", *sys.argv[2:]])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
main(["sweep", "--layers", "2", "--kv-heads", "2", "--head-dim", "4", "--tokens", f"1..{sys.argv[1]}:1", *sys.argv[2:]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, file=sys.stderr)
"""


@pytest.mark.parametrize(("form", "cells"), [("csv", 200_000), ("json", 15_000), ("markdown", 15_000), ("table", 6_000)])
def test_rows_stream_in_flat_memory(form: str, cells: int) -> None:
    command = [sys.executable, "-c", MEASURED, str(cells), "--format", form]
    ran = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert ran.stdout.count(b"\n") >= cells
    assert int(ran.stderr) < 8 * 1024  # KiB: a list of as many rows takes many times that


def test_json_of_a_sweep_is_one_document(cli: Cli) -> None:
    text = cli("sweep", *EQUATION, "--tokens", "1..5:1", "--json").out
    assert json.loads(text)["verb"] == "sweep"
    assert text.endswith("}\n")


REFUSED = ("sweep", "opt-125m", "llama-8b", "--tokens", "2k,4k", "--engine", "vllm")


def test_a_refused_cell_stands_in_the_table(cli: Cli) -> None:
    """vLLM serves opt-125m at 2,048 tokens and no more."""
    ran = cli(*REFUSED)
    (line,) = (line for line in ran.out.splitlines() if "refused" in line.split())
    assert (line.split()[0], "4,096" in line.split()) == ("opt-125m", True)
    reason = "4,096 tokens are more than the 2,048 that opt-125m was made for"
    assert f"refused: opt-125m: {reason}" in ran.out
    assert (ran.code, ran.err) == (0, f"note: 1 cell is refused; the first, opt-125m at batch 1, 4,096 tokens: {reason}\n")


def test_a_refused_cell_in_every_format(cli: Cli) -> None:
    ran = cli(*REFUSED, "--json")
    refused = [cell for cell in ran.json["cells"] if cell["total_bytes"] is None]
    assert [(cell["model"], cell["tokens"], cell["error"]["code"], cell["error"]["exit_code"]) for cell in refused] == [
        ("opt-125m", 4096, "engine", 4)
    ]
    as_csv = rows(cli(*REFUSED, "--format", "csv").out)
    assert [row["total_bytes"] == "" for row in as_csv] == [False, True, False, False]
    assert cli(*REFUSED, "--format", "markdown").out.count("| refused |") == 1


def test_a_refused_cell_of_a_long_table_says_why(cli: Cli) -> None:
    out = cli("sweep", "opt-125m", "--tokens", "1500..2050:1", "--engine", "vllm").out.splitlines()
    assert [line.split()[4] for line in out if "refused: " in line] == ["2,049", "2,050"]


def test_refused_altogether_is_an_error_as_before(cli: Cli) -> None:
    ran = cli("sweep", "opt-125m", "--tokens", "3k,4k", "--batch", "1,2", "--engine", "vllm")
    assert (ran.code, ran.out) == (4, "")
    assert "error: 3,072 tokens are more than the 2,048" in ran.err


def test_a_first_cell_that_is_refused(cli: Cli) -> None:
    found = cli("sweep", "opt-125m", "llama-8b", "--tokens", "4k", "--engine", "vllm", "--json").json["cells"]
    assert [cell["total_bytes"] for cell in found] == [None, 4096 * LLAMA_TOKEN]


def test_a_length_that_nobody_asked_for_is_not_refused(cli: Cli) -> None:
    assert cli("sweep", "opt-125m", "--tokens", "1k", "--engine", "vllm").code == 0


@pytest.mark.parametrize("engine", ["exact", "vllm"])
def test_a_model_whose_file_lacks_an_input_stands_refused_among_others(engine: str, cli: Cli) -> None:
    ran = cli("sweep", "llama-8b", "bart-base", "--tokens", "1k", "--engine", engine, "--json")
    first, second = ran.json["cells"]
    assert (ran.code, first["total_bytes"] is None, second["total_bytes"]) == (0, False, None)
    assert second["error"]["what"] == cli("estimate", "bart-base", "--engine", engine, "--json").json["error"]["what"]
    alone = cli("sweep", "bart-base", "--tokens", "1k", "--engine", engine, "--json")
    assert alone.code == cli("estimate", "bart-base", "--engine", engine).code
    assert alone.json["error"]["what"] == second["error"]["what"]


def test_types_are_those_that_the_engine_takes(cli: Cli) -> None:
    """An option of the engine's own names the cache's type; the model's is another."""
    for engine, name in (("vllm", "fp8"), ("sglang", "fp8_e4m3"), ("tensorrt-llm", "fp8")):
        ran = cli("sweep", "llama-8b", "-e", engine, "-o", f"kv-cache-dtype={name}", "-t", "1k", "--format", "csv")
        k_dtype, v_dtype = ran.out.splitlines()[1].split(",")[1:3]
        assert k_dtype == v_dtype != "bfloat16"


def test_sequences_that_an_option_fixes_are_the_batch(cli: Cli) -> None:
    words = ("sweep", "llama-8b", "-e", "llama.cpp", "-o", "parallel=4", "-t", "1k", "--format", "csv")
    assert cli(*words).out.splitlines()[1].split(",")[3:6] == ["4", "1024", str(4 * 1024 * 131072)]
    for verb in ("sweep", "compare", "estimate"):
        assert cli(verb, "llama-8b", "-e", "llama.cpp", "-b", "1", "-o", "parallel=4").code == 2
    found = cli("fit", "llama-8b", "-e", "llama.cpp", "-o", "parallel=4", "--memory", "24GiB", "--json").json
    assert found["batch_size"] == 4
