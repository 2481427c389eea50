"""Write ``tests/data/architectures_shown.jsonl``: configs in which each thing that a rule of the table does can be seen.

    python tests/tools/show_architectures.py

The lines of ``architectures.jsonl`` are small; a window or a period may not show in them. Here every rule is changed in one
thing at a time (``tests/mutants.py``), and each type gets the fewest further configs that notice the changes
that no line noticed, and that tell its row from a plain decoder's. What no config shows is printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutants import SAME_EITHER_WAY, Mutant, mutants, own_rule, pinned, turned_plain

from kvcalc.architectures.table import ARCHITECTURES

DATA = Path(__file__).resolve().parents[1] / "data"
TARGET = DATA / "architectures_shown.jsonl"
Config = dict[str, Any]
SIZES: Config = {"num_hidden_layers": 14, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512, "head_dim": 64}
WINDOWS: Config = {"sliding_window": 256, "use_sliding_window": True, "max_window_layers": 5, "attention_chunk_size": 512}
PERIODS: Config = {
    "full_attention_interval": 3,
    "global_attn_every_n_layers": 5,
    "sliding_window_pattern": 3,
    "no_rope_layer_interval": 3,
    "attn_layer_period": 4,
    "attn_layer_offset": 2,
}
LISTS: Config = {
    "full_attn_idxs": [1, 4, 9],
    "attn_type_list": [1, 0, 0, 1, *[0] * 10],
    "mixer_types": ["lightning", "minicpm4", "lightning_attn", "lightning-attn", *["minicpm4"] * 10],
}
WIDTHS: Config = {
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "index_head_dim": 32,
    "is_decoder": True,
    "add_cross_attention": True,
}
SWITCHES: Config = {
    "multi_query": True,
    "multi_query_attention": True,
    "attn_config": {"attn_type": "multiquery_attention"},
    "interleaved_sliding_window": [256, None] * 7,
    "num_kv_reuse_layers": 3,
    "num_loops": 2,
    "use_cla": True,
    "cla_share_factor": 2,
}
BLOCKS: Config = {
    "block_configs": [{"attention": {"n_heads_in_group": 4, "no_op": False, "replace_with_linear": False}}] * 14,
    "layer_types": ["attn", "jet", "swa"] * 5,
    "efficient_attention_config": {"swa": {"window_size": 256}, "jet": {"num_heads": 4, "head_dim": 32}},
}
KINDS = (
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "hybrid",
    "hybrid_sliding",
    "conv",
    "reference_sliding_attention",
)


def candidates(model_type: str) -> Iterator[Config]:
    """Configs to try: the class's own sizes, more and more said, and published files."""
    for base in ({}, {"num_hidden_layers": 14}, SIZES, {**SIZES, **WIDTHS}):
        for told in ({}, WINDOWS, {**WINDOWS, **PERIODS}, {**WINDOWS, **LISTS}, {**WINDOWS, "max_window_layers": 0}, LISTS):
            yield {"model_type": model_type, **base, **told}
        for kind in KINDS:
            yield {"model_type": model_type, **base, **WINDOWS, "num_hidden_layers": 2, "layer_types": [kind] * 2}
    yield {"model_type": model_type, **SIZES, **WINDOWS, "num_hidden_layers": 2}
    yield {"model_type": model_type, **SIZES, **SWITCHES}
    yield {"model_type": model_type, **{key: said for key, said in SIZES.items() if key != "num_key_value_heads"}, **SWITCHES}
    yield {"model_type": model_type, **SIZES, **BLOCKS}
    yield {"model_type": model_type, **SIZES, **WIDTHS, **WINDOWS, "attn_layer_offset": 0, "attn_layer_period": 3}
    yield {"model_type": model_type, **SIZES, **WINDOWS, "first_k_dense_replace": 6, "sliding_window_pattern": 4}
    yield {"model_type": model_type, **SIZES, **WINDOWS, "first_k_dense_replace": 6, "prefix_dense_sliding_window_pattern": 3}
    for text in (DATA / "published.jsonl").read_text("utf-8").splitlines():
        config = json.loads(text)["config"]
        if config.get("model_type") == model_type:
            yield config


def of_rules() -> Iterator[list[str]]:
    """The types of each rule."""
    found: dict[int, list[str]] = {}
    for name, row in ARCHITECTURES.items():
        found.setdefault(id(row.rule), []).append(name)
    yield from found.values()


def noticed(mutant: Mutant, pins: Sequence[tuple[str, Config, object]]) -> bool:
    """Whether a pin changes under a mutant."""
    with mutant.made():
        return any(pinned(name, config) != given for name, config, given in pins)


def shown(names: list[str], there: dict[str, list[Config]]) -> list[tuple[str, Config]]:
    """The further configs of one rule's types."""
    pins = [(name, config, pinned(name, config)) for name in names for config in there[name]]
    changes = [mutant for mutant in mutants(ARCHITECTURES[names[0]].rule) if (names[0], mutant.what) not in SAME_EITHER_WAY]
    left = [mutant for mutant in changes if not noticed(mutant, pins)]
    found = []
    for name in names:
        plain = [turned_plain(name)] if own_rule(name) else []
        missing = [mutant for mutant in plain if not noticed(mutant, [pin for pin in pins if pin[0] == name])]
        for config in candidates(name):
            if not left and not missing:
                break
            pin = [(name, config, pinned(name, config))]
            seen = [mutant for mutant in (*left, *missing) if pin[0][2] is not None and noticed(mutant, pin)]
            if seen:
                found.append((name, config))
                left, missing = ([mutant for mutant in group if mutant not in seen] for group in (left, missing))
        sys.stderr.writelines(f"{name}: {mutant.what} is not shown\n" for mutant in missing)
    sys.stderr.writelines(f"{', '.join(names[:3])}: {mutant.what} is not shown\n" for mutant in left)
    return found


def main() -> None:
    """The command."""
    there: dict[str, list[Config]] = {}
    for text in (DATA / "architectures.jsonl").read_text("utf-8").splitlines():
        row = json.loads(text)
        there.setdefault(row["type"], []).append(row["config"])
    lines = [
        {"type": name, "config": config, **(pinned(name, config) or {})}
        for names in of_rules()
        for name, config in shown(names, there)
    ]
    lines.sort(key=lambda line: str(line["type"]))
    TARGET.write_text("".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
