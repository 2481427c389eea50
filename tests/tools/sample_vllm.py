"""Write ``tests/data/vllm.json``: a stratified sample of measured vLLM plans, each configuration kept once.

    KVCALC_ORACLE=FOLDER python tests/tools/sample_vllm.py

One case, the first by a seeded order, for every combination of model type, platform, cache type, ranks and what came of
it; so a rule that breaks for one kind of model shows.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "data" / "vllm.json"
WANTED = ("num_blocks", "kv_tokens", "max_concurrency", "bytes_per_block", "blocks_per_request", "allocated_bytes", "log_line")
PER_STRATUM = 1
UNREAD = ("quantization_config", "vision_config", "mlp_layer_types", "rope_scaling_factors", "id2label", "label2id")
FILES = ("vllm.jsonl", "vllm-0.33.jsonl")


def stratum(row: dict[str, Any]) -> tuple[object, ...]:
    """What two cases must share for one of them to be enough."""
    asked, error = row["params"], str(row.get("error", ""))
    outcome = "memory" if "KV cache is needed" in error else error[:12] or "plan"
    if "release" in row:  # the newer file repeats what the first one asks
        return row["release"], row["model_type"], outcome
    extra = ",".join(sorted(asked["extra"]))
    return (
        row["model_type"],
        asked["sm"],
        asked["kv_cache_dtype"],
        min(asked["tp"], 2),
        outcome,
        extra,
        asked["max_model_len"] == -1,
    )


def slim(config: dict[str, Any]) -> dict[str, Any]:
    """Without keys that no rule of a cache reads."""
    return {key: value for key, value in config.items() if "token" not in key and key not in UNREAD}


def main() -> None:
    """Read, choose, write."""
    folder = Path(os.environ["KVCALC_ORACLE"])
    rows = [json.loads(line) for name in FILES for line in (folder / name).read_text().splitlines()]
    rows = [row for row in rows if "num_blocks" in row or "error" in row]
    random.Random(20).shuffle(rows)
    kept: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in rows:
        kept.setdefault(stratum(row), []).append(row)
    chosen = sorted((row for rows in kept.values() for row in rows[:PER_STRATUM]), key=lambda row: row["id"])
    configs: dict[str, dict[str, Any]] = {}
    cases = []
    for row in chosen:
        configs.setdefault(row["model"], slim(row["config"]))
        want = {"error": row["error"][:160]} if row.get("error") else {key: row[key] for key in WANTED if key in row}
        asked = {"release": row["version"], **row["params"]}
        cases.append({"id": row["id"], "model": row["model"], "params": asked, "want": want})
    TARGET.write_text(json.dumps({"configs": configs, "cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
