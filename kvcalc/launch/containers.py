"""One container of a Compose file or a pod: image, command, variables, cards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvcalc.launch.docker import of_image
from kvcalc.launch.env_files import env_file
from kvcalc.launch.expand import expand_text
from kvcalc.launch.lexer import Lexer
from kvcalc.launch.values import Command, Slip, Word
from kvcalc.launch.yaml_tree import Text

Env = Mapping[str, Word]
Tree = dict[str, Any]


def interpolated(text: str, env: Env) -> tuple[str, tuple[str, ...]]:
    """Compose's own ``${X:-y}``, and ``$$`` for a dollar that the container's shell sees."""
    pieces, asks = [], []
    for piece in text.split("$$"):
        done, missing = expand_text(piece, lambda name: env[name].text if name in env else None)
        pieces.append(done)
        asks += [name for name in missing if re.fullmatch(r"[A-Za-z_]\w*", name)]
    return "$".join(pieces), tuple(asks)


def variables(held: Any, env: Env | None = None) -> dict[str, Word]:
    """``environment:`` as a mapping or a list of NAME=VALUE, and Kubernetes' list of name and value."""
    pairs: list[tuple[str, Any]] = []
    if isinstance(held, dict):
        pairs = list(held.items())
    for item in held if isinstance(held, list) else []:
        if isinstance(item, dict) and isinstance(item.get("value"), str):
            pairs.append((str(item.get("name", "")), item["value"]))
        elif isinstance(item, str) and "=" in item:
            name, _, text = item.partition("=")
            pairs.append((name.strip(), Text(text.strip('"'), getattr(item, "line", 0))))
    return {name: _word(text, env) for name, text in pairs if isinstance(text, str)}


def _word(text: str, env: Env | None) -> Word:
    line = getattr(text, "line", 0)
    done, asks = interpolated(text, env) if env is not None else (str(text), ())
    return Word(done, line, asks)


def count(held: Any) -> int | None:
    """A whole number of cards or copies, or nothing."""
    return int(held) if isinstance(held, str) and re.fullmatch(r"\d{1,6}", held) else None


def compose_service(service: Tree, name: str, env: Env, files: Mapping[str, str]) -> Iterator[Command]:
    """A service: entrypoint and command, strings cut as a shell cuts them, lists as they stand."""
    named = service.get("env_file")
    listed = named if isinstance(named, list) else [named]
    own = [path.get("path") if isinstance(path, dict) else path for path in listed]
    held = {key: word for path in own if isinstance(path, str) for key, word in env_file(files, path).items()}
    held |= variables(service.get("environment"), env)
    words = [*_compose_words(service.get("entrypoint"), env), *_compose_words(service.get("command"), env)]
    image, _ = interpolated(str(service.get("image", "")), env)
    found = Command(tuple(words), held, f"services.{name}", gpus=_compose_cards(service))
    found = of_image(found, image)
    if not found.engine and not words:
        from kvcalc.launch.small_forms import env_engine

        found = replace(found, engine=env_engine(held))
    if found.engine or words:
        yield found


def _compose_words(held: Any, env: Env) -> Iterator[Word]:
    if isinstance(held, str):
        text, asks = interpolated(held, env)
        yield from cut(text, getattr(held, "line", 0), asks)
    for item in held if isinstance(held, list) else []:
        if isinstance(item, str):
            done, asks = interpolated(item, env)
            yield _listed(item, done, asks)


def _listed(item: str, text: str, asks: tuple[str, ...] = ()) -> Word:
    return Word(text, getattr(item, "line", 0), asks, quoted=True)


def cut(text: str, line: int, asks: tuple[str, ...] = ()) -> Iterator[Word]:
    """A string cut into words as a shell would, without expanding anything."""
    for token in Lexer(text, line=line).tokens():
        if token.operator in ("", "\n"):
            if token.parts:
                yield Word(token.text, token.line, tuple(ask for ask in asks if ask in token.text))
        else:
            yield Word(token.operator, token.line)


def _compose_cards(service: Tree) -> int | None:
    """deploy.resources.reservations.devices: a count, or ids; nothing for all."""
    held: Any = service
    for key in ("deploy", "resources", "reservations", "devices"):
        held = held.get(key) if isinstance(held, dict) else None
    numbers = []
    for device in held if isinstance(held, list) else []:
        if isinstance(device, dict):
            ids = device.get("device_ids")
            numbers.append(len(ids) if isinstance(ids, list) else count(device.get("count")))
    return sum(number for number in numbers if number) or None


