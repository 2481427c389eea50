"""What the README and docs/ say is run: every command, and every line that they print after it."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Cli

from kvcalc.cli.app import VERBS
from kvcalc.engines import ENGINES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = ("reference.md", "model-types.md")  # written from the program, and tested as such
SLOW = ("verify",)
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_/]{2,}\b|\b[A-Z]+\|")  # kvcalc audit LOG [MODEL]


@dataclass(frozen=True)
class Shown:
    """One command of a page, and the lines that the page prints after it."""

    page: str
    line: int
    command: str
    output: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """Its words after ``kvcalc``."""
        return shlex.split(self.command)[1:]


def commands(page: Path) -> Iterator[Shown]:
    """Prompted lines of console blocks with their output, and commands in running text and tables."""
    lines = page.read_text(encoding="utf-8").splitlines()
    fence, at = "", 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("```"):
            fence = "" if fence else line[3:].strip() or "text"
        elif fence == "console" and line.startswith("$ "):
            output, at = _output(lines, at)
            if (command := _kvcalc(line)) is not None:
                yield Shown(page.name, at, command, output)
        elif command := _typed(line) if fence == "sh" or (not fence and line.startswith("    ")) else None:
            yield Shown(page.name, at + 1, command, ())
        elif not fence:
            for inline in re.findall(r"`(kvcalc [^`]+)`", line):
                if " " not in inline.removeprefix("kvcalc "):
                    yield Shown(page.name, at + 1, f"{inline} --help", ())  # a verb's name in a sentence
                elif not PLACEHOLDER.search(inline) and "…" not in inline:
                    yield Shown(page.name, at + 1, inline, ())
        at += 1


def _output(lines: list[str], at: int) -> tuple[tuple[str, ...], int]:
    """The rest of the block up to the next prompt; where nothing is left, the text block right after it."""
    found = []
    while not lines[at + 1].startswith(("$ ", "```")):
        at += 1
        found.append(lines[at])
    if not found and lines[at + 1 : at + 4] == ["```", "", "```text"]:
        end = lines.index("```", at + 4)
        found = lines[at + 4 : end]
    return tuple(found), at


def _kvcalc(line: str) -> str | None:
    """``$ pip install . && .venv/bin/kvcalc estimate`` → ``kvcalc estimate``."""
    match = re.search(r"(?:^\$ |[/ ])(kvcalc [^|&>]+)$", line)
    return match[1] if match else None


def _typed(line: str) -> str | None:
    """A command of a block without prompts."""
    return line.strip() if line.strip().startswith("kvcalc ") else None


SHOWN = [shown for page in PAGES if page.name not in GENERATED for shown in commands(page)]


@pytest.fixture
def in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the docs' examples, where files may be written."""
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    shutil.copy(ROOT / "docs" / "examples" / "llama-server.log", tmp_path / "server.log")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_are_commands_on_every_page_that_explains_some() -> None:
    pages = {shown.page for shown in SHOWN}
    assert {"README.md", "audit.md", "pictures.md"} <= pages
    assert sum(bool(shown.output) for shown in SHOWN) >= 4


def runs_as_written(shown: Shown, cli: Cli) -> None:
    ran = cli(*shown.words)
    assert ran.code in (0, 1), ran.err
    if shown.output:
        printed = [line.rstrip() for line in ran.out.rstrip("\n").split("\n")]
        assert printed == [line.rstrip() for line in shown.output]


@pytest.mark.parametrize(
    "shown", [each for each in SHOWN if each.words[0] not in SLOW], ids=lambda each: f"{each.page}:{each.line} {each.command}"
)
def test_a_command_runs_and_prints_what_the_page_says(shown: Shown, cli: Cli, in_a_copy: Path) -> None:
    runs_as_written(shown, cli)
    written = [word for word in shown.words if word.endswith((".png", ".svg", ".html"))]
    assert all((in_a_copy / word).stat().st_size > 1000 for word in written)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shown", [each for each in SHOWN if each.words[0] in SLOW], ids=lambda each: f"{each.page}:{each.line} {each.command}"
)
@pytest.mark.usefixtures("in_a_copy")
def test_a_slow_command_runs(shown: Shown, cli: Cli) -> None:
    runs_as_written(shown, cli)


def python_blocks() -> list[str]:
    """The Python that the pages show."""
    block = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [code for page in PAGES for code in block.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("code", python_blocks())
def test_python_on_a_page_runs(code: str, in_a_copy: Path) -> None:
    exec(compile(code, "a page", "exec"), {})


def test_the_reference_is_what_the_program_says() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "tools"))
    from write_reference import PAGE, page

    assert PAGE.read_text(encoding="utf-8") == page(), "stale: run python tests/tools/write_reference.py"


def test_the_reference_names_every_verb_engine_and_exit_code() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert all(f"## kvcalc {verb}\n" in text for verb in VERBS)
    assert all(f"### {engine}\n" in text for engine in ENGINES)


def test_every_relative_link_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
