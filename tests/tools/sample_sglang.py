"""Cut tests/data/sglang.json from the measured figures: ``python tests/tools/sample_sglang.py FOLDER`` (sglang.jsonl, configs/).

The first case of every model type with every set of server arguments, and every refusal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "data" / "sglang.json"
_LEFT_OUT = ("vision", "token", "vocab", "auto_map", "id2label", "label2id", "audio")


def main(folder: Path) -> None:
    """Rows, and the configurations that they name."""
    rows = [json.loads(line) for line in (folder / "sglang.jsonl").read_text(encoding="utf-8").splitlines()]
    seen: set[tuple[object, ...]] = set()
    kept = []
    for row in rows:
        key = (row.get("model_type"), row["params"]["sm"], *sorted((row["params"].get("args") or {}).items(), key=str))
        if row.get("error") or key not in seen:
            seen.add(key)
            kept.append(row)
    configs: dict[str, Any] = {}
    found = []
    for row in kept:
        config = row.get("config") or json.loads((folder / row["source"]).read_text(encoding="utf-8"))
        name = row["id"].split("/")[1]
        configs.setdefault(name, _slim(config))
        found.append({"id": row["id"], "config": name, "params": row["params"], **_wanted(row)})
    TARGET.write_text(json.dumps({"configs": configs, "rows": found}, separators=(",", ":")) + "\n", encoding="utf-8")
    print(len(found), "rows", TARGET.stat().st_size, "bytes")


def _wanted(row: dict[str, Any]) -> dict[str, Any]:
    """What must come: the heaviest pipeline stage's pools and bytes, or a refusal."""
    if row.get("error"):
        return {"error": row["error"][:80]}
    heavy = max(row["ranks"], key=lambda rank: rank["total_bytes"])
    states = (heavy.get("mamba") or {}).get("size") or None
    return {
        "tokens": heavy["max_total_num_tokens"],
        "window_tokens": heavy["swa_max_total_num_tokens"] or None,
        "states": states,
        "total_bytes": heavy["total_bytes"],
    }


def _slim(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, held in config.items():
        if not any(word in key for word in _LEFT_OUT) or key == "vocab_size":
            found[key] = _slim(held) if isinstance(held, dict) else held
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