def found_in(tree: Any, where: str = "", replicas: int = 1, depth: int = 0) -> Iterator[tuple[Tree, str, int]]:
    """Every container of a manifest, with its place and the copies that are made of it."""
    if depth > 14:
        return
    if isinstance(tree, list):
        for item in tree:
            yield from found_in(item, where, replicas, depth + 1)
        return
    if not isinstance(tree, dict):
        return
    kind = tree.get("kind")
    name = tree["metadata"].get("name", "") if isinstance(tree.get("metadata"), dict) else ""
    where = f"{kind} {name}".strip() if isinstance(kind, str) else where
    # A StatefulSet's or a worker set's pods are often the nodes of one server: not counted as copies here.
    copies = count(tree.get("replicas")) if "StatefulSet" not in where and "LeaderWorker" not in where else None
    for key, held in tree.items():
        if key in ("containers", "initContainers", "sidecars") and isinstance(held, list):
            for item in held if key == "containers" else []:
                if isinstance(item, dict):
                    yield item, f"{where} {item.get('name', '')}".strip(), replicas * (copies or 1)
        elif isinstance(held, dict) and _is_container(key, held):
            yield held, f"{where} {key}".strip(), replicas * (copies or 1)
        else:
            yield from found_in(held, where, replicas * (copies or 1), depth + 1)


def _is_container(key: str, held: Tree) -> bool:
    """A container that stands alone: KServe's model, an operator's mainContainer, a chart's image with its command."""
    started = any(isinstance(held.get(part), str | list) for part in ("command", "args"))
    return "modelFormat" in held or (started and ("image" in held or "repository" in held or "Container" in key))


def image_of(container: Tree) -> str:
    """An image written as one text, or as repository and tag."""
    held = container.get("image", container)
    if isinstance(held, dict):
        return f"{held.get('repository', '')}:{held.get('tag', '')}"
    return str(held)


def kubernetes(container: Tree, where: str, replicas: int, env: Env) -> Iterator[Command]:
    """A pod's container: command and args joined; ``$(X)`` stands for a variable of its own."""
    held = variables(container.get("env"))
    words, slips = [], []
    for key in ("command", "args"):
        part = container.get(key)
        if isinstance(part, str):
            words += list(cut(part, getattr(part, "line", 0)))
        for item in part if isinstance(part, list) else []:
            if isinstance(item, str):
                words.append(_listed(item, _own_variables(item, held)))
                slips += _booleans(item)
    image = image_of(container)
    found = Command(tuple(words), {**env, **held}, where, gpus=_limit(container), replicas=replicas, slips=tuple(slips))
    found = of_image(found, image)
    if not found.engine and isinstance(container.get("modelFormat"), dict):
        found = _kserve(found, container)
    if found.engine or words:
        yield found


_KSERVE = {
    "--model_id": "--model",
    "--model-id": "--model",
    "--model_name": "--served-model-name",
    "--model-name": "--served-model-name",
}


def _kserve(found: Command, container: Tree) -> Command:
    """KServe's own server of Hugging Face models starts vLLM, with names of its own for the model."""
    name = str(container["modelFormat"].get("name", "")).lower()
    words = []
    for word in found.words:
        flag, equals, rest = word.text.partition("=")
        words.append(replace(word, text=_KSERVE.get(flag, flag) + equals + rest))
    engine = "vllm" if name in ("vllm", "huggingface") else ""
    return replace(found, words=tuple(words), engine=engine, model=str(container.get("storageUri", "")).removeprefix("hf://"))


def _own_variables(text: str, env: Env) -> str:
    return re.sub(
        r"\$\(([A-Za-z_]\w*)\)", lambda match: env[match.group(1)].text if match.group(1) in env else match.group(), text
    )


def _booleans(item: str) -> list[Slip]:
    kinds = {"bool": "a boolean", "int": "a number", "float": "a number"}
    kind = kinds.get(getattr(item, "tag", "")) if getattr(item, "plain", False) else None
    if kind:
        return [
            Slip(
                getattr(item, "line", 0),
                f"YAML reads an unquoted {item} as {kind}, and Kubernetes takes texts only: write '{item}'",
            )
        ]
    return []


def _limit(container: Tree) -> int | None:
    """Cards that a container is given: nvidia.com/gpu, amd.com/gpu, gpu.intel.com/…"""
    resources = container.get("resources")
    for part in ("limits", "requests"):
        held = resources.get(part) if isinstance(resources, dict) else None
        for name, number in held.items() if isinstance(held, dict) else ():
            if re.search(r"gpu|/mig-|neuron|habana", name, re.IGNORECASE):
                return count(number)
    return None
