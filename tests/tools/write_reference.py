"""Write docs/reference.md from the command line itself: ``python tests/tools/write_reference.py``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
HEAD = """# Reference

Written by `tests/tools/write_reference.py` from the program itself; a test fails when it is stale.

`kvcalc VERB --help` shows the same on the terminal. Token counts are binary (`32k` is 32,768; `1m` is 1,048,576); memory takes
`24GiB` (binary) and `24GB` (decimal). Ranges: `1k..32k` doubles, `1k..32k:4k` steps, `1k,3000,32k` lists.
"""
CODES = """## Exit codes

| code | meaning |
|---|---|
| 0 | done, or yes |
| 1 | the answer is no: it does not fit, it differs |
| 2 | the command line contradicts itself |
| 3 | bad input: a file or value that can't be right |
| 4 | unsupported, or refused by the engine's own rules |
| 5 | something is unavailable: an extra, the hub, a device, a file that can't be written |
| 70 | a bug in kvcalc, traceback shown |
| 130 | interrupted |
"""


def page() -> str:
    """The whole reference."""
    return "\n".join(part for part in (HEAD, *_verbs(), *_engines(), _types(), CODES))


def _verbs() -> Iterator[str]:
    from kvcalc.cli.app import VERBS, _command

    for verb, module in VERBS.items():
        examples = "\n".join(import_module(module).EXAMPLES)
        found = _command(verb).commands[verb]
        about = " ".join(str(found.help or "").partition("\f")[0].split())
        yield f"## kvcalc {verb}\n\n{about}\n\n```sh\n{examples}\n```\n\n{_options(found)}"


def _options(command: Any) -> str:
    rows: dict[str, list[str]] = {}
    for param in command.params:
        panel = getattr(param, "rich_help_panel", None) or ("Arguments" if param.param_type_name == "argument" else "Options")
        if getattr(param, "hidden", False):
            continue
        names = f"`{param.name}`" if param.param_type_name == "argument" else ", ".join(f"`{name}`" for name in param.opts)
        rows.setdefault(panel, []).append(f"| {names} | {_cell(param.help)}{_default(param)} |")
    return "\n".join(f"| {panel} | |\n|---|---|\n" + "\n".join(lines) + "\n" for panel, lines in rows.items())


def _cell(text: object) -> str:
    return " ".join(str(text or "").split()).replace("|", "\\|")


def _default(param: Any) -> str:
    value = getattr(param, "default", None)
    shown = isinstance(value, str) and value and not isinstance(value, bool)
    return f" Default: `{getattr(value, 'value', value)}`." if shown else ""


def _engines() -> Iterator[str]:
    from kvcalc.engines import ALIASES, ENGINES, find_engine

    yield "## Engines\n\nOptions are given as `-o NAME=VALUE` beside `--engine`.\n"
    for name in ENGINES:
        engine = find_engine(name)
        also = ", ".join(f"`{alias}`" for alias, target in ALIASES.items() if target == name)
        rules = f"Rules: {engine.source}. Evidence: {engine.evidence}."
        head = f"### {engine.name}\n\nVersion {engine.version}{f' (also {also})' if also else ''}. {rules}\n"
        rows = "".join(_row(option) for option in engine.options)
        yield head + (f"\n| option | what it is | takes | default |\n|---|---|---|---|\n{rows}" if rows else "\nNo options.\n")


def _row(option: Any) -> str:
    return f"| `{option.name}` | {_cell(option.help)} | {_cell(_kind(option))} | {_cell(option.default)} |\n"


def _kind(option: Any) -> str:
    return ", ".join(option.choices) if option.choices else option.kind


def _types() -> str:
    from kvcalc.dtypes import ALIASES, DTYPES

    rows = ""
    for dtype in DTYPES.values():
        also = ", ".join(f"`{alias}`" for alias, name in ALIASES.items() if name == dtype.name)
        block = f"{dtype.block_bytes} for {dtype.block_elements}" if dtype.block_elements > 1 else f"{dtype.block_bytes}"
        rows += f"| `{dtype.name}` | {block} | {also} |\n"
    return f"## Element types\n\n| type | bytes | also written |\n|---|---|---|\n{rows}"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
