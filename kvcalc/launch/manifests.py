"""YAML that starts engines: Compose, Kubernetes in its kinds, KServe, Helm values, SkyPilot, Ray, llama-swap, --config files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvcalc.launch import containers
from kvcalc.launch.docker import of_image
from kvcalc.launch.env_files import env_file
from kvcalc.launch.programs import recognise
from kvcalc.launch.script import commands_of
from kvcalc.launch.small_forms import env_engine
from kvcalc.launch.tables import table
from kvcalc.launch.values import Command, LaunchError, Word
from kvcalc.launch.yaml_tree import Text, documents, flag_words, plain

Env = Mapping[str, Word]
Tree = dict[str, Any]


def _inside(held: Any) -> Tree:
    """A mapping as it is; an empty one for anything else."""
    return held if isinstance(held, dict) else {}


_YAML_LINE = re.compile(r"^\s*(-\s|[\w\"'./-]+\s*:(\s|$))", re.MULTILINE)
_NOT_YAML = re.compile(r"\\[ \t]*\n|^\s*(docker|podman|export|vllm|python3?|sglang)\s", re.MULTILINE)


def commands(text: str, name: str, files: Mapping[str, str], env: Env) -> list[Command] | None:
    """The commands of a manifest; nothing where the text is none. Raises LaunchError where a .yaml is broken."""
    named = name.lower().endswith((".yaml", ".yml"))
    if not _YAML_LINE.search(text):
        return None
    try:
        found = documents(text)
    except LaunchError:
        if named and not _NOT_YAML.search(text):
            raise
        return None
    trees = [tree for tree in found if isinstance(tree, dict)]
    patches = [words for tree in found if isinstance(tree, list) and (words := _patched(tree))]
    if patches:
        return [Command(tuple(words), env, "patch") for words in patches]
    if not trees:
        return None
    return [command for tree in trees for command in _of_tree(tree, text, files, env)]


def started(text: str, files: Mapping[str, str], env: Env) -> list[Command]:
    """The commands of a manifest that stands inside a script; nothing where the text is no manifest."""
    try:
        trees = [tree for tree in documents(text) if isinstance(tree, dict)]
    except LaunchError:
        return []
    kinds = [(tree, reader) for tree in trees for takes, reader in KINDS if takes(tree)]
    return [command for tree, reader in kinds for command in reader(tree, env, files)]


def _patched(tree: list[Any]) -> list[Word]:
    """The words that a JSON patch puts into a container's command or arguments."""
    found: list[Word] = []
    for change in tree:
        held = change.get("value") if isinstance(change, dict) and "op" in change else None
        if re.search(r"/(args|command)(/|$)", str(change.get("path", ""))) if isinstance(change, dict) else False:
            found += [
                Word(str(item), getattr(item, "line", 0))
                for item in (held if isinstance(held, list) else [held])
                if isinstance(item, str)
            ]
    return found


def _of_tree(tree: Tree, text: str, files: Mapping[str, str], env: Env) -> Iterator[Command]:
    for takes, reader in KINDS:
        if takes(tree):
            yield from reader(tree, env, files)
            return
    variables = _variables_of(tree)
    if variables:
        yield Command((), {**env, **variables}, "env", env_engine(variables))
        return
    settings = _settings(tree, text, files, env)
    if settings is not None:
        yield from settings
    else:
        own = containers.variables(tree.get("env", tree.get("envs")))
        yield from _strings(tree, {**env, **own}, "")


def _is_compose(tree: Tree) -> bool:
    services = tree.get("services", tree)
    return (
        isinstance(services, dict)
        and "apiVersion" not in tree
        and any(
            isinstance(service, dict)
            and ("image" in service or "build" in service or "services" in tree)
            and not isinstance(service.get("image"), dict)
            for service in services.values()
        )
    )


