"""Start-up: the whole process of one estimate against a minimal program that imports the same libraries."""

from __future__ import annotations

import sys
from pathlib import Path

from side_by_side import compare

HERE = Path(__file__).parent

if __name__ == "__main__":
    compare(
        "kvcalc estimate --preset llama-8b",
        [sys.executable, "-m", "kvcalc", "estimate", "--preset", "llama-8b"],
        "minimal Typer, pydantic, rich",
        [sys.executable, str(HERE / "minimal.py"), "show"],
    )
    compare("kvcalc --version", [sys.executable, "-m", "kvcalc", "--version"], "python -c pass", [sys.executable, "-c", "pass"])
