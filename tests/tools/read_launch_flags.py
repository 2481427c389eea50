"""Write kvcalc/launch/data/ENGINE.json: every option of an engine's own argument parser, and the releases that take it.

    python tests/tools/read_launch_flags.py vllm FOLDER [--out FILE]

FOLDER holds one unpacked package per release: FOLDER/0.10.2/vllm/engine/arg_utils.py … Nothing of it is imported or run:
``add_argument`` calls, dataclass annotations and (llama.cpp) ``add_opt`` blocks are read as text. An option is known by its
``dest``; each of its names has the span of sampled releases that take it: "0.8.5..0.28.0" came in 0.8.5 and is gone in 0.28.0.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILES = {
    "vllm": (
        "vllm/engine/arg_utils.py",
        "vllm/entrypoints/**/cli_args.py",
        "vllm/entrypoints/cli/serve.py",
        "vllm/entrypoints/openai/*args*.py",
    ),
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/*.py"),
    "lmdeploy": ("lmdeploy/cli/serve.py", "lmdeploy/cli/utils.py", "lmdeploy/cli/chat.py", "lmdeploy/cli/cli.py"),
    "mlx-lm": ("mlx_lm/server.py",),
    "mlx-lm.generate": ("mlx_lm/generate.py", "mlx_lm/chat.py", "mlx_lm/cache_prompt.py"),
}
Row = dict[str, Any]


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def literal(node: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError):
        return None


def kind_of_type(text: str) -> str:
    """The kind of a value by its annotation or ``type=``."""
    if "human_readable_int" in text:
        return "size"
    if re.search(r"\bbool\b", text):
        return "maybe" if "str" in text else "bool"
    if re.search(r"[Ll]ist\[|tuple\[|set\[|nullable_kvs", text):
        return "list"
    if re.search(r"json|Config\b|Overrides\b|[Dd]ict\b|Mapping|parse_dataclass|kwargs", text):
        return "json"
    for kind in ("int", "float"):
        if re.search(rf"\b{kind}\b", text):
            return kind
    return "text"


HUMAN = {"max_model_len", "max_num_batched_tokens", "max_num_scheduled_tokens", "kv_cache_memory_bytes"}


def fields_of(tree: ast.AST) -> Iterator[tuple[str, str, Any, ast.expr]]:
    """Annotated class attributes: name, annotation as text, default, the annotation itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield item.target.id, ast.unparse(item.annotation), literal(item.value), item.annotation


def call_row(call: ast.Call, hints: dict[str, tuple[str, Any]]) -> tuple[str, Row] | None:
    names = [value for value in (literal(arg) for arg in call.args) if isinstance(value, str) and value.startswith("-")]
    if not names:
        return None
    named = {word.arg: word.value for word in call.keywords if word.arg}
    splat = next((word.value for word in call.keywords if word.arg is None), None)
    long = next((name for name in names if name.startswith("--")), names[0])
    dest = literal(named.get("dest")) or long.lstrip("-").replace("-", "_")
    hint = literal(splat.slice) if isinstance(splat, ast.Subscript) else dest
    kind, default = call_kind(named, hints.get(dest) or hints.get(hint or ""), splat is not None)
    if dest in HUMAN:
        kind = "size"
    return dest, {"names": names, "kind": kind, "default": default}


def call_kind(named: dict[str, ast.expr], hint: tuple[str, Any] | None, splat: bool) -> tuple[str, Any]:
    action = ast.unparse(named["action"]) if "action" in named else ""
    default = literal(named.get("default")) if "default" in named else (hint[1] if hint else None)
    if "BooleanOptional" in action or "StoreBoolean" in action:
        return "bool", default
    if (
        re.search(r"store_|StoreTrue|StoreConst|DeprecatedAction|NoValue|NoArg", action)
        or "help" in action
        or "version" in action
    ):
        return "switch", default
    nargs = literal(named.get("nargs"))
    if nargs in ("+", "*") or isinstance(nargs, int):
        return "list", default
    if nargs == "?":
        return "maybe", default
    if "type" in named and not splat:
        return kind_of_type(ast.unparse(named["type"])), default
    return (kind_of_type(hint[0]) if hint else "text"), default


def annotated_row(name: str, node: ast.expr, default: Any) -> tuple[str, Row] | None:
    """An option declared as ``name: A[type, Arg(...)]``."""
    if not (isinstance(node, ast.Subscript) and ast.unparse(node.value) == "A" and isinstance(node.slice, ast.Tuple)):
        return None
    kind_text, meta = ast.unparse(node.slice.elts[0]), node.slice.elts[1]
    named = {word.arg: word.value for word in meta.keywords if word.arg} if isinstance(meta, ast.Call) else {}
    if literal(named.get("no_cli")) or name.startswith("_"):
        return None
    names = [literal(named.get("cli_name")) or "--" + name.replace("_", "-"), *(literal(named.get("aliases")) or [])]
    kind, _ = call_kind({key: value for key, value in named.items() if key in ("action", "nargs")}, (kind_text, None), True)
    if "type_parser" in named:
        kind = kind_of_type(ast.unparse(named["type_parser"]))
    return name, {"names": names, "kind": "switch" if kind == "bool" and "action" not in named else kind, "default": default}


