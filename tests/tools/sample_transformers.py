"""Write ``tests/data/transformers.jsonl``: a seeded, stratified part of the cases measured on transformers.

    python tests/tools/sample_transformers.py FOLDER

FOLDER holds transformers.jsonl. One case of each model type, cache class, release and way of filling it; the file as users
have it where there is one, else the library's normalised form.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "data" / "transformers.jsonl"
SEED = 20261001
KEPT = (
    "id",
    "transformers",
    "cache",
    "mode",
    "dtype",
    "batch",
    "tokens",
    "max_cache_len",
    "encoder_tokens",
    "backend",
    "backend_options",
    "prefill_tokens",
    "total_bytes",
    "storage_bytes",
)
# Keys that hold words, tokens or weights' settings: no cache depends on them.
NOISE = ("id2label", "label2id", "auto_map", "task_specific_params", "pruned_heads", "bad_words_ids", "vision_config")


def compact(row: dict[str, Any]) -> dict[str, Any]:
    """What a test compares, and the config without keys that are only words."""
    kept = {key: row[key] for key in KEPT if key in row}
    kept["layers"] = [[run["layers"], run["bytes_per_layer"]] for run in row["layers"]]
    config = row.get("raw_config") or row["config"]
    kept["config"] = {key: value for key, value in config.items() if key not in NOISE}
    return kept


def chosen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One of each stratum, the longest lengths as likely as the shortest."""
    draw = random.Random(SEED)
    strata: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        way = row["mode"] if row["cache"] != "quantized" else row["backend"] + str(row["prefill_tokens"])
        strata.setdefault((row["model_type"], row["cache"], row["transformers"], way), []).append(row)
    return [draw.choice(strata[key]) for key in sorted(strata)]


def main(folder: Path) -> None:
    """Read the whole file, write the sample."""
    rows = [json.loads(line) for line in (folder / "transformers.jsonl").read_text().splitlines()]
    lines = [json.dumps(compact(row), separators=(",", ":"), sort_keys=True) for row in chosen(rows)]
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
