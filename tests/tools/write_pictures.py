"""Draw the README's picture of the terminal, light and dark: ``python tests/tools/write_pictures.py``."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WIDTH = 92
COMMANDS = (
    "kvcalc estimate --preset llama-8b",
    "kvcalc compare llama-8b qwen3-8b gemma-3-4b deepseek-v3 --tokens 32k",
)
LIGHT = TerminalTheme(
    (255, 255, 255),
    (36, 41, 47),
    [(36, 41, 47), (164, 14, 38), (17, 99, 41), (125, 78, 0), (9, 80, 160), (130, 80, 190), (27, 124, 131), (90, 96, 102)],
)
PLAIN = {"highlight": False, "emoji": False, "markup": False, "force_terminal": True, "width": WIDTH}
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def picture(theme: TerminalTheme) -> str:
    """The commands and what they print, as SVG with the reader's own monospaced font."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False, emoji=False, markup=False
    )
    for command in COMMANDS:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(printed(command))
        console.print()
    svg = console.export_svg(title="kvcalc", theme=theme, unique_id="kvcalc")
    without = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: [^;]*;", f"font-family: {FONT};", without)


def printed(command: str) -> Text:
    """What a command prints on a terminal of this width."""
    from kvcalc.cli import output
    from kvcalc.cli.app import main

    out = io.StringIO()
    console = Console(
        file=out, width=WIDTH, force_terminal=True, color_system="standard", highlight=False, emoji=False, markup=False
    )
    kept = output.console
    output.console = lambda *_, **__: console
    try:
        main(shlex.split(command)[1:])
    finally:
        output.console = kept
    return Text.from_ansi(out.getvalue().rstrip("\n"))


def pictures() -> dict[str, str]:
    """File name → content."""
    return {"terminal-light.svg": picture(LIGHT), "terminal-dark.svg": picture(DIMMED_MONOKAI)}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, content in pictures().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