def _compose(tree: Tree, env: Env, files: Mapping[str, str]) -> Iterator[Command]:
    services = tree.get("services", tree)
    beside = {**env_file(files, ".env"), **env}  # Compose reads the .env beside its file
    for name, service in services.items():
        if isinstance(service, dict):
            yield from containers.compose_service(service, name, beside, files)


def _is_pods(tree: Tree) -> bool:
    return any(True for _ in containers.found_in(tree))


def _pods(tree: Tree, env: Env, _files: Mapping[str, str]) -> Iterator[Command]:
    model = str(_inside(tree.get("modelArtifacts")).get("uri", "")).split("://")[-1]
    for container, where, replicas in containers.found_in(tree):
        for command in containers.kubernetes(container, where, replicas, env):
            yield replace(command, model=command.model or model)


def _is_helm(tree: Tree) -> bool:
    return bool(_specs(tree))


def _specs(tree: Tree) -> list[Tree]:
    held = tree.get("servingEngineSpec", tree)
    specs = held.get("modelSpec") if isinstance(held, dict) else None
    return [spec for spec in specs if isinstance(spec, dict)] if isinstance(specs, list) else []


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def dashed(name: str) -> str:
    """CamelCase as an option's name: maxModelLen → max-model-len."""
    return _CAMEL.sub("-", name.replace("LoRA", "Lora").replace("GPU", "Gpu")).lower().replace("_", "-")


def _helm(tree: Tree, env: Env, _files: Mapping[str, str]) -> Iterator[Command]:
    """Values of the production stack's chart: camelCase keys, extraArgs, LMCache's own settings."""
    for spec in _specs(tree):
        config = _inside(spec.get("vllmConfig"))
        settings = {dashed(key): plain(held) for key, held in config.items() if key != "extraArgs"}
        settings |= {"enable-lora": plain(spec["enableLoRA"])} if "enableLoRA" in spec else {}
        cache = spec.get("lmcacheConfig")
        settings |= {f"lmcache.{key}": plain(held) for key, held in cache.items()} if isinstance(cache, dict) else {}
        extra = config.get("extraArgs")
        words = tuple(Word(str(item), getattr(item, "line", 0)) for item in extra) if isinstance(extra, list) else ()
        variables = containers.variables(spec.get("env"))
        image = f"{spec.get('repository', '')}:{spec.get('tag', '')}"
        command = Command(words, {**env, **variables}, f"modelSpec {spec.get('name', '')}", "vllm", settings=settings)
        command = replace(command, model=str(spec.get("modelURL", "")), replicas=containers.count(spec.get("replicaCount")) or 1)
        yield replace(of_image(command, image), engine="vllm", gpus=containers.count(spec.get("requestGPU")))


def _is_sky(tree: Tree) -> bool:
    return isinstance(tree.get("run"), Text) and not isinstance(tree.get("services"), dict)


def _sky(tree: Tree, env: Env, _files: Mapping[str, str]) -> Iterator[Command]:
    """SkyPilot: what it sets for a task's script follows from the resources that are asked for."""
    resources = _inside(tree.get("resources"))
    cards, number = _accelerators(resources.get("accelerators"))
    nodes = containers.count(tree.get("num_nodes")) or 1
    own = containers.variables(tree.get("envs"))
    given = {"SKYPILOT_NUM_NODES": Word(str(nodes)), "SKYPILOT_NODE_RANK": Word("0")}
    given |= {"SKYPILOT_NUM_GPUS_PER_NODE": Word(str(number))} if number else {}
    for command in commands_of(tree["run"], {**env, **given, **own}):
        kept = {name: word for name, word in command.env.items() if name not in given}
        yield replace(command, env=kept, gpu=cards, gpus=number * nodes if number else None, place="run")


