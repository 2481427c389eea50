"""Python that starts an engine: ``LLM(...)``, ``Engine(...)``, Ray's ``LLMConfig``, ``pipeline(...)``. Parsed, never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvcalc.launch.flags import LLAMA_NAMES
from kvcalc.launch.python_values import UNKNOWN, Names, called, parsed
from kvcalc.launch.values import Command, Word

MAX_PYTHON = 500_000
_SPEAKS_PYTHON = re.compile(r"^\s*(from\s+[\w.]+\s+import\s|import\s+[\w.]+)", re.MULTILINE)
# The callable's last name → engine, and the keyword (or position 0) that names the model.
CALLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "LLM": ("vllm", ("model",)),
    "EngineArgs": ("vllm", ("model",)),
    "AsyncEngineArgs": ("vllm", ("model",)),
    "LLMConfig": ("vllm", ()),
    "Engine": ("sglang", ("model_path",)),
    "ServerArgs": ("sglang", ("model_path",)),
    "Runtime": ("sglang", ("model_path",)),
    "pipeline": ("lmdeploy", ("model_path",)),
    "serve": ("lmdeploy", ("model_path",)),
    "Llama": ("llama.cpp", ("model_path",)),
    "generate": ("mlx-lm", ()),
    "stream_generate": ("mlx-lm", ()),
    "make_prompt_cache": ("mlx-lm", ()),
}
_PACKAGES = {"llama.cpp": "llama_cpp", "tensorrt-llm": "tensorrt_llm", "mlx-lm": "mlx_lm"}
_ENGINE_CONFIGS = {"TurbomindEngineConfig", "PytorchEngineConfig"}
_STARTS = {"run", "Popen", "call", "check_call", "check_output", "system", "exec_run"}


def commands(text: str, name: str, _files: Mapping[str, str], env: Mapping[str, Word]) -> list[Command] | None:
    """The engines that a Python text builds; nothing where it is no Python."""
    if len(text) > MAX_PYTHON or not (name.endswith(".py") or _SPEAKS_PYTHON.search(text)):
        return None
    tree = parsed(text)
    if tree is None:
        return None
    try:
        return list(Found(tree).commands(env))
    except RecursionError:  # an expression nested thousands deep holds no settings
        return []


class Found:
    """The calls of a text that start an engine."""

    def __init__(self, tree: ast.AST) -> None:
        self.tree = tree
        self.names = Names(tree)
        self.imports: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                self.imports.add((node.module or "").split(".")[0])
            elif isinstance(node, ast.Import):
                self.imports |= {alias.name.split(".")[0] for alias in node.names}

    def commands(self, env: Mapping[str, Word]) -> Iterator[Command]:
        """One for each call."""
        env = {**env, **{name: Word(held, line) for name, (held, line) in self.names.env.items()}}
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Call):
                continue
            name = called(node)
            if name in ("chat", "generate") and "ollama" in self.imports:
                yield from self._asked(node, env)
            elif name in CALLS and self._meant(name):
                yield from self._built(node, name, env)
            elif name in _STARTS and node.args:
                yield from self._started(node, env)

    def _meant(self, name: str) -> bool:
        engine = self._engine(name)
        package = _PACKAGES.get(engine, engine)
        return package in self.imports or name == "LLMConfig" or (name in ("LLM", "Llama") and not self.imports)

    def _engine(self, name: str) -> str:
        if name == "LLM" and "tensorrt_llm" in self.imports:
            return "tensorrt-llm"
        return CALLS[name][0]

    def _built(self, node: ast.Call, name: str, env: Mapping[str, Word]) -> Iterator[Command]:
        settings = self.names.keywords(node)
        engine, models = self._engine(name), CALLS[name][1]
        model = next((settings.pop(key) for key in models if key in settings), None)
        if model is None and node.args and models:
            model = self.names.value(node.args[0])
        place = f"line {node.lineno}: {name}(…)"
        if name == "LLMConfig":
            yield _ray(settings, place, env)
            return
        if engine == "lmdeploy":
            settings = self._backend(node)
        if engine == "mlx-lm":
            model = self._loaded()
        if engine == "llama.cpp":
            settings = {LLAMA_NAMES.get(key, key): held for key, held in settings.items()}
        yield Command((), env, place, engine, model=_text(model), settings=_clean(settings, engine))

    def _loaded(self) -> Any:
        """The model that MLX-LM's ``load`` is given."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and called(node) == "load" and node.args:
                return self.names.value(node.args[0])
        return ""

    def _backend(self, node: ast.Call) -> dict[str, Any]:
        """LMDeploy keeps its settings in an object of their own."""
        for keyword in node.keywords:
            held = self.names.node(keyword.value)
            if isinstance(held, ast.Call) and called(held) in _ENGINE_CONFIGS:
                return self.names.keywords(held)
        return {}

    def _started(self, node: ast.Call, env: Mapping[str, Word]) -> Iterator[Command]:
        """A command line that the text hands to the system."""
        held = self.names.value(node.args[0])
        if isinstance(held, list):
            texts = [str(item) if isinstance(item, str | int | float) else "{…}" for item in held]
            yield Command(tuple(Word(text, node.lineno, quoted=True) for text in texts), env, f"line {node.lineno}")
        elif isinstance(held, str):
            from kvcalc.launch.script import commands_of

            yield from commands_of(held, env, f"line {node.lineno}")

    def _asked(self, node: ast.Call, env: Mapping[str, Word]) -> Iterator[Command]:
        settings = self.names.keywords(node)
        options = settings.get("options")
        if isinstance(options, dict):
            clean = {key: held for key, held in options.items() if held is not UNKNOWN}
            yield Command((), env, f"line {node.lineno}", "ollama", model=_text(settings.get("model")), settings=clean)


def _clean(settings: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """Keywords as options: dashes for underscores, and only what is known."""
    joint = "_" if engine == "tensorrt-llm" else "-"
    return {key.replace("_", joint): _known(held) for key, held in settings.items() if held is not UNKNOWN and held is not None}


def _known(held: Any) -> Any:
    """The value without what isn't known in it."""
    if isinstance(held, dict):
        return {key: _known(item) for key, item in held.items() if item is not UNKNOWN}
    return [_known(item) for item in held if item is not UNKNOWN] if isinstance(held, list) else held


def _ray(settings: dict[str, Any], place: str, env: Mapping[str, Word]) -> Command:
    loading, kwargs = (settings.get(name) for name in ("model_loading_config", "engine_kwargs"))
    loading = loading if isinstance(loading, dict) else {}
    source = loading.get("model_source") or loading.get("model_id")
    clean = _clean(kwargs, "vllm") if isinstance(kwargs, dict) else {}
    return Command((), env, place, "vllm", model=_text(source), settings=clean, gpu=_text(settings.get("accelerator_type")))


def _text(held: Any) -> str:
    return held if isinstance(held, str) else ""
