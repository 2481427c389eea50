"""Which engine a command starts, and which of its words are that engine's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvcalc.launch.values import Word
from kvcalc.values import value


@value
class Program:
    """An engine's program: ``table`` names the parser, ``rest`` are the words that it is given."""

    engine: str
    table: str
    name: str
    rest: tuple[Word, ...]


_MODULES = (
    (r"vllm\.entrypoints(\.openai)?\.api_server|vllm\.entrypoints\.cli\.main|vllm\.scripts", "vllm", "vllm"),
    (
        r"sglang\.(launch_server|bench_one_batch\w*|bench_offline_\w+|srt\.server)|sglang\.launch_server_\w+|sglang",
        "sglang",
        "sglang",
    ),
    (r"tensorrt_llm\.commands\.serve", "tensorrt-llm", "tensorrt-llm"),
    (r"mlx_lm\.server", "mlx-lm", "mlx-lm"),
    (r"mlx_lm\.(generate|chat|cache_prompt)", "mlx-lm", "mlx-lm.generate"),
    (r"mlx_lm", "mlx-lm", "mlx-lm"),
    (r"llama_cpp\.server", "llama.cpp", "llama.cpp"),
    (r"lmdeploy(\.cli(\.\w+)?)?", "lmdeploy", "lmdeploy"),
)
_LLAMA = (
    r"llama-(server|cli|run|perplexity|speculative|parallel|batched|simple|embedding|mtmd-cli|completion|imatrix|tts)"
    r"(?!\w*\.py)([-_.][\w.-]*)?"
)
_PROGRAMS = (
    (r"vllm", "vllm", "vllm", ("serve", "run-batch")),
    (r"sglang", "sglang", "sglang", ("serve", "launch_server")),
    (r"(trtllm-serve|trtllm-bench|trtllm-eval|trtllm-build)", "tensorrt-llm", "tensorrt-llm", ("serve", "throughput", "latency")),
    (_LLAMA, "llama.cpp", "llama.cpp", ()),
    (r"mlx_lm\.server", "mlx-lm", "mlx-lm", ()),
    (r"mlx_lm\.(generate|chat|cache_prompt)", "mlx-lm", "mlx-lm.generate", ()),
    (r"mlx_lm", "mlx-lm", "mlx-lm", ("server", "generate", "chat")),
    (r"lmdeploy", "lmdeploy", "lmdeploy", ("serve", "chat")),
    (r"ollama", "ollama", "ollama", ("serve", "run", "start", "create")),
)
_FILES = (("vllm/entrypoints/openai/api_server.py", "vllm"), ("sglang/launch_server.py", "sglang"))
_CLIENTS = {"api_client", "proxy", "gradio"}
_OLD_LLAMA = re.compile(r"(?:.*[/\\])(server|main)(\.exe)?")
_NOT_STARTED = {
    "echo",
    "printf",
    "pkill",
    "kill",
    "killall",
    "pgrep",
    "pip",
    "pip3",
    "git",
    "cd",
    "grep",
    "cat",
    "apt",
    "apt-get",
    "which",
    "rm",
}
_NOT_STARTED |= {
    "cp",
    "mv",
    "mkdir",
    "ls",
    "chmod",
    "source",
    "export",
    "brew",
    "conda",
    "wget",
    "huggingface-cli",
    "hf",
    "ps",
    "alias",
    "ln",
}


def base_of(text: str) -> str:
    """The last part of a program's path, without .exe."""
    return re.split(r"[/\\]", text)[-1].removesuffix(".exe")


def recognise(words: Sequence[Word]) -> Program | None:
    """The engine's program among the words of a command, or nothing."""
    if not words or base_of(words[0].text) in _NOT_STARTED or _installs(words):
        return None
    for at in range(min(len(words), 200)):
        found = _at(words, at)
        if found is not None:
            return found
    return None


def _installs(words: Sequence[Word]) -> bool:
    return any(word.text == "install" for word in words[:4])