def _accelerators(held: Any) -> tuple[str, int]:
    """The first card and how many a node has: "H100:8", {H200:8, H100:8}, {H100: 8}."""
    if isinstance(held, dict) and held:
        name, number = next(iter(held.items()))
        held = Text(f"{name}:{number}" if isinstance(number, Text) and number.tag != "null" else name)
    if isinstance(held, list) and held:
        held = held[0]
    name, _, number = str(held or "").partition(":")
    return name, int(number) if number.strip().isdecimal() and len(number) < 7 else 1 if name else 0


def _is_swap(tree: Tree) -> bool:
    models = tree.get("models")
    return isinstance(models, dict) and any(isinstance(model, dict) and "cmd" in model for model in models.values())


def _swap(tree: Tree, env: Env, _files: Mapping[str, str]) -> Iterator[Command]:
    """llama-swap: a command for each model; macros are put in first, a model's own before the global ones."""
    for name, model in tree["models"].items():
        if not isinstance(model, dict) or not isinstance(model.get("cmd"), str):
            continue
        macros = {**_inside(tree.get("macros")), **_inside(model.get("macros"))}
        text = _one_line(_with_macros(model["cmd"], {**macros, "MODEL_ID": name}))
        yield from commands_of(text, {**env, **containers.variables(model.get("env"))}, f"models.{name}")


def _one_line(text: str) -> str:
    """A command over several lines as llama-swap starts it: comments left out, ends of lines as blanks."""
    lines = [line.strip().removesuffix("\\") for line in text.split("\n") if not line.lstrip().startswith("#")]
    return " ".join(lines)


def _with_macros(text: str, macros: Mapping[str, Any]) -> str:
    for _ in range(10):
        grown = re.sub(r"\$\{([\w-]+)\}", lambda match: str(macros.get(match.group(1), match.group())), text)
        if grown == text or len(grown) > 100_000:
            return text
        text = grown
    return text


def _is_ray(tree: Tree) -> bool:
    return any(True for _ in _ray_configs(tree, 0))


def _ray_configs(held: Any, depth: int) -> Iterator[Tree]:
    if isinstance(held, dict):
        if "engine_kwargs" in held or "model_loading_config" in held or "engine_config" in held:
            yield held
        elif depth < 8:
            for item in held.values():
                yield from _ray_configs(item, depth + 1)
    elif isinstance(held, list) and depth < 8:
        for item in held:
            yield from _ray_configs(item, depth + 1)


def _ray(tree: Tree, env: Env, _files: Mapping[str, str]) -> Iterator[Command]:
    for config in _ray_configs(tree, 0):
        older = _inside(config.get("engine_config"))
        loading = _inside(config.get("model_loading_config")) or older
        kwargs = config.get("engine_kwargs") or older.get("engine_kwargs")
        settings = {key.replace("_", "-"): plain(held) for key, held in kwargs.items()} if isinstance(kwargs, dict) else {}
        model = str(loading.get("model_source") or loading.get("hf_model_id") or loading.get("model_id") or "")
        yield Command((), env, "LLMConfig", "vllm", model=model, settings=settings, gpu=str(config.get("accelerator_type") or ""))


def _variables_of(tree: Tree) -> dict[str, Word]:
    """Variables alone: an ``env:`` mapping, or the mapping itself."""
    held: dict[str, Word] = {}
    for key in ("env", "environment", "extraEnv", "extraEnvVars", "envs"):
        held |= containers.variables(tree.get(key))
    inner = next((item for item in tree.values() if isinstance(item, dict) and {"env", "extraEnv"} & item.keys()), None)
    held = held or (_variables_of(inner) if inner is not None else {})
    held = held or {
        name: Word(str(text), getattr(text, "line", 0))
        for name, text in tree.items()
        if name.isupper() and isinstance(text, Text)
    }
    return held if env_engine(held) else {}


_COMMENT = re.compile(r"^\s*#+\s?(.*)$", re.MULTILINE)
_PATH = re.compile(r"(?:.*/)?([\w.-]+)\.ya?ml")


