"""``kvcalc presets`` and ``kvcalc engines``: what there is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import Cli

from kvcalc.engines import ENGINES, find_engine
from kvcalc.readers.presets import shipped_folder


def test_all_presets_are_listed(cli: Cli) -> None:
    found = cli("presets", "--json").json["presets"]
    assert {each["name"] for each in found} == {path.stem for path in shipped_folder().glob("*.yaml")}
    assert all({"name", "title", "family", "aliases", "checkpoint", "source", "config"} <= each.keys() for each in found)


def test_a_word_filters(cli: Cli) -> None:
    found = cli("presets", "qwen3", "--json").json["presets"]
    assert 5 < len(found) < 100
    assert all("qwen3" in f"{each['name']} {each['title']} {each['family']} {each['aliases']}".lower() for each in found)
    out = cli("presets", "qwen3").out
    assert all(each["name"] in out for each in found)


def test_a_name_shows_everything_and_where_it_was_read(cli: Cli) -> None:
    out = cli("presets", "llama-8b").out
    assert "config.num_key_value_heads" in out
    assert "read from" in out
    (found,) = cli("presets", "llama-8b", "--json").json["presets"]
    assert found["name"] == "llama-8b"


def test_an_alias_shows_its_preset(cli: Cli) -> None:
    (found,) = cli("presets", "llama3.1-8b", "--json").json["presets"]
    assert found["name"] == "llama-8b"


def test_a_preset_s_file_is_printed_as_it_stands(cli: Cli) -> None:
    assert cli("presets", "llama-8b", "--yaml").out == (shipped_folder() / "llama-8b.yaml").read_text(encoding="utf-8")
    assert cli("presets", "Qwen3 14B", "--yaml").out.startswith("name: qwen3-14b\n")
    assert [cli("presets", *words, "--yaml").code for words in ((), ("llama-8b", "--json"), ("nosuchmodel",))] == [2, 2, 3]


def test_a_misspelt_name_gets_the_nearest(cli: Cli) -> None:
    ran = cli("presets", "lamma-8b", "--json")
    assert ran.code == 3
    assert "llama-8b" in ran.json["error"]["fix"]


def test_a_broken_file_of_a_user_s_hides_no_other(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: [", encoding="utf-8")
    ran = cli("presets", "--presets-dir", tmp_path, "--json")
    assert ran.code == 0
    assert {each["name"] for each in ran.json["presets"]} == {path.stem for path in shipped_folder().glob("*.yaml")}
    assert ran.err.startswith(f"note: left out: {tmp_path / 'mine.yaml'}")
    assert cli("presets", "mine", "--presets-dir", tmp_path).code == 3


def test_all_engines_are_listed(cli: Cli) -> None:
    found = cli("engines", "--json").json["engines"]
    assert [each["name"] for each in found] == list(ENGINES)
    out = cli("engines").out
    assert all(name in out for name in ENGINES)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_says_version_source_evidence_and_options(name: str, cli: Cli) -> None:
    engine = find_engine(name)
    assert engine.name == name
    assert all((engine.version, engine.source, engine.evidence, engine.excluded))
    out = cli("engines", name).out
    (found,) = cli("engines", name, "--json").json["engines"]
    assert (found["version"], found["source"], found["evidence"]) == (engine.version, engine.source, engine.evidence)
    assert [each["name"] for each in found["options"]] == [option.name for option in engine.options]
    for option in engine.options:
        assert option.name in out
        assert option.help
        assert option.kind in ("int", "count", "bytes", "bool", "text", "choice")
        assert bool(option.choices) == (option.kind == "choice")


@pytest.mark.parametrize("name", ENGINES)
def test_options_that_an_engine_lacks_or_can_t_take_are_usage_errors(name: str, cli: Cli) -> None:
    shape = ("estimate", "llama-8b", "--engine", name)
    for text in ("nonsense", "nonsense=1", "", "=", "=1"):
        ran = cli(*shape, "-o", text)
        assert ran.code == 2, text
        assert "no option" in ran.err
    for option in find_engine(name).options:
        for value in ("", "\0", "nope nope"):
            ran = cli(*shape, "-o", f"{option.name}={value}")
            assert ran.code in (2, 4) or option.kind == "text", (option.name, value, ran.out[:200])
            assert "Traceback" not in ran.err
        if option.kind in ("int", "count", "bytes"):
            for value in ("--5", "1e30", "nan", "9" * 40, "0x10", "-"):
                assert cli(*shape, "-o", f"{option.name}={value}").code == 2, (option.name, value)
        twice = ("-o", f"{option.name}=1", "-o", f"{option.name}=1")
        assert cli(*shape, *twice).code == 2


@pytest.mark.parametrize(("word", "near"), [("vlm", "vllm"), ("exakt", "exact"), ("zzz", "exact")])
def test_a_misspelt_engine(word: str, near: str, cli: Cli) -> None:
    ran = cli("engines", word)
    assert ran.code == 4
    assert near in ran.err
    assert cli("estimate", "llama-8b", "--engine", word).code == 4


def test_without_the_hubs_package_the_preset_made_of_that_checkpoint_answers(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that very checkpoint, and only where no revision is asked for; the weights are the preset's too."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    found, own = cli("estimate", "Qwen/Qwen3-8B", "--json"), cli("estimate", "qwen3-8b", "--json")
    assert found.code == 0
    assert "which was made of Qwen/Qwen3-8B" in found.err
    assert found.json == own.json
    assert (
        cli("fit", "qwen/qwen3-8b", "--memory", "24GiB", "--weights", "auto", "--json").json["weights_bytes"] == 2 * 8_190_735_360
    )
    assert cli("fit", "Qwen/Qwen3-8B", "--memory", "24GiB", "--weights", "q4_k_m").code == 0
    for words in (("Qwen/Qwen3-8B-AWQ",), ("Qwen/Qwen3-8B", "--revision", "main"), ("someone/qwen3-8b",)):
        assert cli("estimate", *words).code == 5
