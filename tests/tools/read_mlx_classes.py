"""Write kvcalc/engines/data/mlx_lm.json: which model classes each release of MLX-LM has, and what their caches can do.

    pip download --no-deps mlx-lm==0.32.2 && unzip mlx_lm-0.32.2-*.whl -d RELEASES/0.32.2     (and so for each release)
    python tests/tools/read_mlx_classes.py RELEASES

The sources are read, never run. A class is a module of ``mlx_lm/models``; facts of its ``Model``:

own        it makes its cache itself (``make_cache``): max-kv-size has no effect
rotates    its windows are rotating caches; without it every layer keeps every position
listed     … where the file lists its layers' types: without a list none slides
latent     it keeps a latent (MLA); without it the keys and values of every head
lists      that cache is made of lists of caches, which are never quantised
by_hand    its attention is written out: it can't read a quantised cache
defaults   sizes that its ModelArgs takes where a file leaves them out
text_required  the same of a composite's text_config
required   keys that its ModelArgs has no default for: a file without one of them is refused
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
TARGET = HERE / "kvcalc" / "engines" / "data" / "mlx_lm.json"
Facts = dict[str, Any]


def number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def read_release(folder: Path) -> tuple[dict[str, str], dict[str, Facts]]:
    """The names that one class runs under another, and the facts of every class."""
    models = folder / "mlx_lm" / "models"
    trees = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(models.glob("*.py"))}
    known = {name: tree for name, tree in trees.items() if _class(tree, "Model") is not None or _imports_model(tree)}
    return _remapping(folder / "mlx_lm" / "utils.py"), {name: facts(name, known, trees) for name in known}


def facts(name: str, known: dict[str, ast.Module], trees: dict[str, ast.Module]) -> Facts:
    chain = _chain(name, trees)
    text = "\n".join(ast.unparse(trees[each]) for each in chain)
    own = any(isinstance(node, ast.FunctionDef) and node.name == "make_cache" for node in _model_nodes(name, trees))
    made = "\n".join(
        ast.unparse(node)
        for each in chain
        for node in ast.walk(trees[each])
        if isinstance(node, ast.FunctionDef) and node.name == "make_cache"
    )
    attention = any(_from_base(trees[each], "scaled_dot_product_attention") for each in chain)
    found: Facts = {
        "own": own,
        "lists": own and "CacheList(" in made,
        "rotates": own and "RotatingKVCache(" in made,
        "listed": own and bool(re.search(r"layer_types = \['full_attention'\] \*", text)),
        "latent": bool(re.search(r"update_and_fetch\(kv_latent", text)),
        "by_hand": "update_and_fetch(" in text and not attention,
        "required": required(trees[name]),
        "text_required": text_required(trees[name], trees),
        "defaults": defaults(trees[name]),
    }
    return {key: value for key, value in found.items() if value}


def _chain(name: str, trees: dict[str, ast.Module]) -> list[str]:
    """The module, and the modules of classes that it builds on."""
    found = [name]
    for each in found:
        for node in ast.walk(trees[each]):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                words = [node.module] if node.module else [alias.name for alias in node.names]
                found += [
                    word for word in words if word in trees and word not in (*found, "base", "cache") and _is_model(trees[word])
                ]
    return found


def _is_model(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ClassDef) and node.name in ("Model", "LanguageModel") for node in tree.body)


def _model_nodes(name: str, trees: dict[str, ast.Module]) -> list[ast.AST]:
    """What the class Model defines, or inherits from a class of another module."""
    tree = trees[name]
    model = _class(tree, "Model")
    if model is None:
        home = _home_of(tree, "Model")
        return _model_nodes(home, trees) if home else []
    found: list[ast.AST] = list(model.body)
    for base in model.bases:
        if isinstance(base, ast.Name) and base.id != "Module":
            home = _home_of(tree, base.id)
            own = _class(tree, base.id)
            found += list(own.body) if own is not None else _model_nodes(home, trees) if home else []
    return found


def _home_of(tree: ast.Module, name: str) -> str:
    """The module that ``name`` is imported from."""
    for node in ast.walk(tree):
        names = {alias.asname or alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
        if name in names and isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            return node.module
    return ""


def _imports_model(tree: ast.Module) -> bool:
    return bool(_home_of(tree, "Model"))


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)


def required(tree: ast.Module) -> list[str]:
    """Fields of ModelArgs without a default."""
    args = _class(tree, "ModelArgs")
    if args is None or any(isinstance(node, ast.FunctionDef) and node.name == "from_dict" for node in args.body):
        return []  # it reads a file in a way of its own
    fields = [node for node in args.body if isinstance(node, ast.AnnAssign)]
    return [node.target.id for node in fields if node.value is None and isinstance(node.target, ast.Name)]


def _from_base(tree: ast.Module, name: str) -> bool:
    return _home_of(tree, name) == "base"


def text_required(tree: ast.Module, trees: dict[str, ast.Module]) -> list[str]:
    """What a composite's one text class insists on, less what the composite puts there itself."""
    source = ast.unparse(tree)
    inner = set(re.findall(r"(\w+)\.ModelArgs\.from_dict\((?:\w+\.)?text_config\)", source)) & set(trees)
    put = set(re.findall(r"text_config\['(\w+)'\] =", source))
    return [key for key in required(trees[inner.pop()]) if key not in put] if len(inner) == 1 else []


_SIZES = re.compile(
    r"layers|heads|head_dim|hidden_size|window|lora_rank|rope_dim|pattern|interval|period|mamba_|linear_|state_size|conv_"
)


def defaults(tree: ast.Module) -> dict[str, int | None]:
    """What ModelArgs takes for sizes that a file leaves out."""
    args = _class(tree, "ModelArgs")
    fields = [node for node in args.body if isinstance(node, ast.AnnAssign)] if args is not None else []
    found: dict[str, int | None] = {}
    for node in fields:
        name, default = ast.unparse(node.target), node.value
        if _SIZES.fullmatch(name) and isinstance(default, ast.Constant) and type(default.value) in (int, type(None)):
            found[name] = default.value  # type: ignore[assignment]
    return found


def _remapping(utils: Path) -> dict[str, str]:
    for node in ast.walk(ast.parse(utils.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "MODEL_REMAPPING" for t in node.targets):
            found: dict[str, str] = ast.literal_eval(node.value)
            return found
    return {}


def spans(releases: list[str], values: dict[str, Any]) -> list[list[Any]]:
    """``[since, value]`` wherever the value changes; null where a release has none."""
    found: list[list[Any]] = []
    for release in releases:
        value = values.get(release)
        if not found or found[-1][1] != value:
            found.append([release, value])
    return found[1:] if found[0][1] is None else found


def main(root: Path) -> None:
    """Every release under ``root``, oldest first."""
    releases = sorted((path.name for path in root.iterdir() if path.is_dir()), key=number)
    read = {release: read_release(root / release) for release in releases}
    classes = sorted({name for _, found in read.values() for name in found})
    aliases = sorted({name for found, _ in read.values() for name in found})
    table = {
        "releases": releases,
        "classes": {name: spans(releases, {r: read[r][1].get(name) for r in releases}) for name in classes},
        "aliases": {name: spans(releases, {r: read[r][0].get(name) for r in releases}) for name in aliases},
    }
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(_rows(table), encoding="utf-8")
    print(len(classes), "classes")


def _rows(table: dict[str, Any]) -> str:
    """A row a class, so that a diff shows what a release brought."""
    parts = [f'"releases": {json.dumps(table["releases"])}']
    for name in ("classes", "aliases"):
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table[name].items())
        parts.append(f'"{name}": {{\n{rows}\n}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
