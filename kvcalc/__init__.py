"""kvcalc: how many bytes a language model's cache takes, under whose rules, and why.

    from kvcalc import load_model, estimate
    estimate(load_model("llama-8b"), tokens=4096).total_bytes   # 536870912

Names are imported when they are first asked for: a command line that needs none of them pays for none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvcalc.api import compare, estimate, fit, gpus, inspect, load_model, presets, sweep
    from kvcalc.core.layers import Layer
    from kvcalc.core.model import Model, Request, Tally
    from kvcalc.engines import find_engine
    from kvcalc.engines.estimate import Estimate
    from kvcalc.errors import KvcalcError

__version__ = "0.1.0"

__all__ = [
    "Estimate",
    "KvcalcError",
    "Layer",
    "Model",
    "Request",
    "Tally",
    "__version__",
    "compare",
    "estimate",
    "find_engine",
    "fit",
    "gpus",
    "inspect",
    "load_model",
    "presets",
    "sweep",
]

_HOMES = {
    "Estimate": "kvcalc.engines.estimate",
    "KvcalcError": "kvcalc.errors",
    "Layer": "kvcalc.core.layers",
    "Model": "kvcalc.core.model",
    "Request": "kvcalc.core.model",
    "Tally": "kvcalc.core.model",
    "estimate": "kvcalc.api",
    "find_engine": "kvcalc.engines",
    "load_model": "kvcalc.api",
    **dict.fromkeys(("compare", "fit", "gpus", "inspect", "presets", "sweep"), "kvcalc.api"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kvcalc' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
