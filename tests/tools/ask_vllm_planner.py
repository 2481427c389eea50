"""Write ``tests/data/vllm_releases.jsonl``: what each release's own planner makes of caches written by hand.

    python tests/tools/ask_vllm_planner.py VLLM_FOLDER

The folder holds one unpacked wheel a release (``0.11.0/vllm/…``). Only ``vllm/v1/core/kv_cache_utils.py`` and
``vllm/v1/kv_cache_interface.py`` (and, from 0.33 on, ``kv_cache_planning.py``) are run, on the CPU; every other module of vLLM
is a stand-in. Needs torch. Each release is asked in a process of its own.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import json
import logging
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

TARGET = Path(__file__).resolve().parents[1] / "data" / "vllm_releases.jsonl"
REAL = (
    *("vllm.v1.core.kv_cache_utils", "vllm.v1.kv_cache_interface", "vllm.v1.core.kv_cache_planning"),
    *("vllm.v1.kv_cache_spec_registry", "vllm.v1.kv_cache_layout", "vllm.utils.math_utils", "vllm.utils.mem_constants"),
)
GIB = 2**30
FULL, SLIDING, CHUNKED, MLA, STATE = (
    "FullAttentionSpec",
    "SlidingWindowSpec",
    "ChunkedLocalAttentionSpec",
    "MLAAttentionSpec",
    "MambaSpec",
)

# Model → its layers in order: (class, KV heads, width, window or chunk, tokens a block) or (class, shapes, page).
# A hybrid's blocks are as the platform's code aligns them: multiples of 16 whose attention page holds the state.
Row = tuple[Any, ...]
MODELS: dict[str, list[Row]] = {
    "llama-8b": [(FULL, 8, 128, 0)] * 32,
    "mistral-7b-v0.1": [(SLIDING, 8, 128, 4096)] * 32,
    "gemma-2-9b": [(SLIDING, 8, 256, 4096), (FULL, 8, 256, 0)] * 21,
    "gemma-3-27b": [(FULL if i % 6 == 5 else SLIDING, 16, 128, 0 if i % 6 == 5 else 1024) for i in range(62)],
    "gpt-oss-20b": [(SLIDING, 8, 64, 128), (FULL, 8, 64, 0)] * 12,
    "llama-4-scout": [(FULL if i % 4 == 3 else CHUNKED, 8, 128, 0 if i % 4 == 3 else 8192) for i in range(48)],
    "qwen3-next-80b-a3b": [
        (STATE, ((3, 8192), (32, 128, 128)), 544 * 2048) if i % 4 != 3 else (FULL, 2, 256, 0, 544) for i in range(48)
    ],
    "granite-4.0-h-small": [
        (FULL, 8, 128, 0, 528) if i in (5, 15, 25, 35) else (STATE, ((3, 8448), (128, 64, 128)), 528 * 4096) for i in range(40)
    ],
}
MEMORY, LENGTHS, BATCHED = 20 * GIB, (32768, 1000), 8192


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Every module of vLLM that is not run: its attributes are made up as they are asked for."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Whether the module is one of vLLM's, and not run."""
        if name.split(".", maxsplit=1)[0] in ("vllm", "cloudpickle", "msgspec", "cbor2", "zmq", "xxhash") and name not in REAL:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        """An empty package."""
        module = types.ModuleType(spec.name)
        module.__path__ = [str(Path(SOURCES, *spec.name.split(".")))] if spec.name.startswith("vllm") else []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """What the planner itself needs of others, for real."""
        import torch

        module.__getattr__ = lambda name: _made_up(module.__name__, name)  # type: ignore[method-assign]
        module.cdiv = lambda a, b: -(a // -b)  # type: ignore[attr-defined]
        module.round_up = lambda a, b: -(a // -b) * b  # type: ignore[attr-defined]
        module.get_dtype_size = lambda dtype: torch.tensor([], dtype=dtype).element_size()  # type: ignore[attr-defined]
        module.GiB_bytes = GIB  # type: ignore[attr-defined]
        module.format_gib = lambda size: f"{size / GIB:.2f}"  # type: ignore[attr-defined]
        module.init_logger = _Logger  # type: ignore[attr-defined]
        module.get_hisparse_kv_cache_groups = lambda *_: None  # type: ignore[attr-defined]


def _made_up(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name[:1].isupper() and not name.endswith("Enum"):
        return type(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls), "__module__": module})
    return MagicMock(name=name)


class _Logger(logging.Logger):
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


SOURCES = Path()


def ask(release: str, folder: Path) -> list[dict[str, Any]]:
    """One release's answers."""
    global SOURCES  # noqa: PLW0603 - the stand-ins look their packages up there
    SOURCES = folder / release
    sys.meta_path.insert(0, StandIn())
    sys.path.insert(0, str(SOURCES))
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    rows = []
    for name, layers in MODELS.items():
        for length in LENGTHS:
            answer = _answer(interface, utils, layers, length)
            rows.append({"release": release, "model": name, "max_model_len": length, **answer})
    return rows


def _answer(interface: Any, utils: Any, layers: Sequence[Row], length: int) -> dict[str, Any]:
    config = _config(length)
    layouts = getattr(interface, "KVCacheLayout", None)
    config.cache_config.get_resolved_kv_cache_layout.return_value = layouts and layouts.LBNHC
    try:
        specs = {f"layers.{index}": _spec(interface, row, length) for index, row in enumerate(layers)}
        planned = _plan(utils, config, specs)
    except (NotImplementedError, AttributeError) as problem:
        return {"error": type(problem).__name__}
    groups = planned.kv_cache_groups
    capacity = getattr(utils, "get_max_concurrency_for_kv_cache_config", None)
    found = {"groups": [len(group.layer_names) for group in groups], "num_blocks": planned.num_blocks}
    return found | ({"max_concurrency": capacity(config, planned)} if capacity else {})


def _plan(utils: Any, config: Any, specs: dict[str, Any]) -> Any:
    if hasattr(utils, "get_kv_cache_config"):
        return utils.get_kv_cache_config(config, specs, MEMORY)
    if hasattr(utils, "get_kv_cache_configs"):
        if hasattr(utils, "KVCacheSpecRegistry"):  # whose entries other modules make
            utils.KVCacheSpecRegistry.check_kv_cache_spec_registry = staticmethod(lambda _: None)
        return utils.get_kv_cache_configs(config, [specs], [MEMORY])[0]
    planning = importlib.import_module("vllm.v1.core.kv_cache_planning")
    return planning.get_kv_cache_config_from_groups(config, planning.get_kv_cache_groups(config, specs), MEMORY)


def _config(length: int) -> Any:
    config = MagicMock()
    config.model_config.max_model_len = config.model_config.original_max_model_len = length
    config.scheduler_config.max_num_batched_tokens = BATCHED
    config.scheduler_config.disable_hybrid_kv_cache_manager = False
    config.max_in_flight_tokens = 2 * BATCHED
    config.num_prefill_lookahead_tokens = 0
    config.speculative_config = None
    config.attention_config.hisparse_config = None
    parallel = config.parallel_config
    parallel.decode_context_parallel_size = parallel.prefill_context_parallel_size = parallel.pipeline_parallel_size = 1
    parallel.tensor_parallel_size = 1
    config.cache_config.num_gpu_blocks_override = None
    config.cache_config.block_size, config.cache_config.mamba_cache_mode = 16, "none"
    return config


def _spec(interface: Any, row: Row, length: int) -> Any:
    import torch

    kind = getattr(interface, row[0])
    known = {field.name for field in dataclasses.fields(kind)}
    if row[0] == STATE:
        _, shapes, page = row
        dtypes = {"dtypes": (torch.bfloat16,) * len(shapes)} if "dtypes" in known else {"dtype": torch.bfloat16}
        return kind(block_size=length, shapes=shapes, page_size_padded=page, **dtypes)
    given = {"block_size": row[4] if len(row) > 4 else 16, "num_kv_heads": row[1], "head_size": row[2], "dtype": torch.bfloat16}
    given |= {"use_mla": False} if "use_mla" in known else {}
    given |= {"sliding_window": row[3]} if row[0] == SLIDING else {}
    given |= {"attention_chunk_size": row[3]} if row[0] == CHUNKED else {}
    return kind(**given)


def main() -> None:
    """Ask every release, each in its own process; write one line an answer."""
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        print(json.dumps(ask(sys.argv[2], folder)))
        return
    from kvcalc.engines.vllm.releases import KNOWN

    lines = []
    for release in KNOWN:
        found = subprocess.run([sys.executable, __file__, str(folder), release], capture_output=True, text=True, check=False)
        if found.returncode:
            print(release, found.stderr.strip().splitlines()[-1])
            continue
        lines += [json.dumps(row, separators=(",", ":")) for row in json.loads(found.stdout.splitlines()[-1])]
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
