"""vLLM's own pool, asked of the library: the engine starts in this process with dummy weights, and its cache is weighed.

The model's config.json is all that is needed; weights are made up by ``load_format="dummy"``, so the device must hold the
whole model. Give the memory with ``-o available-bytes=``; without it, as much is given as the request needs.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.errors import EngineError, UsageError
from kvcalc.verify.results import AgainstReport, AgainstRow, Settings

_IN_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"
# Options that vLLM's own arguments spell the same, with underscores; the others say how to predict, not how to run.
_SAME = (
    "block-size",
    "max-num-batched-tokens",
    "max-num-seqs",
    "num-gpu-blocks-override",
    "pipeline-parallel-size",
    "tensor-parallel-size",
    "decode-context-parallel-size",
    "enable-prefix-caching",
    "async-scheduling",
    "disable-hybrid-kv-cache-manager",
    "mamba-cache-dtype",
    "mamba-ssm-cache-dtype",
    "kv-cache-dtype",
)


def compare(model: Model, request: Request, _settings: Settings) -> AgainstReport:
    """Start the engine and weigh its pool. Raises UsageError, EngineError; ModuleNotFoundError without vLLM."""
    if model.format not in ("hf", "preset") or not model.metadata:
        raise UsageError("vLLM reads a config.json", fix="name one with --config, or a preset")
    import vllm

    asked = _asked(model, request)
    tally = find_engine("vllm").allocate(model, asked)
    if not tally.fits:
        raise EngineError(tally.refusal, "-o available-bytes", "give more")
    with _folder(model) as folder:
        found = _start(vllm, folder, arguments(asked, tally))
    return _report(str(vllm.__version__), tally, found)


def _asked(model: Model, request: Request) -> Request:
    """The request with the device that is there, and with memory named."""
    options: dict[str, OptionValue] = {"platform": _platform(), **request.options}
    asked = replace(request, options=options)
    engine = find_engine("vllm")
    if not any(name in options for name in engine.memory.named_by):
        plan = engine.plan(model, asked)
        options["available-bytes"] = plan.tally.total_bytes + plan.held_back
    return replace(asked, options=options)


def _platform() -> str:
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    return "sm100" if torch.cuda.get_device_capability()[0] >= 10 else "sm90"


def arguments(request: Request, tally: Tally) -> dict[str, Any]:
    """What is handed to ``vllm.LLM`` besides the model."""
    given = {name.replace("-", "_"): request.options[name] for name in _SAME if name in request.options}
    dtype = tally.report["kv_cache_dtype"]
    return {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "max_model_len": tally.report["max_model_len"],
        "tensor_parallel_size": request.tp_size,
        "pipeline_parallel_size": request.pp_size,
        "kv_cache_dtype": dtype,
        "kv_cache_memory_bytes": request.options.get("available-bytes"),
        "max_num_batched_tokens": tally.request["max_num_batched_tokens"][0],
        **given,
    }


@contextmanager
def _folder(model: Model) -> Iterator[Path]:
    """A folder with the model's config.json alone: nothing of the repository's code is run."""
    with tempfile.TemporaryDirectory(prefix="kvcalc-vllm-") as name:
        (Path(name) / "config.json").write_text(json.dumps(dict(model.metadata)))
        yield Path(name)


Found = Mapping[str, Any]


def _start(vllm: Any, folder: Path, given: Mapping[str, Any]) -> Found:
    """Blocks, groups and bytes of the engine. Raises EngineError with its own words."""
    before = os.environ.get(_IN_PROCESS)
    os.environ[_IN_PROCESS] = "0"
    try:
        llm = vllm.LLM(model=str(folder), **{name: value for name, value in given.items() if value is not None})
        core = llm.llm_engine.engine_core.engine_core
        config = core.scheduler.kv_cache_config
        held = llm.collective_rpc(pool_bytes)
        return {"num_blocks": int(config.num_blocks), "groups": len(config.kv_cache_groups), "bytes": max(held, default=0)}
    except (ValueError, RuntimeError, AssertionError, NotImplementedError) as problem:
        words = (str(problem).strip().splitlines() or ["it does not say why"])[-1]
        raise EngineError(f"vLLM does not start this model: {words[:300]}", str(folder)) from None
    finally:
        if before is None:
            os.environ.pop(_IN_PROCESS, None)
        else:
            os.environ[_IN_PROCESS] = before


def pool_bytes(worker: Any) -> int:
    """Bytes of the distinct storages behind a worker's cache tensors."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in _tensors(worker.model_runner.kv_caches)
    }
    return sum(storages.values())


def _tensors(value: Any) -> Iterator[Any]:
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _report(version: str, tally: Tally, found: Found) -> AgainstReport:
    blocks, each = int(str(tally.report["num_blocks"] or 0)), int(str(tally.report["bytes_per_block"]))
    predicted = blocks * each
    notes = [f"{found['num_blocks']:,} blocks, {blocks:,} predicted; {found['groups']} groups"]
    engine = find_engine("vllm")
    if version.partition("+")[0] != engine.version:
        notes.append(f"vLLM {version} is installed, the rules are those of {engine.version}")
    row = AgainstRow(0, "pool", int(found["bytes"]), predicted, f"{found['num_blocks']:,} blocks")
    return AgainstReport(
        library="vllm",
        version=version,
        engine=f"vllm {engine.version}",
        rows=(row,),
        measured_bytes=int(found["bytes"]),
        predicted_bytes=predicted,
        notes=tuple(notes),
    )
