"""The wheel and the sdist, each built and installed into an environment of its own, and a program that uses the types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kvcalc import __version__

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow
CONSUMER = '''
"""A program that uses kvcalc as a library, under mypy --strict."""

from fractions import Fraction

import kvcalc
from kvcalc import estimate, load_model
from kvcalc.core.model import Model
from kvcalc.errors import KvcalcError


def total(name: str, tokens: int) -> int:
    model: Model = load_model(name)
    try:
        found = estimate(model, tokens=tokens, dtype="bf16")
    except KvcalcError as problem:
        raise SystemExit(f"{problem.what}: {problem.fix}") from problem
    growth: Fraction | None = found.bytes_per_token
    split: dict[str, int] = found.tally.component_bytes()
    assert growth is not None and sum(split.values()) == found.total_bytes
    return found.total_bytes


version: str = kvcalc.__version__
print(total("llama-8b", 4096))
'''


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_both_hold_what_they_must(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert f"kvcalc-{__version__}-" in wheel.name
    inside = set(zipfile.ZipFile(wheel).namelist())
    for name in ("kvcalc/py.typed", "kvcalc/presets/llama-8b.yaml", "kvcalc/reports/page/page.js", "kvcalc/cli/app.py"):
        assert name in inside
    assert not [name for name in inside if name.startswith(("tests/", "docs/"))]
    with tarfile.open(sdist) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "presets/llama-8b.yaml", "tests/test_packages.py"):
        assert name in source
    for name in ("docs/reference.md", "docs/examples/vllm.log", "tests/data/vllm.json"):
        assert name in source


@pytest.mark.parametrize("pattern", ["*.whl", "*.tar.gz"])
def test_each_installs_into_an_empty_environment_and_answers(built: Path, pattern: str, tmp_path: Path) -> None:
    (package,) = built.glob(pattern)
    run(sys.executable, "-m", "venv", tmp_path / "env")
    run(tmp_path / "env" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package)
    kvcalc = tmp_path / "env" / "bin" / "kvcalc"
    assert run(kvcalc, "--version", cwd=tmp_path).strip() == f"kvcalc {__version__}"
    found = json.loads(run(kvcalc, "estimate", "--preset", "llama-8b", "--json", cwd=tmp_path))
    assert found["total_bytes"] == 512 * 2**20
    assert "presets" in run(kvcalc, "presets", cwd=tmp_path).splitlines()[-1]
    run(kvcalc, "estimate", "gemma-3-4b", "--html", "page.html", cwd=tmp_path)
    assert "<svg" in (tmp_path / "page.html").read_text()
    (tmp_path / "program.py").write_text(CONSUMER)
    assert run(tmp_path / "env" / "bin" / "python", "program.py", cwd=tmp_path).strip() == str(512 * 2**20)
    for words in (["sweep", "llama-8b", "--plot", "a.png"], ["verify"]):  # an extra that isn't there is named
        done = subprocess.run([kvcalc, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "pip install" in done.stderr) == (5, True), done.stderr


def test_a_program_that_uses_it_passes_mypy_strict(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CONSUMER)
    env = {**os.environ, "MYPYPATH": str(ROOT)}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout


def test_a_wrong_use_fails_mypy(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CONSUMER.replace("tokens=tokens", "tokens=[tokens]"))
    env = {**os.environ, "MYPYPATH": str(ROOT)}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, "arg-type" in done.stdout) == (1, True)
