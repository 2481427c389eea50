"""A sweep of a million cells to CSV, against csv.writer writing the same rows from a list."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from side_by_side import compare

CELLS = 1_000_000
PLAIN = f"""
import csv, sys
rows = [("llama-8b", "bfloat16", "bfloat16", 1, n, 131072 * n, n > 131072, None) for n in range(1, {CELLS} + 1)]
with open(sys.argv[1], "w", newline="") as stream:
    csv.writer(stream, lineterminator="\\n").writerows(rows)
"""

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder) / "sweep.csv")
        axis = ["--tokens", f"1..{CELLS}:1", "--format", "csv", "--force", "--output", target]
        plain = [sys.executable, "-c", PLAIN, target]
        for model in ("llama-8b", "gpt-oss-20b"):
            name = f"kvcalc sweep {model}, {CELLS:,} cells"
            compare(name, [sys.executable, "-m", "kvcalc", "sweep", model, *axis], "csv.writer from a list", plain, runs=3)
