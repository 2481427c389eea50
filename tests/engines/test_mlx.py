"""MLX-LM's caches: figures that its own classes gave, and the releases that changed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.engines.mlx_lm.engine import arrival_of
from kvcalc.errors import EngineError, KvcalcError, UsageError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import preset_model

ENGINE = find_engine("mlx-lm")
DATA: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "mlx.json").read_text(encoding="utf-8"))
ROWS = DATA["rows"]
BF16 = find_dtype("bf16")


def asked(row: dict[str, Any]) -> Request:
    prompts = row.get("prompts", [16])
    options: dict[str, OptionValue] = {name.replace("_", "-"): value for name, value in row.get("options", {}).items()}
    turns: dict[str, OptionValue] = {"turns": ",".join(map(str, prompts))}
    dtype = find_dtype(row.get("dtype", "bfloat16"))
    tokens = sum(prompts) + row.get("decoded", 0)
    return Request(tokens=tokens, k_dtype=dtype, v_dtype=dtype, options={**turns, **options})


def model(row: dict[str, Any]) -> Model:
    return model_of(DATA["configs"][row["config"]], "measured", row["config"])


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_measured_case_is_equal_or_refused(row: dict[str, Any]) -> None:
    if "error" in row:
        with pytest.raises(EngineError):
            ENGINE.allocate(model(row), asked(row))
    else:
        assert ENGINE.allocate(model(row), asked(row)).total_bytes == row["total_bytes"]


def test_the_sample_has_figures_and_refusals_of_each_kind() -> None:
    refusals = {row["error"].split(":")[0] for row in ROWS if "error" in row}
    assert refusals >= {"ValueError", "TypeError", "NotImplementedError", "AttributeError"}
    assert sum("error" not in row for row in ROWS) > 80


@pytest.mark.parametrize(
    ("release", "row"),
    [("0.30.5", 20 * (256 + 256) * 2 * 47), ("0.30.6", (512 + 64) * 2 * 47)],  # heads of 192 + 64 and values of 256, or a latent
)
def test_glm_4_7_flash_kept_whole_heads_until_0_30_6(release: str, row: int) -> None:
    plan = ENGINE.plan(preset_model("glm-4.7-flash"), Request(tokens=256, options={"release": release}))
    assert plan.tally.total_bytes == 256 * row
    assert row in (962_560, 54_144)


@pytest.mark.parametrize("model_type", ["reformer", "cpmant", "bart", "grok-1"])
def test_a_type_without_a_class_is_refused_by_name(model_type: str) -> None:
    config = {"model_type": model_type, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    try:
        found = model_of(config, "config.json", model_type)
    except Exception:  # noqa: BLE001 - a type that no rule reads never reaches an engine
        pytest.skip("no rule reads this type")
    with pytest.raises(EngineError, match=f"no class for model type '{model_type}'"):
        ENGINE.allocate(found, Request(tokens=16))


def test_a_class_that_came_later_says_since_when() -> None:
    with pytest.raises(EngineError, match=r"0\.28\.0 has no class for model type 'gemma4_text'; it came with 0\.31\.2"):
        ENGINE.allocate(preset_model_of("gemma4_text"), Request(tokens=16, options={"release": "0.28.0"}))


def preset_model_of(model_type: str) -> Model:
    sizes: dict[str, object] = {
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_size": 256,
        "head_dim": 64,
    }
    return model_of({"model_type": model_type, **sizes}, "config.json", model_type)


def test_a_size_that_the_class_may_take_otherwise_is_marked() -> None:
    found = model_of({"model_type": "nanochat", "hidden_size": 768}, "config.json", "nanochat")
    assert "nanochat" in ENGINE.plan(found, Request(tokens=16)).serving.unchecked


def test_a_files_missing_key_is_the_librarys_refusal() -> None:
    with pytest.raises(EngineError, match=r"insists on keys that the file lacks: .*rms_norm_eps"):
        ENGINE.allocate(preset_model_of("llama"), Request(tokens=16))


def test_releases_say_what_they_brought() -> None:
    brought = ENGINE.releases.brought()
    assert any("glm4_moe_lite keeps a latent" in said for said in brought["0.30.6"])
    assert list(brought)[-1] == "0.28.0"


@pytest.mark.engines
@pytest.mark.parametrize("name", sorted(DATA["configs"]))
def test_the_library_itself_agrees(name: str) -> None:
    """Every sampled configuration, on the installed release's own class; its figures are of the release that is installed."""
    pytest.importorskip("mlx.core")
    pytest.importorskip("mlx_lm")
    from kvcalc.verify.against.mlx_lm import installed, measure

    given = model_of(DATA["configs"][name], "measured", name)
    cases: list[dict[str, OptionValue]] = [
        {},
        {"max-kv-size": 512},
        {"kv-bits": "8", "quantized-kv-start": 0, "kv-group-size": 32},
    ]
    for options in cases:
        request = Request(tokens=700, k_dtype=BF16, v_dtype=BF16, options={"release": installed(), **options})
        try:
            predicted: int | None = ENGINE.allocate(given, request).total_bytes
        except EngineError:
            predicted = None
        try:
            found: int | None = sum(measure(DATA["configs"][name], arrival_of(request, 700), options, "bfloat16"))
        except EngineError:
            found = None
        assert found == predicted