def frontend_rows(tree: ast.AST) -> Iterator[tuple[str, Row]]:
    """Fields of the classes of which a parser makes one option each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
            for name, hint, default, _ in fields_of(ast.Module(body=[node], type_ignores=[])):
                yield name, {"names": ["--" + name.replace("_", "-")], "kind": kind_of_type(hint), "default": default}


def rows_of_release(folder: Path, engine: str) -> dict[str, Row]:
    paths = [path for pattern in FILES[engine] for path in sorted(folder.glob(pattern))]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    others = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("vllm/config/*.py"))]
    hints: dict[str, tuple[str, Any]] = {}
    for tree in (*others, *trees):
        hints |= {name: (text, default) for name, text, default, _ in fields_of(tree)}
    found: dict[str, Row] = {}
    for tree in trees:
        for dest, row in (*frontend_rows(tree), *annotated_rows(tree), *called_rows(tree, hints)):
            held = found.setdefault(dest, {**row, "names": []})
            held["names"] += [name for name in row["names"] if name not in held["names"]]
    return found


def annotated_rows(tree: ast.AST) -> Iterator[tuple[str, Row]]:
    for name, _, default, node in fields_of(tree):
        row = annotated_row(name, node, default)
        if row:
            yield row


def called_rows(tree: ast.AST, hints: dict[str, tuple[str, Any]]) -> Iterator[tuple[str, Row]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            row = call_row(node, hints)
            if row:
                yield row


OPT = re.compile(r"add_opt\(common_arg\(\s*((?:\{[^{}]*\}\s*,\s*){1,2})(.*?)(?=add_opt\(common_arg\(|\Z)", re.DOTALL)
WORDS = re.compile(r'"([^"]+)"')


def rows_of_llamacpp(folder: Path) -> dict[str, Row]:
    """Options of ``common/arg.cpp``: names, names that negate, whether a value follows, the variable that stands for it."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("common/arg.cpp")))
    found: dict[str, Row] = {}
    for block in OPT.finditer(text):
        groups = re.findall(r"\{([^{}]*)\}", block.group(1))
        names = WORDS.findall(groups[0])
        negative = WORDS.findall(groups[1]) if len(groups) > 1 else []
        body = block.group(2)
        handler = re.search(r"common_params\s*&\s*(?:/\*\w+\*/|\w*)\s*(?:,\s*(const std::string|int|bool)\b([^)]*))?\)", body)
        env = re.search(r'set_env\("([A-Z0-9_]+)"\)', body)
        long = [name for name in names if name.startswith("--")]
        key = (long or names)[0].lstrip("-")
        takes = handler.group(1) if handler else ""
        kind = {"const std::string": "text", "int": "int"}.get(takes or "", "switch")
        row: Row = {
            "names": names,
            "kind": "list" if handler and "std::string" in (handler.group(2) or "") else kind,
            "default": None,
        }
        row |= {"negative": negative} if negative else {}
        row |= {"env": env.group(1)} if env else {}
        row |= {"removed": True} if re.search(r"argument has been removed", body) else {}
        found.setdefault(key, row)
    return found


def merged(folder: Path, engine: str) -> dict[str, Any]:
    releases = sorted((path.name for path in folder.iterdir() if path.is_dir()), key=version)
    read = rows_of_llamacpp if engine == "llama.cpp" else lambda place: rows_of_release(place, engine)
    tables = {release: read(folder / release) for release in releases}
    tables = {release: table for release, table in tables.items() if table}
    options: dict[str, Row] = {}
    owner: dict[str, str] = {}
    for release in reversed(tables):  # the newest first: a name belongs to the option that has it last
        for dest, row in tables[release].items():
            names = [*row["names"], *row.get("negative", ())]
            key = next((owner[name] for name in names if name in owner), dest)
            held = options.setdefault(key, {"names": {}})
            for name in names:
                owner.setdefault(name, key)
                options[owner[name]]["names"].setdefault(name, []).append(release)
            for fact, value in row.items():
                if fact != "names" and value is not None:
                    held.setdefault(fact, value)
    order = list(tables)
    for row in options.values():
        row["names"] = {name: span(order, there) for name, there in sorted(row["names"].items(), key=lambda item: -len(item[1]))}
    return {"releases": order, "options": dict(sorted(options.items()))}


def span(order: list[str], there: list[str]) -> str:
    first, last = order.index(there[-1]), order.index(there[0])
    since = "" if first == 0 else order[first]
    gone = "" if last == len(order) - 1 else order[last + 1]
    return f"{since}..{gone}" if since or gone else ""


def written(table: dict[str, Any]) -> str:
    """One option a line."""
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table["options"].items())
    return f'{{"releases": {json.dumps(table["releases"])},\n"options": {{\n{rows}\n}}}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=[*FILES, "llama.cpp"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out or Path(__file__).parents[2] / "kvcalc" / "launch" / "data" / f"{args.engine}.json"
    out.write_text(written(merged(args.folder, args.engine)), encoding="utf-8")
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
