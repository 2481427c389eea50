"""Python that starts an engine: ``LLM(...)``, ``Engine(...)``, Ray's ``LLMConfig``, ``pipeline(...)``. Parsed, never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvcalc.launch.flags import LLAMA_NAMES
from kvcalc.launch.values import Command, Word

MAX_PYTHON = 500_000
_UNKNOWN = object()
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
}
_ENGINE_CONFIGS = {"TurbomindEngineConfig", "PytorchEngineConfig"}


def commands(text: str, name: str, _files: Mapping[str, str], env: Mapping[str, Word]) -> list[Command] | None:
    """The engines that a Python text builds; nothing where it is no Python."""
    if len(text) > MAX_PYTHON or not (name.endswith(".py") or _SPEAKS_PYTHON.search(text)):
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = Found(tree)
    return list(found.commands(env))


class Found:
    """The names that the text binds to constants, and the calls that start an engine."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.bound: dict[str, ast.expr] = {}
        self.imports: set[str] = set()
        self.defaults: dict[str, ast.expr] = {}  # of options that the text itself declares
        self.env: dict[str, Word] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.bound[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.bound[node.target.id] = node.value
            elif isinstance(node, ast.ImportFrom):
                self.imports.add((node.module or "").split(".")[0])
            elif isinstance(node, ast.Import):
                self.imports |= {alias.name.split(".")[0] for alias in node.names}
            else:
                self._declared(node)

    def _declared(self, node: ast.AST) -> None:
        """``add_argument("--x", default=…)``, and ``os.environ["X"] = …``."""
        if isinstance(node, ast.Call) and _called(node) == "add_argument" and node.args:
            name = self.value(node.args[0])
            held = next((word.value for word in node.keywords if word.arg == "default"), None)
            if isinstance(name, str) and held is not None:
                self.defaults[name.lstrip("-").replace("-", "_")] = held
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            name, held = self.value(node.targets[0].slice), self.value(node.value)
            if isinstance(name, str) and isinstance(held, str) and "environ" in ast.unparse(node.targets[0].value):
                self.env[name] = Word(held, node.lineno)

    def commands(self, env: Mapping[str, Word]) -> Iterator[Command]:
        """One for each call."""
        env = {**env, **self.env}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if called in CALLS and self._meant(called):
                    yield self._command(node, called, env)
                elif called in ("run", "Popen", "call", "check_call", "check_output", "system") and node.args:
                    yield from self._started(node, env)
                elif called in ("chat", "generate") and "ollama" in self.imports:
                    yield from self._asked(node, env)

    def _meant(self, called: str) -> bool:
        engine = self._engine(called)
        package = {"llama.cpp": "llama_cpp", "tensorrt-llm": "tensorrt_llm"}.get(engine, engine)
        return package in self.imports or called == "LLMConfig" or (called in ("LLM", "Llama") and not self.imports)

    def _engine(self, called: str) -> str:
        if called == "LLM" and "tensorrt_llm" in self.imports:
            return "tensorrt-llm"
        return CALLS[called][0]

    def _command(self, node: ast.Call, called: str, env: Mapping[str, Word]) -> Command:
        settings = self._keywords(node)
        engine, models = self._engine(called), CALLS[called][1]
        model = next((settings.pop(key) for key in models if key in settings), None)
        if model is None and node.args and models:
            model = self.value(node.args[0])
        if called == "LLMConfig":
            return self._ray(settings, node.lineno, env)
        if engine == "lmdeploy":
            settings = self._backend(node)
        if engine == "llama.cpp":
            settings = {LLAMA_NAMES.get(key, key.replace("_", "-")): held for key, held in settings.items()}
        joint = "_" if engine == "tensorrt-llm" else "-"
        clean = {key.replace("_", joint): held for key, held in settings.items() if held is not _UNKNOWN and held is not None}
        return Command((), env, f"line {node.lineno}: {called}(…)", engine, model=_text(model), settings=clean)

    def _ray(self, settings: dict[str, Any], line: int, env: Mapping[str, Word]) -> Command:
        loading = settings.get("model_loading_config")
        loading = loading if isinstance(loading, dict) else {}
        kwargs = settings.get("engine_kwargs")
        kwargs = kwargs if isinstance(kwargs, dict) else {}
        card = settings.get("accelerator_type")
        clean = {key.replace("_", "-"): held for key, held in kwargs.items() if held is not _UNKNOWN and held is not None}
        source = loading.get("model_source") or loading.get("model_id")
        return Command((), env, f"line {line}: LLMConfig(…)", "vllm", model=_text(source), settings=clean, gpu=_text(card))

    def _backend(self, node: ast.Call) -> dict[str, Any]:
        """LMDeploy keeps its settings in an object of their own."""
        for keyword in node.keywords:
            held = self._bound(keyword.value)
            if isinstance(held, ast.Call) and _called(held) in _ENGINE_CONFIGS:
                return self._keywords(held)
        return {}

    def _started(self, node: ast.Call, env: Mapping[str, Word]) -> Iterator[Command]:
        """A command line that the text hands to the system."""
        held = self.value(node.args[0])
        if isinstance(held, list) and all(isinstance(item, str | int | float) for item in held):
            words = tuple(Word(str(item), node.lineno, quoted=True) for item in held)
            yield Command(words, env, f"line {node.lineno}")
        elif isinstance(held, str):
            from kvcalc.launch.script import commands_of

            yield from commands_of(held, env, f"line {node.lineno}")

    def _asked(self, node: ast.Call, env: Mapping[str, Word]) -> Iterator[Command]:
        settings = self._keywords(node)
        options = settings.get("options")
        if isinstance(options, dict):
            clean = {key: held for key, held in options.items() if held is not _UNKNOWN}
            yield Command((), env, f"line {node.lineno}", "ollama", model=_text(settings.get("model")), settings=clean)

    def _keywords(self, node: ast.Call) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for keyword in node.keywords:
            held = self.value(keyword.value)
            if keyword.arg is None:
                found |= held if isinstance(held, dict) else {}
            else:
                found[keyword.arg] = held
        return found

    def _bound(self, node: ast.expr, depth: int = 0) -> ast.expr:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in self.defaults and depth < 10:
            return self._bound(self.defaults[node.attr], depth + 1)
        if isinstance(node, ast.Name) and node.id in self.bound and depth < 10:
            return self._bound(self.bound[node.id], depth + 1)
        return node

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """A constant, or one made of constants; otherwise a marker that it isn't known."""
        node = self._bound(node)
        if depth > 20:
            return _UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str | int | float | bool | None) else _UNKNOWN
        if isinstance(node, ast.Dict):
            return {
                str(self.value(key, depth + 1)): self.value(held, depth + 1)
                for key, held in zip(node.keys, node.values, strict=True)
                if key
            }
        if isinstance(node, ast.List | ast.Tuple):
            return [self.value(item, depth + 1) for item in node.elts]
        if isinstance(node, ast.Call):
            return self._called_value(node)
        return self._computed(node, depth)

    def _called_value(self, node: ast.Call) -> Any:
        """``dict(…)``, and ``os.environ.get("X", default)`` by its default."""
        if _called(node) == "dict":
            return self._keywords(node)
        if _called(node) in ("get", "getenv") and len(node.args) == 2 and "environ" in ast.unparse(node.func) + "getenv":
            return self.value(node.args[1], 1)
        if _called(node) in ("int", "float", "str") and len(node.args) == 1:
            return self.value(node.args[0], 1)
        return self._keywords(node) if _called(node).endswith("Config") else _UNKNOWN

    def _computed(self, node: ast.expr, depth: int) -> Any:
        """Products of constants (``32 * 1024``) and negative numbers."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            held = self.value(node.operand, depth + 1)
            return -held if type(held) in (int, float) else _UNKNOWN
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add):
            left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
            if type(left) is int and type(right) is int and abs(left) < 10**12 and abs(right) < 10**12:
                return left * right if isinstance(node.op, ast.Mult) else left + right
        return _UNKNOWN


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else str(getattr(node.func, "attr", ""))


def _text(held: Any) -> str:
    return held if isinstance(held, str) else ""