LLAMA4: dict[str, Any] = {
    "model_type": "llama4_text",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "attention_chunk_size": 512,
    "no_rope_layers": [1, 1, 1, 0],
}


def decoder_of(config: dict[str, Any]) -> Model:
    """A model without a file's own type, of which the library asks no further keys."""
    found = model_of(config, "config.json", "made")
    return Model(found.name, found.model_type, found.layers, found.fields, found.source, max_tokens=found.max_tokens)


@pytest.mark.parametrize(
    ("turns", "tokens", "chunked", "full"),
    [
        ("300", 300, 512, 512),
        ("512", 512, 512, 512),
        ("600", 600, 768, 768),
        ("2000", 2000, 768, 2048),
        ("300,400", 700, 768, 812),
    ],
)
def test_chunks_are_cut_before_each_step(turns: str, tokens: int, chunked: int, full: int) -> None:
    """Rows that the library's own llama4 class holds: three chunked layers and a full one."""
    options: dict[str, OptionValue] = {"turns": turns}
    tally = ENGINE.allocate(decoder_of(LLAMA4), Request(tokens=tokens, k_dtype=BF16, v_dtype=BF16, options=options))
    assert tally.total_bytes == (3 * chunked + full) * 2 * 2 * 64 * 2


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [
        (Request(tokens=10, options={"turns": "8,8"}), UsageError, "are more than the 10 tokens"),
        (Request(tokens=10, k_dtype=BF16, v_dtype=find_dtype("f32")), EngineError, "the model's one type"),
        (Request(tokens=10, k_dtype=find_dtype("q8_0"), v_dtype=find_dtype("q8_0")), EngineError, "the model's one type"),
    ],
)
def test_what_the_library_can_t_be_asked(request_: Request, error: type[KvcalcError], said: str) -> None:
    with pytest.raises(error, match=said):
        ENGINE.allocate(decoder_of(LLAMA4), request_)


def test_cross_attention_is_not_modelled() -> None:
    with pytest.raises(EngineError, match="cross attention is not modelled"):
        ENGINE.allocate(decoder_of({"model_type": "t5"}), Request(tokens=10, encoder_tokens=10))


def test_turns_alone_give_the_length_and_a_batch_its_longest() -> None:
    given = decoder_of({**LLAMA4, "model_type": "llama"})
    row = 4 * 2 * 2 * 64 * 2
    assert ENGINE.allocate(given, Request(k_dtype=BF16, v_dtype=BF16, options={"turns": "300,300"})).total_bytes == 812 * row
    assert ENGINE.allocate(given, Request(lengths=(10, 300), k_dtype=BF16, v_dtype=BF16)).total_bytes == 2 * 512 * row


def test_fit_knows_the_steps_and_the_length_from_which_a_cache_is_quantised() -> None:
    given = decoder_of({**LLAMA4, "model_type": "llama"})
    plain = ENGINE.plan(given, Request(tokens=10))
    assert (plain.step, plain.breaks) == (256, ())
    assert ENGINE.plan(given, Request(tokens=10, options={"kv-bits": "8"})).breaks == (5000,)
    assert ENGINE.plan(given, Request(tokens=10, options={"kv-bits": "8", "quantized-kv-start": 7})).breaks == (7,)
