"""What an engine takes besides weights and cache: the rules, and public starts that they must hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvcalc.core.model import Model, Request
from kvcalc.engines import find_engine
from kvcalc.engines.other_memory import other_memory, share_of_card, vllm
from kvcalc.engines.other_memory.facts import GIB, Card, Facts, Other
from kvcalc.engines.other_memory.sizes import Sizes, sizes_of
from kvcalc.engines.vllm.releases import RELEASES
from kvcalc.readers.hf_config import model_of

STARTS = json.loads((Path(__file__).parent.parent / "data" / "vllm_starts.json").read_text())
QWEN3_8B = Sizes(4096, 12288, 151_936, layers=36)
H100 = Card(round(79.18 * GIB), "h100", "sm90")


def rule(sizes: Sizes, release: str, card: Card, tp: int = 1, **options: object) -> Other:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return vllm.other(Facts(sizes, Request(tp_size=tp, options=named), RELEASES.find(release), card))  # type: ignore[arg-type]


@pytest.mark.parametrize("start", STARTS["starts"], ids=lambda start: str(start["id"]))
def test_public_starts_lie_inside(start: dict[str, float | str | None]) -> None:
    """GiB that neither weights nor cache got, of text models on one or two discrete cards."""
    named = {name: start[name] for name in ("max_num_seqs", "max_num_batched_tokens", "enforce_eager") if start[name] is not None}
    sizes = Sizes(int(start["hidden"] or 0), int(start["wide"] or 0), int(start["vocabulary"] or 0))
    found = rule(sizes, str(start["release"]), Card(round(float(start["total"] or 0) * GIB)), int(start["tp"] or 1), **named)
    assert found.high is not None
    assert found.low / GIB - 0.01 <= float(start["other"] or 0) <= found.high / GIB + 0.01


def test_pytorchs_sampler_takes_the_same_of_every_model() -> None:
    """9.65 · 1,024 · 151,936 · 4 bytes = 5.59 GiB, as three logs state; 256 sequences free three quarters."""
    stated = 9.65 * 1024 * 151_936 * 4
    for hidden in (2560, 4096):
        found = rule(replace(QWEN3_8B, hidden=hidden), "0.11.2", H100)
        assert found.high is not None
        assert found.low < stated < found.high
        assert "max-num-seqs=256" in found.advice
    fewer = rule(QWEN3_8B, "0.11.2", H100, max_num_seqs=256)
    assert fewer.high is not None
    assert fewer.high < 2.2 * GIB


@pytest.mark.parametrize("release", list(RELEASES.known))
@pytest.mark.parametrize("card", [H100, Card(round(23.52 * GIB), "rtx-4090", "sm89"), Card(round(44.42 * GIB), "l40s", "sm89")])
def test_an_interval_at_default_settings_is_narrow(release: str, card: Card) -> None:
    found = rule(QWEN3_8B, release, card)
    assert found.high is not None
    assert 0 < found.low < found.high <= found.low + 1.5 * GIB


def test_graphs_are_subtracted_from_0_20_on() -> None:
    small = replace(QWEN3_8B, vocabulary=32_000)
    by_release = {name: rule(small, name, H100) for name in ("0.19.1", "0.20.0")}
    eager = rule(small, "0.20.0", H100, enforce_eager=True)
    assert "outside the budget" in by_release["0.19.1"].basis
    assert "estimated" in by_release["0.20.0"].basis
    assert eager.low < by_release["0.20.0"].low
    assert "no CUDA graphs" in eager.basis


@pytest.mark.parametrize(
    ("sizes", "card", "tp", "words"),
    [
        (replace(QWEN3_8B, multimodal=True), H100, 1, "20 public starts"),
        (replace(QWEN3_8B, latent=True), H100, 8, "7 public starts"),
        (QWEN3_8B, Card(120 * GIB, "gb10", "sm121"), 1, "5 public starts"),
        (QWEN3_8B, H100, 8, "not covered"),
        (QWEN3_8B, Card(24 * GIB, "rx-7900-xtx", "gfx1100"), 1, "not covered"),
    ],
)
def test_beyond_the_rule_what_was_seen_is_said(sizes: Sizes, card: Card, tp: int, words: str) -> None:
    found = rule(sizes, "0.33.0", card, tp)
    assert words in found.basis
    assert (found.high is None) == ("not covered" in words)


def test_the_equation_takes_nothing() -> None:
    assert other_memory(find_engine("exact"), _model({}), Request(), H100) is None


def test_llama_cpps_head_to_the_byte() -> None:
    """A public log of a Llama-3-8B: 258.50 MiB = 4 · 512 · (128,256 + 4,096), within the interval's tenth."""
    found = other_memory(find_engine("llama.cpp"), _model({"vocab_size": 128_256}), Request(), H100)
    assert found is not None
    assert found.high is not None
    assert found.low == round(0.9 * 258.5 * 2**20)
    assert other_memory(find_engine("llama.cpp"), _model({}), Request(), H100) is not None


def test_sizes_are_read_of_the_decoder_and_of_the_experts_that_a_token_passes() -> None:
    assert sizes_of(_model({"vocab_size": 128_256})) == Sizes(4096, 14336, 128_256, layers=2)
    experts = {
        "model_type": "qwen3_moe",
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
        "head_dim": 128,
    }
    assert sizes_of(_model(experts)).intermediate == 8 * 768
    assert sizes_of(_model({"vocab_size": True, "intermediate_size": -1})).vocabulary is None


@pytest.mark.parametrize(
    ("mib", "tp", "expected"),
    [
        # 512 + 1.5 · 4,096 + 128 + 2 · 32 + 8 · 50 sizes up to 4,096
        (46_068, 1, round((46_068 - 512 - 6_144 - 128 - 64 - 8 * 50) / 46_068, 3)),
        (24_564, 1, round((24_564 - 512 - 6_144 - 128 - 96 - 8 * 50) / 24_564, 3)),
        # 512 + 1.5 · 8,192 + 128 + 2 · 256 + 8 · 58 is more than 10 GiB
        (81_559, 1, round((81_559 - 512 - 12_288 - 128 - 512 - 8 * 58) / 81_559, 3)),
        (81_559, 8, round((81_559 - 512 - 12_288 - 1_024 - 1_024 - 8 * 58) / 81_559, 3)),
        (15_360, 1, round((15_360 - 512 - 3_072 - 128 - 16 - 8 * 42) / 15_360, 3)),
    ],
)
def test_sglangs_share_goes_by_the_card(mib: int, tp: int, expected: float) -> None:
    card = Card(mib * 2**20, "card", "sm89", mib * 2**20)
    share, said = share_of_card(find_engine("sglang"), _model({"vocab_size": 128_256}), Request(tp_size=tp), card)
    assert float(share) == expected
    assert f"{mib:,} MiB" in said


def test_sglangs_share_of_an_unknown_card_is_its_usual_one() -> None:
    assert share_of_card(find_engine("sglang"), _model({}), Request(), Card(24 * GIB))[0] == "0.88"


def _model(more: dict[str, object]) -> Model:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "intermediate_size": 14336,
    }
    return model_of({**config, **more}, "config.json", "toy")
