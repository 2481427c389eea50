"""Write ``tests/data/published.jsonl``: published config.json files, whole, with the bytes that they must give.

    python tests/tools/sample_published.py FOLDER

FOLDER holds logical.jsonl (right bytes at four lengths in bfloat16, one sequence), configs/INDEX.tsv and the files that
both name. A line has id, source, encoder_tokens, ``bytes`` as [tokens, kv, index, state] rows, and the config itself.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "data" / "published.jsonl"


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """One published file a line."""
    with (folder / "configs" / "INDEX.tsv").open(encoding="utf-8") as file:
        origins = {row["file"]: row for row in csv.DictReader(file, delimiter="\t")}
    for text in (folder / "logical.jsonl").read_text("utf-8").splitlines():
        row = json.loads(text)
        origin = origins.get(Path(row["file"]).name) if row["file"].startswith("configs/") else None
        yield {
            "id": row["id"],
            "source": f"{origin['source repo + path']} {origin['commit']}" if origin else row["checkpoint"],
            "encoder_tokens": row["encoder_tokens"],
            "bytes": [[at["tokens"], at["kv_bytes"], at["indexer_bytes"], at["state_bytes"]] for at in row["totals"]],
            "also_ok": [[at["tokens"], at["kv_bytes"], at["indexer_bytes"]] for at in row.get("also_ok") or ()],
            "config": json.loads((folder / row["file"]).read_text("utf-8-sig")),
        }


def main() -> None:
    """The command."""
    found = [json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in lines(Path(sys.argv[1]))]
    TARGET.write_text("\n".join(found) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(found)} files, {TARGET.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
