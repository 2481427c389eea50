"""Write ``tests/data/llamacpp_sample.json``: a seeded, stratified part of llama.cpp's measured cases.

    python tests/tools/sample_llamacpp.py FOLDER

FOLDER holds llamacpp.jsonl and llamacpp-versions.jsonl. Every model gives a few cases; every refusal and every case of an
older release is kept; a model's metadata keeps the keys that the engine's rules read.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvcalc.architectures.gguf import GgufFields, fields_of, find_row
from kvcalc.engines.llamacpp.arches import ARCHES
from kvcalc.engines.llamacpp.hparams import read_hparams
from kvcalc.errors import EngineError, KvcalcError

TARGET = Path(__file__).resolve().parents[1] / "data" / "llamacpp_sample.json"
PER_MODEL = 4
SEED = 20261001


class Recorder(dict[str, Any]):
    """Metadata that notes which keys were asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        """As a dict's."""
        self.asked.add(key)
        return super().get(key, default)


def stripped(metadata: dict[str, Any]) -> dict[str, Any]:
    """The keys that decide the caches."""
    arch = metadata["general.architecture"]
    recorder = Recorder(metadata)
    try:
        read_hparams(recorder, arch, ARCHES[arch])
    except EngineError:
        return metadata
    with suppress(KvcalcError):
        fields_of(GgufFields(recorder, arch, str, ""), find_row(arch))
    return {key: value for key, value in metadata.items() if key in recorder.asked or key == "general.architecture"}


def compact(row: dict[str, Any]) -> dict[str, Any]:
    """What a test compares."""
    kept: dict[str, Any] = {key: row[key] for key in ("id", "version", "params", "result") if key in row}
    kept["model"] = row["id"].split("/")[0]
    if row["result"] == "ok":
        kept["caches"] = row["caches"]
        kept["other"] = row.get("other_state_bytes", 0)
        kept["total"] = row.get("context_bytes", row["kv_bytes"] + row["recurrent_bytes"])
    else:
        kept["log"] = row["log"][-1]
    return kept


def chosen(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A few cases of each model, and every refusal of a kind."""
    draw = random.Random(SEED)
    models: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        models.setdefault(row["id"].split("/")[0], []).append(row)
    for group in models.values():
        fine = [row for row in group if row["result"] == "ok"]
        special = [row for row in fine if row["params"].get("ctx_type") or row["params"].get("n_rs_seq")]
        picked = {row["id"]: row for row in draw.sample(fine, min(PER_MODEL, len(fine)))}
        picked |= {row["id"]: row for row in special[:2]}
        picked |= {row["id"]: row for row in group if row["result"] == "error"}
        yield from picked.values()


def main(folder: Path) -> None:
    """Read the cases, choose, write."""
    rows = [json.loads(line) for line in (folder / "llamacpp.jsonl").read_text().splitlines()]
    older = [json.loads(line) for line in (folder / "llamacpp-versions.jsonl").read_text().splitlines()]
    cases = [*chosen(rows), *older]
    models = {row["id"].split("/")[0]: stripped(row["metadata"]) for row in cases}
    lines = [json.dumps(compact(row), separators=(",", ":")) for row in cases]
    known = [f"{json.dumps(name)}:{json.dumps(metadata, separators=(',', ':'))}" for name, metadata in models.items()]
    TARGET.write_text('{"models":{\n' + ",\n".join(known) + '\n},\n"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{len(cases)} cases of {len(models)} models, {TARGET.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
