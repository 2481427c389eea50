"""The four tools that an agent is given. Each is the verb of the same name with ``--json``, run in this process."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def estimate(
    model: str,
    tokens: str = "",
    batch: str = "",
    engine: str = "exact",
    dtype: str = "",
    tp: str = "",
    options: list[str] | None = None,
) -> Document:
    """Bytes that a model's KV cache takes, under an engine's own allocation rules.

    model: a preset (qwen3-8b), a config.json, a GGUF file, or ORG/NAME on the hub. tokens: 32k. batch: sequences.
    engine: exact, transformers, vllm, sglang, llama.cpp … dtype: fp8, q8_0 … tp: ranks. options: ["block-size=32"].
    """
    return run("estimate", {"tokens": tokens, "batch": batch, "engine": engine, "dtype": dtype, "tp": tp}, [model], options)


def fit(
    model: str,
    gpu: str = "",
    memory: str = "",
    weights: str = "auto",
    tokens: str = "",
    batch: str = "",
    engine: str = "exact",
    dtype: str = "",
    tp: str = "",
    options: list[str] | None = None,
) -> Document:
    """What fits beside the weights: the longest length for a batch, or the most sequences of a length.

    gpu: rtx-4090, h100 … or memory: 24GiB. weights: 16GB, or auto. The rest as in estimate.
    """
    flags = {"gpu": gpu, "memory": memory, "weights": weights, "tokens": tokens, "batch": batch, "engine": engine}
    return run("fit", {**flags, "dtype": dtype, "tp": tp}, [model], options)


def check(
    what: str, gpu: str = "", memory: str = "", weights: str = "", model: str = "", settings_only: bool = False
) -> Document:
    """Whether a launch line, script or manifest fits its card, what its engine refuses, and which flag to change.

    what: the text itself (vllm serve …, a compose file, a Kubernetes manifest), or the path of a file. Nothing of it is run.
    gpu or memory: the card. weights: 16GB where the model's are not known. model: a preset or file for the line's model.
    """
    flags = {"gpu": gpu, "memory": memory, "weights": weights, "model": model}
    return run("check", flags, [what], switches=["--settings"] if settings_only else [])


def audit(log: str, model: str = "", engine_options: list[str] | None = None) -> Document:
    """An engine's own log lines against the prediction, line by line.

    log: the path of a log file, or the log's lines themselves. model: a preset, config.json, GGUF file, or ORG/NAME.
    """
    words = [model] if model else []
    if "\n" not in log and _is_file(log):
        return run("audit", {}, [log, *words], engine_options)
    with tempfile.TemporaryDirectory(prefix="kvcalc-") as folder:
        path = Path(folder) / "engine.log"
        path.write_text(log, encoding="utf-8")
        return run("audit", {}, [str(path), *words], engine_options)


TOOLS = (estimate, fit, check, audit)


def _is_file(text: str) -> bool:
    try:
        return len(text) < 4096 and Path(text).is_file()
    except (OSError, ValueError):
        return False


def run(
    verb: str,
    flags: Mapping[str, str],
    words: list[str],
    options: list[str] | None = None,
    switches: list[str] | None = None,
) -> Document:
    """A verb's JSON, with its exit code. A value can't become a flag: each stands after ``=`` or behind ``--``."""
    from kvcalc.cli.app import main

    given = [f"--{name}={held}" for name, held in flags.items() if held]
    chosen = [f"--option={text}" for text in options or []]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([verb, "--json", *(switches or []), *given, *chosen, "--", *words])
    try:
        found = json.loads(out.getvalue())
    except ValueError:
        found = {"error": {"code": "bug", "what": err.getvalue()[-500:]}}
    return {**found, "exit_code": int(code)}
