"""Presets: found by name, alias or spelling; checked key by key; read alone."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Cli

from kvcalc.errors import PresetError
from kvcalc.readers import presets
from kvcalc.readers.presets import (
    MAX_PRESET_BYTES,
    find_preset,
    parse_yaml,
    preset_model,
    preset_paths,
    read_preset,
    shipped_folder,
)

Save = Callable[..., Path]
CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
MINE: dict[str, Any] = {
    "name": "mine",
    "title": "Mine",
    "family": "mine",
    "aliases": ["my-own"],
    "source": {"repo": "me/mine", "path": "config.json"},
    "config": CONFIG,
}


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """``save({...})`` → a preset file in a folder of the user's own."""

    def file(content: object, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
        return path

    return file


SPELLINGS = ["llama-8b", "LLAMA-8B", " llama-8b ", "llama_8b", "llama:8b", "meta-llama/llama-8b", "Llama 3.1 8B", " llama  8b"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_name_in_the_spellings_that_people_use(name: str) -> None:
    assert find_preset(name).stem == "llama-8b"


def test_every_title_is_a_way_of_naming_its_preset() -> None:
    assert [path for path in preset_paths() if find_preset(read_preset(path).title) != path] == []


def test_everything_that_is_missing_is_told_at_once(save: Save) -> None:
    with pytest.raises(PresetError) as caught:
        read_preset(save({"name": "mine", "config": {}, "sorce": {}}))
    assert [f"{key}: field required" in caught.value.what for key in ("title", "family", "source")] == [True] * 3
    assert "sorce" in caught.value.what
    assert caught.value.fix.endswith("kvcalc presets llama-8b --yaml")


def test_every_key_that_is_none_is_told_at_once(save: Save) -> None:
    with pytest.raises(PresetError) as caught:
        read_preset(save({**MINE, "config": {**CONFIG, "num_hiden_layers": 2, "hidden_sise": 3}}))
    assert "config.num_hiden_layers" in caught.value.what
    assert "config.hidden_sise" in caught.value.what


@pytest.mark.parametrize("name", ["llama-8b", "Llama 3.1 8B"])
def test_a_user_s_preset_in_a_shipped_one_s_place_is_said_aloud(name: str, save: Save, cli: Cli) -> None:
    path = save({**MINE, "name": "llama-8b", "title": "Llama 3.1 8B"}, "llama-8b.yaml")
    ran = cli("estimate", name, "--presets-dir", path.parent, "--json")
    assert ran.code == 0
    assert ran.err.splitlines() == [f"note: {name} is your own preset {path}, not llama-8b as it ships with kvcalc"]
    assert cli("estimate", "my-own", "--presets-dir", path.parent).err == ""


@pytest.mark.parametrize(
    "name", ["./llama-8b", "/llama-8b", "a/b/llama-8b", "~/llama-8b", "llama-8b/", "llama-8b.yaml", "../presets/llama-8b"]
)
def test_a_path_is_no_name(name: str) -> None:
    with pytest.raises(PresetError, match="no preset called"):
        find_preset(name)


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(PresetError) as caught:
        find_preset("lama-8b")
    assert "llama-8b" in caught.value.fix


@pytest.mark.parametrize("name", ["", " ", "zzzzzzzz", "x" * 10_000, "a\0b", "..", "*", "[", "%s", "é"])
def test_what_is_no_name_is_one_short_error(name: str) -> None:
    with pytest.raises(PresetError) as caught:
        find_preset(name)
    assert len(str(caught.value)) < 300


def test_reading_one_preset_opens_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real_open, path_open = builtins.open, Path.open

    def noted(self: Path, *args: Any, **more: Any) -> Any:
        opened.append(self.name)
        return path_open(self, *args, **more)

    def noted_open(file: Any, *args: Any, **more: Any) -> Any:
        opened.append(Path(str(file)).name)
        return real_open(file, *args, **more)

    monkeypatch.setattr(Path, "open", noted)
    monkeypatch.setattr(builtins, "open", noted_open)
    preset_model("llama-8b")
    assert [name for name in opened if name.endswith(".yaml")] == ["llama-8b.yaml"]


# ---- a user's own


def test_a_folder_of_one_s_own(save: Save) -> None:
    folder = save(MINE).parent
    assert len(preset_model("mine", folder).layers) == len(preset_model("my-own", folder).layers) == 2


def test_one_s_own_stands_before_a_shipped_one_of_the_same_name(save: Save) -> None:
    folder = save({**MINE, "name": "llama-8b", "aliases": []}, "llama-8b.yaml").parent
    assert len(preset_model("llama-8b", folder).layers) == 2
    assert sum(path.name == "llama-8b.yaml" for path in preset_paths(folder)) == 1


@pytest.mark.parametrize(("variable", "below"), [("XDG_CONFIG_HOME", ""), ("HOME", ".config"), ("USERPROFILE", ".config")])
def test_the_user_s_config_folder(
    variable: str, below: str, save: Save, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli
) -> None:
    for name in ("XDG_CONFIG_HOME", "HOME", "USERPROFILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / below / "kvcalc" / "presets"
    folder.mkdir(parents=True)
    save(MINE, str(folder / "mine.yaml"))
    monkeypatch.setenv(variable, str(tmp_path))
    assert len(preset_model("mine").layers) == 2
    assert cli("estimate", "mine").code == 0
    assert cli("presets", "mine", "--json").json["presets"][0]["aliases"] == ["my-own"]


def test_without_a_home_only_shipped_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "HOME", "USERPROFILE"):
        monkeypatch.delenv(name, raising=False)
    assert presets.folders() == [shipped_folder()]


def test_a_name_with_an_underscore_is_found_as_it_is_written(save: Save) -> None:
    folder = save({**MINE, "name": "my_model"}, "my_model.yaml").parent
    assert len(preset_model("my_model", folder).layers) == 2


def test_a_broken_file_of_one_s_own_hides_no_other(save: Save) -> None:
    folder = save("a: [", "broken.yaml").parent
    assert preset_model("llama3.1-8b", folder).name == "llama-8b"
    with pytest.raises(PresetError, match="not YAML"):
        preset_model("broken", folder)


@pytest.mark.parametrize("folder", ["nowhere", "file"])
def test_a_folder_that_is_none(folder: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("")
    ran = cli("estimate", "llama-8b", "--presets-dir", tmp_path / folder)
    assert ran.code == 3
    assert "no such folder" in ran.err


# ---- the schema


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in MINE.items() if name != key}


HEAD = "name: mine\ntitle: a\nfamily: mine\nsource: {repo: a}\n"
BROKEN: dict[str, tuple[object, str]] = {
    "no name": (without("name"), "name"),
    "no config": (without("config"), "config"),
    "no source": (without("source"), "source"),
    "an unknown key": ({**MINE, "colour": "red"}, "colour"),
    "an unknown key of the source": ({**MINE, "source": {"repo": "a", "page": 5}}, "source.page"),
    "an upper-case name": ({**MINE, "name": "Mine"}, "name"),
    "another name than the file's": ({**MINE, "name": "yours"}, "name"),
    "a number for a title": ({**MINE, "title": 5}, "title"),
    "an alias with a blank": ({**MINE, "aliases": ["a b"]}, "aliases.0"),
    "a parameter count of nothing": ({**MINE, "parameters": 0}, "parameters"),
    "a parameter count as text": ({**MINE, "parameters": "8B"}, "parameters"),
    "a boolean parameter count": ({**MINE, "parameters": True}, "parameters"),
    "a config that is a list": ({**MINE, "config": []}, "config"),
    "a misspelt key of the config": ({**MINE, "config": {**CONFIG, "num_hiden_layers": 2}}, "config.num_hiden_layers"),
    "a misspelt key of a nested config": (
        {**MINE, "config": {"model_type": "llava", "text_config": {"hiden_size": 2}}},
        "config.text_config.hiden_size",
    ),
    "a date": (
        HEAD + "config: {model_type: 2020-01-01}",
        "config.model_type",
    ),
    "a set": (
        HEAD + "config: {layer_types: !!set {a}}",
        "config.layer_types",
    ),
    "an endless integer": (
        HEAD + f"config: {{hidden_size: 0x{'f' * 9999}}}",
        "config.hidden_size",
    ),
    "nested hundreds deep": (
        {**MINE, "config": {"model_type": "llama", "layer_types": yaml.safe_load("[" * 99 + "]" * 99)}},
        "config.layer_types",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_preset_names_file_and_key(name: str, save: Save) -> None:
    content, key = BROKEN[name]
    path = save(content)
    with pytest.raises(PresetError) as caught:
        read_preset(path)
    assert caught.value.where == f"{path}: {key}"
    assert len(str(caught.value)) < 500


def test_a_misspelt_key_gets_the_nearest(save: Save) -> None:
    with pytest.raises(PresetError) as caught:
        read_preset(save({**MINE, "config": {**CONFIG, "num_hiden_layers": 2}}))
    assert "num_hidden_layers" in caught.value.fix


HOSTILE = {
    "a bomb of aliases": "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    "a bomb of merged keys": "a: &a {k: 1}\nb: {<<: *a}\n",
    "nested by a list": "[" * 30_000,
    "nested by a map": "{a: " * 10_000,
    "nested by dashes": "- " * 30_000 + "x",
    "an integer of thousands of digits": f"a: {'9' * 60_000}",
    "a date that is none": "a: 9999-99-99",
    "a python object": "a: !!python/object/apply:os.system [ls]",
    "bytes that are none": "a: !!binary x",
    "a tab": "\ta: 1",
    "a NUL": "a: \0",
    "a quote without end": "a: 'b",
    "a list as key": "{[a]: 1}",
    "two documents": "a: 1\n---\nb: 2",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_one_clear_error(name: str) -> None:
    with pytest.raises(PresetError) as caught:
        parse_yaml(HOSTILE[name], "mine.yaml")
    assert caught.value.where.startswith("mine.yaml")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("word", ["1:30", "020", "-01", "yes", "No", "on", "OFF", "1:30.5"])
def test_a_word_that_versions_of_yaml_read_differently_is_refused(word: str) -> None:
    for text in (f"a: {word}", f"a: [{{b: {word}}}]", f"{word}: a"):
        with pytest.raises(PresetError, match="versions of YAML") as caught:
            parse_yaml(text, "mine.yaml")
        assert caught.value.where.startswith("mine.yaml: line 1")
    assert parse_yaml(f"a: '{word}'", "mine.yaml") == {"a": word}


def test_a_word_that_means_one_thing_is_taken() -> None:
    words = parse_yaml("[20, 0, 0x20, 1.5, 0.5, true, False, null, a, 1e-5, -1]", "mine.yaml")
    assert words == [20, 0, 32, 1.5, 0.5, True, False, None, "a", "1e-5", -1]


@pytest.mark.parametrize("text", ["a: 1\na: 2", "a: {b: 1, b: 1}", "- {b: 1, c: 2, b: 3}", "a: 1\n'a': 2"])
def test_a_key_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(PresetError, match=r"the key '.' is given twice"):
        parse_yaml(text, "mine.yaml")


def test_a_pipe_among_one_s_own_presets_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "piped.yaml")
    assert not any(path.name == "piped.yaml" for path in preset_paths(tmp_path))


@pytest.mark.parametrize("text", ["", "5", "[]", "just words", "null"], ids=repr)
def test_yaml_that_is_no_mapping(text: str, save: Save) -> None:
    with pytest.raises(PresetError, match="a preset is a mapping"):
        read_preset(save(text))


def test_a_file_of_megabytes_is_not_parsed(save: Save) -> None:
    with pytest.raises(PresetError, match="over"):
        read_preset(save("#" * (MAX_PRESET_BYTES + 1)))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PresetError, match="not UTF-8"):
        read_preset(tmp_path / "mine.yaml")