def _at(words: Sequence[Word], at: int) -> Program | None:
    text = words[at].text
    after = words[at + 1].text if at + 1 < len(words) else ""
    if text == "-m" and after:
        for pattern, engine, table in _MODULES:
            if re.fullmatch(pattern, after):
                return _of_module(engine, table, after, words[at + 2 :])
    base = base_of(text)
    for pattern, engine, table, verbs in _PROGRAMS:
        if " " not in text and re.fullmatch(pattern, base):
            return _of_program(engine, table, verbs, words, at)
    for path, engine in _FILES:
        if text.endswith(path):
            return Program(engine, engine, path, tuple(words[at + 1 :]))
    if _OLD_LLAMA.fullmatch(text) and any(word.text in ("-m", "--model", "-hf", "-mu") for word in words[at + 1 :]):
        return Program("llama.cpp", "llama.cpp", base, tuple(words[at + 1 :]))
    return None


def _of_program(engine: str, table: str, verbs: Sequence[str], words: Sequence[Word], at: int) -> Program | None:
    """A program by its name, with the verb that starts an engine; its clients' verbs start none."""
    base = base_of(words[at].text)
    after, then = (words[at + n].text if at + n < len(words) else "" for n in (1, 2))
    if base == "vllm" and after == "bench" and then in ("throughput", "latency"):
        return Program(engine, table, f"vllm bench {then}", tuple(words[at + 3 :]))
    if engine == "lmdeploy" and after == "serve" and then in _CLIENTS:
        return None
    if after in verbs:
        return Program(engine, _table_of(table, after), f"{base} {after}", _rest(engine, after, words[at + 2 :]))
    if verbs and engine != "tensorrt-llm":
        return None
    named = at and words[at - 1].text.startswith("-") and "=" not in words[at - 1].text
    return None if named and not after else Program(engine, table, base, tuple(words[at + 1 :]))


def _of_module(engine: str, table: str, module: str, rest: Sequence[Word]) -> Program:
    verb = rest[0].text if rest and module in ("mlx_lm", "lmdeploy", "vllm.entrypoints.cli.main", "sglang") else ""
    if verb and not verb.startswith("-"):
        return Program(engine, _table_of(table, verb), f"{module} {verb}", _rest(engine, verb, rest[1:]))
    return Program(engine, table, module, tuple(rest))


def _table_of(table: str, verb: str) -> str:
    return "mlx-lm.generate" if table == "mlx-lm" and verb in ("generate", "chat") else table


def _rest(engine: str, verb: str, words: Sequence[Word]) -> tuple[Word, ...]:
    """The words after a verb; LMDeploy's has one more."""
    if engine == "lmdeploy" and verb == "serve" and words and words[0].text == "api_server":
        return tuple(words[1:])
    return tuple(words)


_IMAGES = (
    (r"sglang|sgl-", "sglang"),
    (r"llama[._-]?cpp|llama-server|llama-swap", "llama.cpp"),
    (r"ollama", "ollama"),
    (r"lmdeploy", "lmdeploy"),
    (r"tensorrt-?llm|trtllm", "tensorrt-llm"),
    (r"vllm|lmcache", "vllm"),
)
_RELEASE = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc|dev)\d+)?(?:\.post\d+)?)")
_BUILD = re.compile(r"(?:^|-)b(\d{3,6})(?=$|-)")
_NAMED = re.compile(r"(?:vllm|sglang)[_-]v?(\d+\.\d+\.\d+(?:\.?(?:post|rc)\d+)?)")


def engine_of_image(image: str) -> str:
    """The engine that an image's name speaks of, or nothing."""
    name = image.split("@", maxsplit=1)[0].lower()
    last = name.rsplit("/", 1)[-1].split(":")[0]
    for text in (last, name):
        for pattern, engine in _IMAGES:
            if re.search(pattern, text):
                return engine
    return ""


def release_of_image(image: str, engine: str) -> str:
    """The engine's release in an image's tag, or nothing."""
    tail = image.split("@", maxsplit=1)[0].rsplit("/", 1)[-1]
    tag = tail.partition(":")[2]
    if engine == "llama.cpp":
        build = _BUILD.search(tag)
        return f"b{build.group(1)}" if build else ""
    named = _NAMED.search(tag)
    if named:
        return named.group(1)
    match = _RELEASE.match(tag)
    return match.group(1) if match and not re.match(r"20\d\d\.", tag) else ""


_PINNED = re.compile(r"\b(vllm|sglang|lmdeploy|tensorrt[-_]llm|mlx[-_]lm)(?:\[[\w,.-]*\])?\s*==\s*([\w.+!-]+)")


def pinned(text: str) -> dict[str, str]:
    """Engine → the release that an installation in the text pins."""
    return {name.replace("_", "-"): release.rstrip(".") for name, release in _PINNED.findall(text[:200_000])}
