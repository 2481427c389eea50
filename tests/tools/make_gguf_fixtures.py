"""Write ``tests/data/gguf``: one small file a defect, named by it.

python tests/tools/make_gguf_fixtures.py
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "readers"))

from gguf_files import HOSTILE  # noqa: E402 - found by the line above

LARGEST = 4096


def main() -> None:
    """Each damaged header that is small enough to keep."""
    folder = TESTS / "data" / "gguf"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (raw, _) in HOSTILE.items():
        if len(raw) <= LARGEST:
            (folder / f"{name}.gguf").write_bytes(raw)


if __name__ == "__main__":
    main()
