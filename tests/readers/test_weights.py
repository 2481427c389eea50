"""How big the weights are: tensor tables, indexes and headers, presets; and what doesn't say."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path

import pytest

from kvcalc.core.gguf import GgufMetadata, TensorInfo
from kvcalc.core.model import Model
from kvcalc.errors import ConfigError, GgufError, InputError, KvcalcError, PresetError
from kvcalc.readers.gguf import GgufFile
from kvcalc.readers.gguf_model import model_of_gguf
from kvcalc.readers.presets import preset_paths, read_preset
from kvcalc.readers.weights import weights_of_folder, weights_of_gguf, weights_of_index, weights_of_preset

KEYS = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
}


def gguf(*tensors: TensorInfo, table: bool = True) -> Model:
    return model_of_gguf(GgufFile(GgufMetadata(KEYS, {}, tensors if table else None), "made.gguf"), {})


def safetensors(path: Path, header: object, claimed: int | None = None) -> None:
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if claimed is None else claimed) + raw)


def tensor(end: object) -> dict[str, object]:
    return {"dtype": "F16", "shape": [1], "data_offsets": [0, end]}


def test_a_tensor_table() -> None:
    """256 · 4 numbers in q4_K (144 bytes for 256) and 64 in f32."""
    found = weights_of_gguf(gguf(TensorInfo("a", (256, 4), 12, 0), TensorInfo("b", (64,), 0, 0)))
    assert found == (4 * 144 + 64 * 4, "the tensor table of made.gguf")


@pytest.mark.parametrize("model", [gguf(table=False), gguf(TensorInfo("a", (256,), 999, 0))], ids=["none", "unknown type"])
def test_a_table_that_does_not_say(model: Model) -> None:
    """A dump has no table; a type that came later has no size."""
    with pytest.raises(GgufError):
        weights_of_gguf(model)


def test_a_preset() -> None:
    """8,030,261,248 parameters in bfloat16; one that names none says so."""
    assert weights_of_preset("llama-8b", None)[0] == 8_030_261_248 * 2
    with pytest.raises(PresetError, match="names no"):
        weights_of_preset("bart-base", None)


def test_without_a_type_sixteen_bits_are_assumed_and_said() -> None:
    size, origin = weights_of_preset("opt-125m", None)
    assert size == 2 * 125_239_296
    assert "assumed" in origin


def test_nearly_every_preset_knows_its_size() -> None:
    known = [path.stem for path in preset_paths() if (preset := read_preset(path)).parameters or preset.weights_bytes]
    assert len(known) >= 235


def test_a_checkpoint_in_several_types() -> None:
    """gpt-oss-20b's index states metadata.total_size = 13,761,264,768: experts in MXFP4, the rest in bfloat16."""
    assert weights_of_preset("gpt-oss-20b", None) == (13_761_264_768, "preset gpt-oss-20b: its tensors in mxfp4")
    assert weights_of_preset("gpt-oss-120b", None)[0] == 65_248_815_744


def test_counts_agree_with_names() -> None:
    """A model that is called 7b has about seven thousand million parameters."""
    seen = 0
    for path in preset_paths():
        said = re.findall(r"-(\d+(?:\.\d+)?)b(?=-|$)", path.stem)  # of two (olmoe-1b-7b) the last is all that there is
        count = read_preset(path).parameters
        if said and count:
            seen += 1
            assert 0.7 < count / (float(said[-1]) * 1e9) < 1.7, path.stem
    assert seen > 150


def test_headers_end_where_the_last_tensor_ends(tmp_path: Path) -> None:
    """Two files of 600 and 40 bytes; their metadata takes nothing."""
    safetensors(tmp_path / "model-00001.safetensors", {"__metadata__": {"format": "pt"}, "a": tensor(200), "b": tensor(600)})
    safetensors(tmp_path / "model-00002.safetensors", {"c": tensor(40)})
    assert weights_of_folder(tmp_path / "config.json")[0] == 640


@pytest.mark.parametrize("size", ["1", 1.5, None, -1, True, 2**63, [1]])
def test_an_index_without_a_size(tmp_path: Path, size: object) -> None:
    """total_size is a whole positive number, or nothing is known."""
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": size}}))
    with pytest.raises(ConfigError):
        weights_of_index(path)
    path.write_text(json.dumps({"metadata": {"total_size": 12.0}}))
    assert weights_of_index(path)[0] == 12


@pytest.mark.parametrize("end", [-1, "600", None, 2**70, True, [600]])
def test_headers_that_lie(tmp_path: Path, end: object) -> None:
    """Offsets that can't be."""
    safetensors(tmp_path / "model.safetensors", {"a": tensor(end)})
    with pytest.raises(InputError):
        weights_of_folder(tmp_path)


def test_a_pipe_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match="not a regular file"):
        weights_of_folder(tmp_path)


@pytest.mark.parametrize("claimed", [0, 1, 10**6, 2**40, 2**63])
def test_headers_that_end_early(tmp_path: Path, claimed: int) -> None:
    """A length beyond the file, or beyond all reason, is not read."""
    safetensors(tmp_path / "model.safetensors", {"a": tensor(1)}, claimed)
    with pytest.raises(KvcalcError):
        weights_of_folder(tmp_path)
