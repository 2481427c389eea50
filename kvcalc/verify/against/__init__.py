"""The libraries whose own caches can be held against the prediction, each in a module of its own.

A module exports ``compare(model, request, settings) -> AgainstReport``: it builds the library's cache for the model,
measures it a layer at a time, and predicts with the engine of the same name; ``request.options`` are that engine's. It
raises MissingExtraError where the library isn't installed and EngineError where the library has no such model.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kvcalc.core.model import Model, Request
from kvcalc.errors import MissingExtraError, UsageError
from kvcalc.verify.results import AgainstReport, Settings

# the name on the command line → (module, engine of estimate, package that is imported, how to install it)
LIBRARIES: dict[str, tuple[str, str, str, str]] = {
    "transformers": ("kvcalc.verify.against.transformers", "transformers", "transformers", "pip install transformers"),
    "llama.cpp": ("kvcalc.verify.against.llamacpp", "llama.cpp", "llama_cpp", "pip install llama-cpp-python"),
    "mlx-lm": ("kvcalc.verify.against.mlx_lm", "mlx-lm", "mlx", "pip install mlx-lm 'mlx[cpu]'"),
    "vllm": ("kvcalc.verify.against.vllm", "vllm", "vllm", "pip install vllm"),
}

Compare = Callable[[Model, Request, Settings], AgainstReport]


def engine_of(library: str) -> str:
    """The engine that predicts a library. Raises UsageError for an unknown one."""
    return _row(library)[1]


def compare_with(library: str, model: Model, request: Request, settings: Settings) -> AgainstReport:
    """Ask the library. Raises UsageError, MissingExtraError, EngineError."""
    module, _, package, install = _row(library)
    try:
        compare: Compare = import_module(module).compare
        return compare(model, request, settings)
    except ModuleNotFoundError as problem:
        if problem.name == module:
            raise MissingExtraError(f"this release can't ask {library} yet", fix=f"one of {', '.join(LIBRARIES)}") from None
        if (problem.name or "").split(".")[0] in (package, f"{package}_lm", "torch", "numpy"):
            raise MissingExtraError(f"{problem.name} isn't installed", fix=install) from None
        raise


def _row(library: str) -> tuple[str, str, str, str]:
    if library not in LIBRARIES:
        raise UsageError(f"--against {library[:40]!r} is no library that verify knows", fix=f"one of {', '.join(LIBRARIES)}")
    return LIBRARIES[library]
