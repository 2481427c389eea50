"""Every shipped preset yields a layout, and the same one as the whole published file that it was taken from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.model import Model, Request
from kvcalc.engines.exact import ENGINE
from kvcalc.errors import ArchitectureError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import preset_model, preset_paths, read_preset, shipped_folder

FILES = sorted(shipped_folder().glob("*.yaml"))
NAMES = [path.stem for path in FILES]
PUBLISHED = {
    line["preset"]: line["config"]
    for line in map(json.loads, (Path(__file__).parent / "data" / "published_configs.jsonl").read_text("utf-8").splitlines())
}
# Types whose rule is still missing; each is refused by name, none counted by guess.
REFUSED: set[str] = set()
CHANGED_LENGTH = {"internvl2-2b"}  # its source changed the file's maximum length, so the preset names none
LLAMA_8B_AT_4096 = 2 * 32 * 1 * 4096 * 8 * 128 * 2  # the equation's factors: 512 MiB


def refusal_or(build: Any, *args: Any) -> Model | str:
    try:
        model: Model = build(*args)
    except ArchitectureError as error:
        return error.what
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_yields_layers_that_can_be_counted(name: str) -> None:
    model = refusal_or(preset_model, name)
    if isinstance(model, str):
        assert name in REFUSED
        return
    tally = ENGINE.allocate(model, Request(tokens=1024, encoder_tokens=100))
    assert len(model.layers) > 1
    assert tally.total_bytes > 0


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_preset_and_the_published_file_give_the_same_layout(name: str) -> None:
    whole = refusal_or(model_of, PUBLISHED[name], "config.json", name)
    excerpt = refusal_or(preset_model, name)
    if isinstance(whole, str) or isinstance(excerpt, str):
        assert whole == excerpt
        return
    assert excerpt.layers == whole.layers
    assert excerpt.draft_layers == whole.draft_layers
    assert excerpt.dtype == whole.dtype
    if name not in CHANGED_LENGTH:
        assert excerpt.max_tokens == whole.max_tokens


def test_the_note_s_shape_takes_512_mib_at_4096_tokens() -> None:
    tally = ENGINE.allocate(preset_model("llama-8b"), Request(tokens=4096))
    assert LLAMA_8B_AT_4096 == 512 * 2**20
    assert tally.total_bytes == LLAMA_8B_AT_4096


def test_an_alias_opens_the_preset() -> None:
    for alias in read_preset(shipped_folder() / "llama-8b.yaml").aliases:
        assert preset_model(alias).layers == preset_model("llama-8b").layers


def test_all_files_are_listed() -> None:
    assert {path.name for path in preset_paths()} >= {path.name for path in FILES}
    assert len(FILES) >= 250
