"""llama.cpp: every cache's bytes against the engine's own, and what the request means in its terms."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.architectures.gguf import GGUF_ROWS
from kvcalc.core.gguf import GgufMetadata, TensorInfo
from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.engines.estimate import estimate
from kvcalc.engines.llamacpp.arches import ARCHES, UNUSABLE
from kvcalc.engines.llamacpp.releases import BY_NAME, RELEASES, release_of
from kvcalc.errors import EngineError, KvcalcError, UsageError
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf

DATA = Path(__file__).resolve().parents[1] / "data"
SAMPLE = json.loads((DATA / "llamacpp_sample.json").read_text())
ENGINE = find_engine("llama.cpp")
OPTION_NAMES = {
    "n_ctx": "ctx-size",
    "n_batch": "batch-size",
    "n_ubatch": "ubatch-size",
    "n_seq_max": "parallel",
    "kv_unified": "kv-unified",
    "swa_full": "swa-full",
    "flash_attn": "flash-attn",
    "n_rs_seq": "n-rs-seq",
    "ctx_type": "context-type",
}


def model(metadata: Mapping[str, object], tensors: tuple[TensorInfo, ...] | None = None) -> Model:
    return model_of_gguf(GgufFile(GgufMetadata(metadata, {}, tensors), "made.gguf"), {})


def request_of(params: Mapping[str, Any], version: str) -> Request:
    options: dict[str, OptionValue] = {OPTION_NAMES[key]: value for key, value in params.items() if key in OPTION_NAMES}
    options |= {"defaults": "library"} | ({"release": version} if version.startswith("b") else {})
    return Request(k_dtype=find_dtype(params["type_k"]), v_dtype=find_dtype(params["type_v"]), options=options)


def own_caches(tally: Tally) -> list[dict[str, Any]]:
    caches = tally.report["caches"]
    assert isinstance(caches, list)
    return [dict(cache) for cache in caches]


def wanted_caches(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    return sorted((dict(cache) for cache in case["caches"]), key=lambda cache: str(cache["name"]))


def found_caches(tally: Tally, older: bool) -> list[dict[str, Any]]:
    """As the cases name them: the compressor apart, recurrent memory without a layer count."""
    found = [cache for cache in own_caches(tally) if cache["name"] != "compressor"]
    for cache in found:
        if cache["name"] == "recurrent":
            del cache["layers"]
            if older:
                del cache["p_bytes"]
    return sorted(found, key=lambda cache: str(cache["name"]))


def check_case(case: Mapping[str, Any], metadata: Mapping[str, object]) -> None:
    request = request_of(case["params"], case["version"])
    if case["result"] != "ok":
        with pytest.raises(EngineError):
            ENGINE.allocate(model(metadata), request)
        return
    tally = ENGINE.allocate(model(metadata), request)
    assert found_caches(tally, case["version"].startswith("b")) == wanted_caches(case)
    assert tally.total_bytes == case["total"]
    other = sum(cache["bytes"] for cache in own_caches(tally) if cache["name"] == "compressor")
    assert other == case["other"]


@pytest.mark.parametrize("case", SAMPLE["cases"], ids=[case["id"] for case in SAMPLE["cases"]])
def test_every_cache_is_the_engines_own(case: Mapping[str, Any]) -> None:
    check_case(case, SAMPLE["models"][case["model"]])


def oracle_rows() -> Iterator[Mapping[str, Any]]:
    folder = Path(os.environ["KVCALC_ORACLE"])
    for name in ("llamacpp.jsonl", "llamacpp-versions.jsonl"):
        yield from (json.loads(line) for line in (folder / name).read_text().splitlines())


@pytest.mark.oracle
@pytest.mark.skipif("KVCALC_ORACLE" not in os.environ, reason="KVCALC_ORACLE names no folder of measured cases")
def test_every_measured_case() -> None:
    wrong = []
    for row in oracle_rows():
        if row["result"] == "abort":
            continue
        case = {**row, "other": row.get("other_state_bytes", 0)}
        if row["result"] == "ok":
            case["total"] = row.get("context_bytes", row["kv_bytes"] + row["recurrent_bytes"])
        try:
            check_case(case, row["metadata"])
        except (AssertionError, KvcalcError, pytest.fail.Exception) as problem:
            wrong.append(f"{row['id']}: {problem}")
    assert wrong == []


# What a plain request means


def llama(**keys: object) -> Model:
    """Llama-3-8B: 32 layers, 8 KV heads of 128."""
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": 8192,
        "llama.embedding_length": 4096,
        "llama.block_count": 32,
        "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": 8,
    }
    return model({**metadata, **{f"llama.{key.replace('__', '.')}": value for key, value in keys.items()}})


CELL = 32 * 2 * 8 * 128 * 2  # one cell of it: 32 layers, K and V, 8 heads of 128, 2 bytes


def total(given: Model, request: Request) -> int:
    return ENGINE.allocate(given, request).total_bytes


def asked(tokens: int | None = None, batch: int | None = None, **options: OptionValue) -> Request:
    origins = {}
    if tokens is not None:
        origins["tokens"] = "flag --tokens"
    if batch is not None:
        origins["batch_size"] = "flag --batch"
    named = {key.replace("_", "-"): value for key, value in options.items()}
    return Request(batch_size=batch or 1, tokens=tokens, options=named, origins=origins)


def test_unasked_the_server_takes_the_models_context_for_four_sequences_in_one_cache() -> None:
    tally = ENGINE.allocate(llama(), asked())
    assert tally.total_bytes == 8192 * CELL
    assert (tally.report["n_seq_max"], tally.report["kv_unified"], tally.report["swa_full"]) == (4, True, False)
    assert any("free device memory" in note for note in tally.notes)


def test_the_library_takes_512_cells_for_one_sequence() -> None:
    tally = ENGINE.allocate(llama(), asked(defaults="library"))
    assert tally.total_bytes == 512 * CELL
    assert tally.notes == ()
    assert (tally.report["n_seq_max"], tally.report["kv_unified"], tally.report["swa_full"]) == (1, False, True)


def test_tokens_and_batch_make_a_context_divided_among_the_sequences() -> None:
    tally = ENGINE.allocate(llama(), asked(tokens=1000, batch=3))
    assert tally.total_bytes == 3 * 1024 * CELL  # 3000 → 3072, a third each, a multiple of 256
    assert (tally.report["n_ctx_seq"], tally.report["n_seq_max"], tally.report["kv_unified"]) == (1024, 3, False)


def test_tokens_alone_are_one_sequence() -> None:
    assert total(llama(), asked(tokens=4096)) == 4096 * CELL


def test_a_batch_alone_divides_the_models_context() -> None:
    tally = ENGINE.allocate(llama(), asked(batch=4))
    assert (tally.report["n_ctx_seq"], tally.report["kv_unified"]) == (2048, False)


def test_an_explicit_option_wins_over_what_tokens_imply() -> None:
    tally = ENGINE.allocate(llama(), asked(tokens=1000, batch=3, kv_unified=True))
    assert tally.report["kv_unified"] is True
    assert tally.total_bytes == 3072 * CELL


def test_parallel_and_tokens_give_the_context() -> None:
    assert total(llama(), asked(tokens=1024, parallel=4)) == 4 * 1024 * CELL


@pytest.mark.parametrize(
    "request_",
    [
        asked(tokens=1000, batch=2, ctx_size=1000),
        asked(tokens=1000, ctx_size=4096),
        asked(batch=2, parallel=3),
        replace(asked(cache_type_k="q8_0"), k_dtype=find_dtype("f16")),
        replace(asked(cache_type_v="q8_0"), v_dtype=find_dtype("q4_0")),
    ],
    ids=["ctx-size too small", "ctx-size too large", "parallel", "K type", "V type"],
)
def test_a_contradiction_is_a_usage_error(request_: Request) -> None:
    with pytest.raises(UsageError):
        ENGINE.allocate(llama(), request_)


def test_what_agrees_is_no_contradiction() -> None:
    request = replace(asked(tokens=1000, batch=2, ctx_size=2000, parallel=2, cache_type_k="q8_0"), k_dtype=find_dtype("q8_0"))
    assert total(llama(), request) == 2 * 1024 * 32 * 8 * (128 // 32 * 34 + 128 * 2)


def test_lengths_take_the_longest_for_all() -> None:
    request = Request(lengths=(100, 700), origins={"tokens": "flag --lengths", "batch_size": "flag --lengths"})
    assert total(llama(), request) == 2 * 768 * CELL  # 1400 → 1536, halved: 768


def test_ranks_are_not_the_engines() -> None:
    with pytest.raises(UsageError, match="ranks"):
        ENGINE.allocate(llama(), replace(asked(tokens=256), tp_size=2))


def test_a_cache_type_that_ggml_lacks_is_refused() -> None:
    with pytest.raises(EngineError, match="fp8_e4m3"):
        ENGINE.allocate(llama(), replace(asked(tokens=256), k_dtype=find_dtype("fp8")))


def test_beyond_32_bits_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="32 bits"):
        ENGINE.allocate(llama(), asked(ctx_size=2**32))


def test_many_sequences_of_a_short_context_are_each_rounded_up() -> None:
    tally = ENGINE.allocate(llama(), asked(ctx_size=300, parallel=256, kv_unified=False))
    assert tally.total_bytes == 256 * 256 * CELL  # 8.59 GB
    assert any("rounded up" in warning for warning in tally.warnings)


def test_a_context_beyond_the_models_own_is_only_warned_of() -> None:
    found = estimate(llama(), asked(tokens=16384), ENGINE)
    assert found.total_bytes == 16384 * CELL
    assert any("8,192" in warning for warning in found.warnings)
    assert estimate(llama(), asked(tokens=8192, batch=16), ENGINE).warnings == ()


def test_growth_is_told_by_the_256() -> None:
    found = estimate(llama(), asked(tokens=4096), ENGINE)
    assert (found.step, found.bytes_per_token) == (256, Fraction(CELL))


def test_growth_of_the_default_context_is_told_too() -> None:
    assert estimate(llama(), asked(), ENGINE).bytes_per_token == CELL


# What the engine refuses, and what kvcalc doesn't know


def test_each_name_of_the_engine_has_a_rule_or_a_reason() -> None:
    assert len(ARCHES) == 151
    assert set(UNUSABLE) == {"clip", "gptj"}
    assert not set(ARCHES) & set(UNUSABLE)
    assert set(ARCHES) == set(GGUF_ROWS)


def test_an_architecture_unknown_to_a_release_is_refused_by_name() -> None:
    metadata = SAMPLE["models"]["glm5-next"]
    with pytest.raises(EngineError, match=r"0\.5\.0 doesn't know the architecture 'glm5-next'"):
        ENGINE.allocate(model(metadata), asked(tokens=256, release="0.5.0"))


@pytest.mark.parametrize("release", ["v0.5.0", "0.5.0", "0.5.0-dev"])
def test_releases_are_known_by_their_tags(release: str) -> None:
    rules = RELEASES.find(release)
    assert (release_of(rules), rules.warning) == (BY_NAME[release.removeprefix("v")], "")


def test_a_build_between_two_that_were_read_is_marked() -> None:
    tally = ENGINE.allocate(llama(), asked(tokens=100, release="b8000"))
    assert tally.report["release"] == "b7698"
    assert any("b8000" in warning for warning in tally.warnings)


def test_a_release_before_the_oldest_is_refused() -> None:
    with pytest.raises(EngineError, match=r"rules of llama\.cpp b100 are not known"):
        ENGINE.allocate(llama(), asked(tokens=100, release="b100"))


@pytest.mark.parametrize("release", ["master", "?"])
def test_what_is_no_release_is_a_usage_error(release: str) -> None:
    with pytest.raises(UsageError, match="no release number"):
        ENGINE.allocate(llama(), asked(tokens=100, release=release))


def test_a_newer_release_is_answered_by_the_newest_rules_and_says_so() -> None:
    tally = ENGINE.allocate(llama(), asked(tokens=100, release="1.0"))
    assert tally.report["release"] == "0.5.0-dev"
    assert any("1.0 is newer than 0.5.0-dev" in warning for warning in tally.warnings)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("block_count", 0, "0 layers"),
        ("block_count", 513, "513 layers"),
        ("attention__head_count_kv", [8] * 31, "31 entries"),
        ("attention__head_count_kv", [-1] * 32, "no number"),
        ("attention__head_count_kv", True, "no number"),
        ("context_length", None, "missing"),
        ("context_length", 2**32, "no number"),
        ("nextn_predict_layers", 33, "33 of them"),
        ("rope__dimension_count", 64, "the key's width, 128"),
    ],
)
def test_a_key_that_the_engine_refuses_is_refused(key: str, value: object, what: str) -> None:
    with pytest.raises(EngineError, match=what):
        ENGINE.allocate(llama(**{key: value}), asked(tokens=256))


@pytest.mark.parametrize("kind", ["i32", "u64", "u16"])
def test_a_number_of_another_type_than_u32_is_refused(kind: str) -> None:
    metadata = dict(llama().metadata)
    typed = GgufMetadata(metadata, {"llama.block_count": kind})
    with pytest.raises(EngineError, match=kind):
        ENGINE.allocate(model_of_gguf(GgufFile(typed, "made.gguf"), {}), asked(tokens=256))


def test_drafts_of_deepseek4_count_only_where_their_tensors_are() -> None:
    metadata = {**SAMPLE["models"]["deepseek-v4-mini"], "deepseek4.nextn_predict_layers": 1}
    probe = TensorInfo("blk.7.nextn.eh_proj.weight", (2048, 1024), 1, 0)
    mtp = asked(tokens=4096, context_type="mtp")
    assert total(model(metadata, (probe,)), mtp) > 0
    with pytest.raises(EngineError, match="no blocks that predict"):
        ENGINE.allocate(model(metadata, ()), mtp)


def test_an_mtp_context_needs_a_graph_of_the_engine() -> None:
    with pytest.raises(EngineError, match="no graph for them"):
        ENGINE.allocate(llama(nextn_predict_layers=1), asked(tokens=256, context_type="mtp"))


def test_draft_counts_the_second_context_too() -> None:
    given_model = model(SAMPLE["models"]["deepseek-v3-mla-mtp"])
    alone, both = (total(given_model, replace(asked(tokens=4096), draft=draft)) for draft in (False, True))
    assert both - alone == total(given_model, asked(tokens=4096, context_type="mtp")) == 4096 * 576 * 2


def test_a_draft_that_reads_its_targets_cache_has_none() -> None:
    metadata = {**SAMPLE["models"]["gemma-4-e2b"]}
    renamed = {key.replace("gemma4.", "gemma4-assistant."): value for key, value in metadata.items()}
    draft = model({**renamed, "general.architecture": "gemma4-assistant"})
    with pytest.raises(EngineError, match="reads the cache of the model that it drafts for"):
        ENGINE.allocate(draft, asked(tokens=256))
    assert total(draft, asked(tokens=256, beside_target=True)) == 0


@pytest.mark.parametrize("missing", ["token_embd.weight", "output.weight"])
def test_a_draft_without_embeddings_runs_beside_its_target_alone(missing: str) -> None:
    metadata = {key.replace("llama.", "eagle3."): value for key, value in llama().metadata.items()}
    metadata["general.architecture"] = "eagle3"
    tensors = tuple(TensorInfo(name, (4096, 256), 1, 0) for name in ("token_embd.weight", "output.weight") if name != missing)
    with pytest.raises(EngineError, match="takes the embeddings"):
        ENGINE.allocate(model(metadata, tensors), asked(tokens=256))
    assert total(model(metadata, tensors), asked(tokens=256, beside_target=True)) == 256 * CELL
    assert total(model(metadata), asked(tokens=256)) == 256 * CELL  # nothing is known of its tensors


# Laws

contexts = st.integers(1, 300_000)
counts = st.integers(1, 16)
names = st.sampled_from(sorted(SAMPLE["models"]))


@given(names, contexts, counts, st.booleans())
def test_total_function_equals_the_tally(name: str, tokens: int, batch: int, unified: bool) -> None:
    given_model = model(SAMPLE["models"][name])
    request = asked(tokens=tokens, batch=batch, kv_unified=unified)
    assert ENGINE.plan(given_model, request).total(batch, tokens) == total(given_model, request)


def test_total_function_keeps_to_the_sequences_that_are_named() -> None:
    assert ENGINE.plan(llama(), asked(parallel=4)).total(1, 1024) == 4 * 1024 * CELL
    with pytest.raises(UsageError, match="2 sequences"):
        ENGINE.plan(llama(), asked(parallel=4)).total(2, 1024)
    with pytest.raises(UsageError, match="context size"):
        _ = ENGINE.plan(llama(), asked(ctx_size=4096)).total


@given(names, contexts, counts)
def test_more_tokens_never_cost_less(name: str, tokens: int, batch: int) -> None:
    given_model = model(SAMPLE["models"][name])
    assert total(given_model, asked(tokens=tokens + 256, batch=batch)) >= total(given_model, asked(tokens=tokens, batch=batch))


@given(names, contexts, counts)
def test_a_full_size_sliding_cache_is_never_smaller(name: str, tokens: int, batch: int) -> None:
    given_model = model(SAMPLE["models"][name])
    small, large = (total(given_model, asked(tokens=tokens, batch=batch, swa_full=full)) for full in (False, True))
    assert small <= large


@given(names, contexts)
def test_the_layers_add_up_to_the_caches(name: str, tokens: int) -> None:
    tally = ENGINE.allocate(model(SAMPLE["models"][name]), asked(tokens=tokens))
    caches = sum(value for cache in own_caches(tally) for key, value in cache.items() if key.endswith("bytes"))
    assert tally.total_bytes == caches
    assert sum(run.count for run in tally.layers) == tally.layers[-1].first + tally.layers[-1].count
