"""What programs may rely on: one schema for every verb, whose keys are only added to, and figures that add up."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from conftest import EQUATION, Cli
from jsonschema import Draft202012Validator

from kvcalc.cli.app import VERBS
from kvcalc.engines import ENGINES
from kvcalc.reports.schema import schema_of
from kvcalc.reports.to_json import SCHEMA_VERSION

ENVELOPE = {"schema_version", "verb"}
ESTIMATE = {
    *ENVELOPE,
    *("engine", "model", "request", "total_bytes", "components", "bytes_per_token", "bytes_per_token_step", "fixed_bytes"),
    *("layers", "shared", "excluded", "warnings", "notes", "fits"),
}
PARTS = {
    "engine": {"name", "version", "source", "evidence"},
    "model": {"name", "model_type", "source", "format", "num_layers", "max_tokens", "dtype", "draft_layers", "assumed", "fields"},
    "request": {"batch_size", "tokens", "k_dtype", "v_dtype", "tp_size", "pp_size", "dp_size", "draft", "options", "origins"},
    "components": {"kv", "index", "state", "other"},
}
LAYER = {"kind", "first", "count", "bytes", "bytes_per_layer", "positions", "arrays"}
ARRAY = {"component", "label", "rows", "row_bytes", "heads", "width", "dtype", "bytes"}
CELL = {"model", "k_dtype", "v_dtype", "batch_size", "tokens", "total_bytes", "beyond_model_maximum", "fits", "needed_bytes"}
FIT = {
    *ENVELOPE,
    *("engine", "model", "fits", "tokens", "batch_size", "memory_bytes", "memory_origin", "weights_bytes", "overhead_bytes"),
    *("budget_bytes", "needed_bytes", "binding", "excluded", "warnings"),
}
VERB_KEYS: dict[str, tuple[tuple[object, ...], set[str]]] = {
    "estimate": (EQUATION, ESTIMATE),
    "inspect": (("llama-8b",), {*ESTIMATE, "layout"}),
    "sweep": (EQUATION, {*ENVELOPE, "engine", "models", "request", "cells"}),
    "compare": (EQUATION, {*ENVELOPE, "engine", "estimates"}),
    "presets": (("llama-8b",), {*ENVELOPE, "presets"}),
    "gpus": (("4090",), {"gpus"}),
    "schema": ((), {*ENVELOPE, "schemas"}),
    "engines": ((), {*ENVELOPE, "engines"}),
    "fit": (("llama-8b", "--memory", "24GiB"), FIT),
    "verify": (("--tokens", 8), {*ENVELOPE, "model", "request", "device", "checks", "controls", "passed"}),
    "audit": (("log", "llama-8b"), {*ENVELOPE, "log", "loads"}),
    "mcp": ((), {*ENVELOPE, "tools"}),
    "check": (("vllm serve Qwen/Qwen3-8B -tp 2",), {*ENVELOPE, "commands"}),
}
LOG = "llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB\n"


# More answers of each verb, for the schemas.
ANSWERS = (
    ("estimate", "gemma-3-27b", "-e", "vllm", "--tokens", "32k", "-o", "available-bytes=20GiB"),
    ("estimate", "qwen3-14b", "-e", "vllm", "-o", "available-bytes=1GiB", "--tokens", "32k"),
    ("estimate", "deepseek-v3", "-e", "sglang", "--tp", "8"),
    ("estimate", "llama-8b", "--lengths", "1k,2k", "-e", "static"),
    ("estimate", "qwen3.5-27b", "-e", "llama.cpp", "-o", "parallel=2"),
    ("inspect", "gemma-3n-e4b"),
    ("sweep", "llama-8b", "--memory", "1GiB", "--tokens", "1k..1m", "-e", "vllm"),
    ("compare", "llama-8b", "opt-125m", "-e", "vllm", "--tokens", "8k"),
    ("fit", "llama-8b", "--memory", "24GiB", "--frontier"),
    ("fit", "llama-8b", "--memory", "1MiB", "--tokens", "1k"),
    ("fit", "mamba-130m", "--memory", "1GiB"),
    ("gpus",),
    ("engines", "mlx-lm"),
    ("presets", "qwen"),
    ("schema", "fit"),
)


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_an_answer_keeps_to_its_published_schema(words: tuple[str, ...], cli: Cli) -> None:
    ran = cli(*words, "--json")
    assert ran.code in (0, 1)
    Draft202012Validator(schema_of(words[0])).validate(strict(ran.out))


def test_a_schema_refuses_what_no_verb_prints() -> None:
    validator = Draft202012Validator(schema_of("estimate"))
    assert not validator.is_valid({"schema_version": 1, "verb": "estimate"})
    assert not validator.is_valid({"schema_version": 2, "error": {}})
    Draft202012Validator.check_schema(schema_of("fit"))


def strict(text: str) -> Any:
    """JSON as other languages read it: no NaN, no Infinity, no key twice."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=pytest.fail, object_pairs_hook=once)


def test_the_version_of_the_schema() -> None:
    assert SCHEMA_VERSION == 1


def test_every_verb_is_pinned() -> None:
    assert VERB_KEYS.keys() == VERBS.keys()


RUNS_CACHES = pytest.param("verify", marks=pytest.mark.slow)