def _settings(tree: Tree, text: str, files: Mapping[str, str], env: Env) -> list[Command] | None:
    """A file of options: with the command in a comment beside it, or by the engine whose options its keys are."""
    comments = "\n".join(_COMMENT.findall(text))
    started = (
        [command for command in commands_of(comments, env) if recognise(command.words) is not None] if comments.strip() else []
    )
    if started:
        return [replace(command, files={**files, "config.yaml": text, **_named(command, text)}) for command in started]
    engine = _engine_of_keys(tree)
    if engine == "vllm":
        return [Command(tuple(flag_words(text)), env, "--config", "vllm")]
    if engine == "sglang":
        return [Command(tuple(flag_words(text)), env, "--config", "sglang")]
    if engine == "tensorrt-llm":
        path = next((match.group(1) for line in comments.split("\n") if (match := _PATH.fullmatch(line.strip()))), "")
        return [Command((), env, "options", "tensorrt-llm", model=path, settings=plain(tree))]
    return None


def _named(command: Command, text: str) -> dict[str, str]:
    """The file itself, under the name that the command calls it by."""
    texts = [word.text for word in command.words]
    return {texts[at + 1]: text for at, word in enumerate(texts[:-1]) if word in ("--config", "--extra_llm_api_options")}


_TRT_KEYS = {
    "kv_cache_config",
    "cuda_graph_config",
    "moe_config",
    "enable_attention_dp",
    "max_num_tokens",
    "max_batch_size",
    "max_seq_len",
}
_TRT_KEYS |= {"moe_expert_parallel_size", "print_iter_log", "stream_interval", "cache_transceiver_config", "tensor_parallel_size"}


def _engine_of_keys(tree: Tree) -> str:
    if sum(key in _TRT_KEYS for key in tree) >= 2:
        return "tensorrt-llm"
    for engine in ("vllm", "sglang"):
        known = table(engine).owners
        flags = ["--" + key.replace("_", "-") for key in tree]
        found = sum(flag in known or flag.replace("--no-", "--", 1) in known for flag in flags)
        if found and found * 2 >= len(flags):
            return engine
    return ""


def _strings(held: Any, env: Env, path: str, depth: int = 0) -> Iterator[Command]:
    """Any text in the tree that is a launch line."""
    if isinstance(held, Text):
        if " " in held and len(held) < 50_000:
            yield from (replace(each, place=path) for each in commands_of(held, env) if recognise(each.words) is not None)
    elif isinstance(held, list) and len(held) > 1 and all(isinstance(item, Text) for item in held):
        yield from _strings(Text("\n".join(held), getattr(held[0], "line", 0)), env, path, depth + 1)
    elif depth < 12:
        items = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
        for key, item in items:
            yield from _strings(item, env, f"{path}.{key}".strip("."), depth + 1)


def _is_kubeai(tree: Tree) -> bool:
    spec = _inside(tree.get("spec"))
    return str(tree.get("apiVersion", "")).startswith("kubeai") and "url" in spec


def _kubeai(tree: Tree, env: Env, _files: Mapping[str, str]) -> Iterator[Command]:
    """KubeAI's Model: engine, address of the model, flags."""
    spec = _inside(tree.get("spec"))
    engine = {"vllm": "vllm", "ollama": "ollama", "olama": "ollama"}.get(str(spec.get("engine", "")).lower(), "")
    args = spec.get("args")
    words = tuple(Word(str(item), getattr(item, "line", 0)) for item in args) if isinstance(args, list) else ()
    model = str(spec.get("url", "")).split("://")[-1]
    if engine:
        yield Command(words, {**env, **containers.variables(spec.get("env"))}, "Model", engine, model=model)


KINDS = (
    (_is_kubeai, _kubeai),
    (_is_helm, _helm),
    (_is_sky, _sky),
    (_is_swap, _swap),
    (_is_ray, _ray),
    (_is_compose, _compose),
    (_is_pods, _pods),
)
