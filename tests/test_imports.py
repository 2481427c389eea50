"""Imports point downward only, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvcalc
from kvcalc.engines import ENGINES

ROOT = Path(kvcalc.__file__).parent
FILES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
# What a part of the package may import besides itself. Readers, reports and verify don't know each other.
BASE = {"errors", "units", "dtypes", "values", "tables", "escapes"}
PURE = {*BASE, "core", "architectures", "engines"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "units": {"errors"},
    "values": set(),
    "tables": set(),
    "escapes": set(),
    "dtypes": {"errors", "units", "values"},
    "core": BASE,
    "architectures": {*BASE, "core"},
    "engines": {*BASE, "core", "architectures"},
    "audit": PURE,
    "launch": {"errors", "tables", "values"},  # text in, settings out: knows no model and no engine of ours
    "check": {*PURE, "launch"},
    "readers": PURE,
    "reports": {*PURE, "audit", "launch", "check", "__init__"},
    "verify": PURE,
    "answers": {"errors", "cli"},  # the command line, from Python
    "api": {*PURE, "readers", "reports", "cli", "answers"},
    "cli": {*PURE, "audit", "launch", "check", "readers", "reports", "verify", "__init__"},
    "__init__": {*PURE, "api"},
    "__main__": {"cli"},
}
STDLIB_ONLY = {*PURE, "audit", "check"}
HEAVY = {"torch", "matplotlib", "huggingface_hub", "transformers", "numpy", "llama_cpp", "vllm", "gguf"}
TORCH_HOME = "verify"
IMPURE = {
    "os",
    "pathlib",
    "time",
    "datetime",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "tempfile",
    "shutil",
    "io",
    "urllib",
    "logging",
}


def part_of(module: str) -> str:
    words = module.split(".")
    return words[1] if len(words) > 1 else "__init__"


def imports(path: Path, top_level_only: bool = False) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def uses(path: Path) -> set[str]:
    """The parts of the package that a file imports, wherever in it."""
    found = {part_of(name) for name in imports(path) if name == "kvcalc" or name.startswith("kvcalc.")}
    return {"__init__" if part == "__version__" else part for part in found}


def test_every_part_has_its_level() -> None:
    assert {part_of(module) for module in FILES} == ALLOWED.keys()


@pytest.mark.parametrize("module", FILES)
def test_imports_point_downward(module: str) -> None:
    part = part_of(module)
    assert uses(FILES[module]) - {part} <= ALLOWED[part]


@pytest.mark.parametrize("module", [module for module in FILES if part_of(module) in STDLIB_ONLY])
def test_a_pure_part_takes_the_standard_library_alone(module: str) -> None:
    roots = {name.split(".")[0] for name in imports(FILES[module])} - {"kvcalc"}
    assert roots <= sys.stdlib_module_names
    assert not roots & IMPURE


@pytest.mark.parametrize("module", [module for module in FILES if part_of(module) == "launch"])
def test_reading_a_launch_line_touches_nothing_outside(module: str) -> None:
    roots = {name.split(".")[0] for name in imports(FILES[module])} - {"kvcalc", "yaml"}
    assert roots <= sys.stdlib_module_names
    assert not roots & IMPURE


@pytest.mark.parametrize("module", [module for module in FILES if part_of(module) in {*STDLIB_ONLY, "launch"}])
def test_a_pure_part_neither_prints_nor_reads(module: str) -> None:
    calls = [node.func for node in ast.walk(ast.parse(FILES[module].read_text("utf-8"))) if isinstance(node, ast.Call)]
    assert not {func.id for func in calls if isinstance(func, ast.Name)} & {"print", "open", "input", "eval", "exec"}


@pytest.mark.parametrize("module", FILES)
def test_nothing_heavy_is_imported_when_a_module_is(module: str) -> None:
    roots = {name.split(".")[0] for name in imports(FILES[module], top_level_only=True)}
    assert not roots & (HEAVY if part_of(module) != TORCH_HOME else HEAVY - {"torch"})


@pytest.mark.parametrize("module", [module for module in FILES if part_of(module) != TORCH_HOME])
def test_torch_stays_in_its_home(module: str) -> None:
    names = {name.split(".")[0] for name in imports(FILES[module])}
    assert "torch" not in names or module in ASKS_A_DEVICE


ASKS_A_DEVICE = {"kvcalc.readers.device"}  # how much memory a device of this machine has free


@pytest.mark.parametrize("module", FILES)
def test_no_module_runs_to_more_than_500_lines(module: str) -> None:
    data = {"kvcalc.architectures.class_defaults"}  # generated
    assert module in data or len(FILES[module].read_text("utf-8").splitlines()) <= 500


NEVER = {"torch", "matplotlib", "huggingface_hub", "transformers", "numpy", "httpx", "requests", "asyncio"}
RUNS = {
    "estimate": ("estimate", "--preset", "llama-8b"),
    "estimate as json": ("estimate", "--preset", "llama-8b", "--json"),
    "sweep": ("sweep", "--tokens", "1k..32k"),
    "compare": ("compare", "llama-8b", "qwen3-8b"),
    "inspect": ("inspect", "llama-8b"),
    "engines": ("engines",),
    "another engine": ("estimate", "llama-8b", "--engine", "vllm"),
    "help": ("--help",),
}
LOADED = "import sys; from kvcalc.cli import main; code = main(sys.argv[1:]); print(code, *sorted(sys.modules), file=sys.stderr)"


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_loads(name: str) -> None:
    ran = subprocess.run([sys.executable, "-c", LOADED, *RUNS[name]], capture_output=True, text=True, check=True, timeout=60)
    code, *modules = ran.stderr.splitlines()[-1].split()
    assert code == "0"
    roots = {module.split(".")[0] for module in modules}
    assert not roots & NEVER
    if name.startswith("estimate"):
        verbs = {module.removeprefix("kvcalc.cli.") for module in modules if module.startswith("kvcalc.cli.")}
        assert not verbs & {"sweep", "compare", "inspect", "presets", "engines", "verify", "audit", "check", "fit"}
        assert {module for module in modules if module.startswith("kvcalc.verify")} == set()
        assert {module for module in modules if module in ENGINES.values()} == {ENGINES["exact"]}


def test_importing_the_package_loads_next_to_nothing() -> None:
    text = "import sys; before = set(sys.modules); import kvcalc; print(*sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert {name for name in ran.stdout.split() if name.startswith("kvcalc")} == {"kvcalc"}
