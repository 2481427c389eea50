"""Text from outside never steers the terminal, a page or a spreadsheet: every verb, every place where such text can stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Cli

from kvcalc.escapes import text_cell, visible, visible_json

ESC, C1, BIDI, LINE = "\x1b[31m\x1b]0;title\x07", "\x9b2J", "\u202e\u2066", "\u2028"
HOSTILE = f"m{ESC}{C1}{BIDI}{LINE}"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config, a preset, a log and a launch line, each with hostile words and names."""
    monkeypatch.chdir(tmp_path)
    home = tmp_path / f"home{HOSTILE}".replace("/", "")
    home.mkdir()
    (home / "config.json").write_text(json.dumps({**LLAMA, "torch_dtype": "bfloat16", "layer_types": None}))
    (tmp_path / "bad.json").write_text(json.dumps({**LLAMA, "torch_dtype": HOSTILE}))
    (tmp_path / "type.json").write_text(json.dumps({**LLAMA, "model_type": HOSTILE}))
    (tmp_path / "key.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": HOSTILE}))
    (tmp_path / "server.log").write_text(
        f"INFO [gpu_worker.py:1] {HOSTILE} Available KV cache memory: 16.00 GiB\nllama_kv_cache: {HOSTILE}\n"
    )
    presets = tmp_path / "presets"
    presets.mkdir()
    (presets / "mine.yaml").write_text(
        "name: mine\ntitle: " + json.dumps(HOSTILE) + "\nfamily: mine\ncheckpoint: " + json.dumps(HOSTILE) + "\n"
        "source: {repo: "
        + json.dumps(HOSTILE)
        + ", path: x, note: y}\nconfig:\n"
        + "".join(f"  {k}: {v}\n" for k, v in LLAMA.items())
    )
    return tmp_path


def home(folder: Path) -> str:
    return str(next(path for path in folder.iterdir() if path.name.startswith("home")))


CASES = {
    "a folder's name": lambda f: (
        [[verb, "--config", home(f)] for verb in ("estimate", "inspect")]
        + [["fit", "--config", home(f), "--memory", "1GiB"], ["compare", home(f), "llama-8b"]]
        + [["sweep", "--config", home(f), "--format", form] for form in ("table", "csv", "markdown", "json")]
    ),
    "a type": lambda f: [["estimate", "--config", "bad.json"], ["inspect", "--config", "bad.json"]],
    "a model type": lambda f: [["estimate", "--config", "type.json"]],
    "a value": lambda f: [["estimate", "--config", "key.json"], ["sweep", "--config", "key.json"]],
    "words of a command line": lambda f: [
        ["estimate", HOSTILE],
        ["estimate", "llama-8b", "--engine", HOSTILE],
        ["estimate", "llama-8b", "-o", HOSTILE],
        ["estimate", "llama-8b", "--set", f"{HOSTILE}=1"],
        ["estimate", "llama-8b", "--tokens", HOSTILE],
        ["fit", "llama-8b", "--gpu", HOSTILE],
        ["gpus", HOSTILE],
        ["engines", HOSTILE],
        ["presets", HOSTILE],
        ["audit", HOSTILE],
        ["check", f"vllm serve {HOSTILE} --max-model-len {HOSTILE}"],
    ],
    "a log": lambda f: [["audit", "server.log"], ["audit", "server.log", "llama-8b"]],
    "a preset": lambda f: [["presets", "--presets-dir", "presets"], ["presets", "mine", "--presets-dir", "presets"]],
}


@pytest.mark.parametrize("name", CASES)
def test_no_verb_lets_it_through(name: str, folder: Path, cli: Cli) -> None:
    for words in CASES[name](folder):
        for more in ([], ["--json"]):
            if "--format" in words and more:
                continue
            ran = cli(*words, *more)
            assert ran.code in (0, 1, 2, 3, 4, 5), words
            assert not UNSAFE.search(ran.out), words
            assert not UNSAFE.search(ran.err), words


def test_pages_and_files_take_halves_of_letters(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,'
        ' "num_key_value_heads": 2, "hidden_size": 32, "torch_dtype": "\\ud800"}'
    )
    name = "m\udcffx"
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text(json.dumps(LLAMA))
    for words in (["--html", "page.html"], ["--json"]):
        assert cli("estimate", "--config", name, *words).code == 0
    assert cli("sweep", "--config", name, "--output", "rows.csv", "--format", "csv").code == 0
    assert cli("estimate", "--config", "config.json").code in (0, 3, 4)
    assert "\\udcff" in (tmp_path / "page.html").read_text()
    assert "\\udcff" in (tmp_path / "rows.csv").read_text()


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_a_formula_is_text_in_a_spreadsheet(start: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"{start}1+1"
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text(json.dumps(LLAMA))
    rows = cli("sweep", f"--config=./{name}", "--format", "csv", "--tokens", "1k").out.splitlines()
    assert rows[1].startswith(f"'{start}")


def test_a_newline_in_a_name_keeps_a_row_whole(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "two\nlines|"
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text(json.dumps(LLAMA))
    rows = cli("sweep", "--config", name, "--format", "markdown", "--tokens", "1k").out.splitlines()
    assert len(rows) == 3
    assert "two\\nlines\\|" in rows[2]


def test_letters_of_any_script_stay() -> None:
    for text in ("Qwen3-8B", "modèle", "模型", "модель", "نموذج", "😀"):
        assert visible(text) == text == json.loads(visible_json(json.dumps(text, ensure_ascii=False)))


def test_an_escape_means_the_same_in_json() -> None:
    assert json.loads(visible_json(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE
    assert json.loads(visible_json(json.dumps("\U000e0041", ensure_ascii=False))) == "\U000e0041"


def test_cells() -> None:
    assert [text_cell(text) for text in ("=A1", "llama", "")] == ["'=A1", "llama", ""]
