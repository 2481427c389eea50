"""Add a line to ``tests/data/architectures.jsonl`` for every model type that has none: its fixture, and what it gives.

    python tests/tools/pin_architectures.py                          every type, its class's own sizes or a small shape
    python tests/tools/pin_architectures.py TYPE CONFIG.json         one type, from a published file

A line pins the layers and bytes (4,096 tokens, 100 encoder positions, bfloat16) of one model type. It shows that a change
elsewhere leaves the type alone; that the figures are right is shown by the published, measured and worked cases beside it.
Read the new lines before keeping them. Lines that are there already stay as they are. Then run ``show_architectures.py``, which
adds the configs in which the rest of what a rule does can be seen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvcalc.architectures.table import ARCHITECTURES
from kvcalc.core.layers import kind_of, runs
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines.exact import ENGINE
from kvcalc.errors import KvcalcError
from kvcalc.readers.hf_config import model_of

DATA = Path(__file__).resolve().parents[1] / "data"
TARGET = DATA / "architectures.jsonl"
SHAPE: dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512}
MORE: dict[str, Any] = {
    "is_decoder": True,
    "sliding_window": 256,
    "head_dim": 64,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_dim": 32,
    "qk_rope_dim": 16,
    "v_channels": 32,
    "layer_group_size": 2,
    "indexer_head_dim": 32,
}
OTHERS: dict[str, Any] = {
    "num_transformer_layers": 2,
    "num_query_heads": [4, 8],
    "num_kv_heads": [2, 4],
    "n_layer": 4,
    "n_head": 8,
    "n_embd": 512,
    "head_dim": 64,
}


def summary(model: Model) -> dict[str, Any]:
    """What a model's layers are, in a few words, and what they take."""
    bf16 = find_dtype("bf16")
    tally = ENGINE.allocate(model, Request(tokens=4096, k_dtype=bf16, v_dtype=bf16, encoder_tokens=100))
    split = tally.component_bytes()
    layers = " ".join(f"{count}x{kind_of(layer)}" for _, count, layer in runs(model.layers))
    return {"layers": layers, "bytes": [split[name] for name in ("kv", "index", "state")]}


def fixtures(model_type: str) -> Iterator[dict[str, Any]]:
    """Configs to try, the smallest first; the last are published ones."""
    yield {"model_type": model_type}
    yield {"model_type": model_type, **SHAPE}
    yield {"model_type": model_type, **SHAPE, **MORE}
    yield {"model_type": model_type, **OTHERS}
    for text in (DATA / "published.jsonl").read_text("utf-8").splitlines():
        config = json.loads(text)["config"]
        if config.get("model_type") == model_type:
            yield config


def line(model_type: str, configs: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    """The first config that gives layers, with what it gives."""
    for config in configs:
        try:
            return {"type": model_type, "config": config, **summary(model_of(config, "config.json", model_type))}
        except KvcalcError:
            continue
    return None


def main() -> None:
    """The command."""
    there = [json.loads(text) for text in TARGET.read_text("utf-8").splitlines()] if TARGET.exists() else []
    if len(sys.argv) > 1:
        model_type, path = sys.argv[1:]
        new = [line(model_type, iter([json.loads(Path(path).read_text("utf-8-sig"))]))]
    else:
        known = {row["type"] for row in there}
        new = [
            line(model_type, fixtures(model_type)) or {"type": model_type}
            for model_type in ARCHITECTURES
            if model_type not in known
        ]
    for row in new:
        sys.stdout.write(f"{json.dumps(row)}\n")
    rows = sorted([*there, *(row for row in new if row and "config" in row)], key=lambda row: str(row["type"]))
    TARGET.write_text("".join(f"{json.dumps(row, separators=(',', ':'))}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