@pytest.mark.parametrize("verb", [RUNS_CACHES if verb == "verify" else verb for verb in VERB_KEYS])
def test_the_keys_of(verb: str, cli: Cli, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if verb == "verify":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").write_text(LOG)
    words, keys = VERB_KEYS[verb]
    ran = cli(verb, *words, "--json")
    found = strict(ran.out)
    assert (ran.code, found["schema_version"], found["verb"]) == (0, 1, verb)
    assert keys <= found.keys()
    Draft202012Validator(schema_of(verb)).validate(found)


@pytest.mark.parametrize("verb", VERBS)
def test_an_error_has_the_same_keys_in_every_verb(verb: str, cli: Cli) -> None:
    ran = cli(verb, "--json", "--no-such-option")
    found = strict(ran.out)
    assert found == {"schema_version": 1, "error": {**found["error"], "code": "usage", "exit_code": 2}}
    Draft202012Validator(schema_of(verb)).validate(found)
    assert found["error"].keys() == {"code", "what", "where", "fix", "exit_code"}
    assert all(isinstance(found["error"][key], str) for key in ("code", "what", "where", "fix"))


MODELS = ("llama-8b", "gemma-3-27b", "deepseek-v3.2", "qwen3-next-80b", "jamba-1.5-mini", "whisper-tiny")


def asked(cli: Cli, engine: str, model: str, *more: object) -> Any:
    ran = cli("estimate", model, "--engine", engine, *more, "--json")
    assert ran.code in (0, 1, 4), ran.err
    assert "Traceback" not in ran.err
    return strict(ran.out) if ran.code < 2 else None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_every_engine_s_estimate_has_the_keys_and_adds_up(engine: str, model: str, cli: Cli) -> None:
    found = asked(cli, engine, model)
    if found is None:
        return  # the engine doesn't serve this kind; its own tests say why
    assert found.keys() >= ESTIMATE
    assert all(found[part].keys() >= keys for part, keys in PARTS.items())
    assert found["components"].keys() == PARTS["components"]
    assert found["request"]["origins"].keys() <= found["request"].keys()
    assert sum(found["components"].values()) == found["total_bytes"]
    in_layers, in_pools = (sum(part["bytes"] for part in found[key]) for key in ("layers", "shared"))
    assert in_layers + in_pools == found["total_bytes"]
    arrays = [(run["count"], array) for run in found["layers"] for array in run["arrays"]] + [
        (1, each) for each in found["shared"]
    ]
    for name, size in found["components"].items():
        assert size == sum(count * array["bytes"] for count, array in arrays if array["component"] == name)
    for run in found["layers"]:
        assert run.keys() >= LAYER
        assert run["bytes"] == run["count"] * run["bytes_per_layer"]
        assert run["bytes_per_layer"] == sum(array["bytes"] for array in run["arrays"])
        assert all(array.keys() >= ARRAY and array["bytes"] == array["rows"] * array["row_bytes"] for array in run["arrays"])
    whole = [found["total_bytes"], found["fixed_bytes"] or 0, *found["components"].values()]
    assert all(isinstance(size, int) for size in whole)


def tokens_of(found: Any) -> int:
    value = found["request"]["tokens"]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["llama-8b", "gemma-3-27b", "deepseek-v4-flash", "jamba-1.5-mini"])
def test_bytes_per_token_is_the_growth_over_the_engine_s_own_step(engine: str, model: str, cli: Cli) -> None:
    found = asked(cli, engine, model, "--tokens", 3000)
    if found is None or found["bytes_per_token"] is None:
        return
    step = found["bytes_per_token_step"]
    longer = asked(cli, engine, model, "--tokens", tokens_of(found) + step)
    assert found["bytes_per_token"] == pytest.approx(float(Fraction(longer["total_bytes"] - found["total_bytes"], step)))


@pytest.mark.parametrize("engine", ENGINES)
def test_more_sequences_and_more_tokens_never_take_less(engine: str, cli: Cli) -> None:
    fixed = ("-o", "num-batch=512") if engine == "ollama" else ()  # it grows with the context, and a window by it
    sizes = [
        asked(cli, engine, "gemma-3-27b", "--batch", batch, "--tokens", tokens, *fixed)
        for batch, tokens in ((1, 4096), (2, 4096), (1, 8192))
    ]
    one, two, longer = (found["total_bytes"] for found in sizes)
    assert one <= two <= 2 * one + 2**20
    assert one <= longer


NOT_A_CACHE = "lmcache"  # a copy beside the engine's cache, of whole chunks alone


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in ("exact", NOT_A_CACHE)])
def test_no_engine_holds_less_than_a_model_of_full_layers_must_keep(engine: str, cli: Cli) -> None:
    exact = asked(cli, "exact", "llama-8b", "--tokens", 5000, "--dtype", "fp16")
    found = asked(cli, engine, "llama-8b", "--tokens", 5000, "--dtype", "fp16")
    assert found["total_bytes"] >= exact["total_bytes"]


def test_a_sweep_s_cells(cli: Cli) -> None:
    found = strict(cli("sweep", *EQUATION, "--memory", "1KiB", "--json").out)
    assert all(cell.keys() == CELL for cell in found["cells"])
    assert found["request"].keys() >= {"batch_sizes", "types", "options", "memory_bytes"}


def test_a_comparison_s_estimates_are_whole_ones(cli: Cli) -> None:
    found = strict(cli("compare", "llama-8b", "gemma-3-27b", "--json").out)
    assert all(each.keys() >= ESTIMATE for each in found["estimates"])


def test_json_is_all_that_stdout_holds(cli: Cli) -> None:
    for words in (("estimate", "gpt2", "--tokens", "8k"), ("sweep",), ("presets", "nope"), ("estimate",)):
        strict(cli(*words, "--json").out)
