"""What the names of a Python text hold, as far as constants go: nothing is run, and what isn't constant is not known."""

from __future__ import annotations

import ast
import warnings
from math import isfinite
from typing import Any

UNKNOWN = object()
MAX_DEPTH, MAX_NUMBER, MAX_ITEMS = 20, 10**15, 10_000


def parsed(text: str, mode: str = "exec") -> ast.AST | None:
    """A Python text as a tree, without warnings of its own; nothing where it is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text, mode=mode)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.id if isinstance(node.func, ast.Name) else str(getattr(node.func, "attr", ""))


def _plain(held: object) -> Any:
    """A text, a truth value, nothing, or a number that is one; else UNKNOWN."""
    if isinstance(held, float) and not isfinite(held):
        return UNKNOWN
    return held if isinstance(held, str | int | float | bool | None) else UNKNOWN


class Names:
    """The values that a text binds to names, options that it declares with a default, variables that it sets."""

    def __init__(self, tree: ast.AST) -> None:
        self.bound: dict[str, ast.expr] = {}
        self.defaults: dict[str, ast.expr] = {}
        self.env: dict[str, tuple[str, int]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                self._assigned(node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.bound[node.target.id] = node.value
            elif isinstance(node, ast.AugAssign):
                self._added(node)
            elif isinstance(node, ast.Call) and called(node) == "add_argument" and node.args:
                self._declared(node)
            elif isinstance(node, ast.Call) and called(node) in ("extend", "append") and len(node.args) == 1:
                self._extended(node)

    def _assigned(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Name):
            self.bound[target.id] = node.value
        elif isinstance(target, ast.Subscript) and "environ" in ast.unparse(target.value):
            name, held = self.value(target.slice), self.value(node.value)
            if isinstance(name, str) and isinstance(held, str):
                self.env[name] = (held, node.lineno)

    def _added(self, node: ast.AugAssign) -> None:
        """``cmd += [...]``: the sum of what was bound and what is added."""
        if isinstance(node.target, ast.Name) and isinstance(node.op, ast.Add) and node.target.id in self.bound:
            before = self.bound[node.target.id]
            self.bound[node.target.id] = ast.BinOp(left=before, op=ast.Add(), right=node.value)

    def _extended(self, node: ast.Call) -> None:
        """``cmd.extend([...])`` and ``cmd.append(x)``."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in self.bound:
            added = node.args[0] if called(node) == "extend" else ast.List(elts=[node.args[0]], ctx=ast.Load())
            self.bound[owner.id] = ast.BinOp(left=self.bound[owner.id], op=ast.Add(), right=added)

    def _declared(self, node: ast.Call) -> None:
        name = self.value(node.args[0])
        held = next((word.value for word in node.keywords if word.arg == "default"), None)
        if isinstance(name, str) and held is not None:
            self.defaults[name.lstrip("-").replace("-", "_")] = held

    def value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """A constant, or a collection, sum, product or text made of constants; otherwise UNKNOWN."""
        if depth > MAX_DEPTH or node is None:
            return UNKNOWN
        depth += 1
        if isinstance(node, ast.Constant):
            return _plain(node.value)
        if isinstance(node, ast.Name):
            return self.value(self.bound.get(node.id), depth)
        if isinstance(node, ast.Attribute):
            held = self.defaults.get(node.attr) if isinstance(node.value, ast.Name) else None
            return self.value(held, depth)
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        return self._collected(node, depth)

    def _collected(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            return {str(self.value(key, depth)): self.value(held, depth) for key, held in pairs if key is not None}
        if isinstance(node, ast.List | ast.Tuple):
            return self._items(node, depth)
        if isinstance(node, ast.JoinedStr):
            return self._joined(node, depth)
        return self._computed(node, depth)

    def _items(self, node: ast.List | ast.Tuple, depth: int) -> Any:
        found: list[Any] = []
        for item in node.elts[:MAX_ITEMS]:
            held = self.value(item.value if isinstance(item, ast.Starred) else item, depth)
            found += held if isinstance(item, ast.Starred) and isinstance(held, list) else [held]
        return found

    def _joined(self, node: ast.JoinedStr, depth: int) -> Any:
        """An f-string; what is not known stays between its braces."""
        pieces = []
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            held = self.value(inner, depth)
            pieces.append("{" + ast.unparse(inner) + "}" if held is UNKNOWN else str(held))
        return "".join(pieces)

    def _called(self, node: ast.Call, depth: int) -> Any:
        """``dict(…)``, ``int(…)``, a text's ``join`` and ``format``, a variable of the environment by its default."""
        name = called(node)
        if name == "dict" or name.endswith("Config"):
            return self.keywords(node, depth)
        if name in ("get", "getenv") and len(node.args) == 2 and "env" in ast.unparse(node.func):
            return self.value(node.args[1], depth)
        if name in ("int", "float", "str", "list") and len(node.args) == 1:
            return self._cast(name, self.value(node.args[0], depth))
        if name == "join" and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            sign, items = self.value(node.func.value, depth), self.value(node.args[0], depth)
            known = isinstance(sign, str) and isinstance(items, list) and all(isinstance(item, str) for item in items)
            return sign.join(items) if known else UNKNOWN
        return UNKNOWN

    @staticmethod
    def _cast(name: str, held: Any) -> Any:
        if name == "str" and type(held) in (int, float, bool):
            return str(held)
        if name in ("int", "float") and isinstance(held, str):
            try:
                return _plain(int(held) if name == "int" else float(held))
            except ValueError:
                return UNKNOWN
        return held

    def keywords(self, node: ast.Call, depth: int = 0) -> dict[str, Any]:
        """A call's keywords, ``**`` of a dictionary spread out."""
        found: dict[str, Any] = {}
        for keyword in node.keywords:
            held = self.value(keyword.value, depth)
            if keyword.arg is None:
                found |= held if isinstance(held, dict) else {}
            else:
                found[keyword.arg] = held
        return found

    def _computed(self, node: ast.expr, depth: int) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            held = self.value(node.operand, depth)
            return -held if type(held) in (int, float) else UNKNOWN
        if not isinstance(node, ast.BinOp):
            return UNKNOWN
        left, right = self.value(node.left, depth), self.value(node.right, depth)
        if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, list | str):
            return left + right if len(left) + len(right) < MAX_ITEMS else UNKNOWN
        if type(left) is not int or type(right) is not int or abs(left) > MAX_NUMBER or abs(right) > MAX_NUMBER:
            return UNKNOWN
        if isinstance(node.op, ast.Pow):
            return left**right if 0 <= right <= 40 and abs(left) <= 1024 else UNKNOWN
        return left * right if isinstance(node.op, ast.Mult) else left + right if isinstance(node.op, ast.Add) else UNKNOWN

    def node(self, node: ast.expr) -> ast.expr:
        """What a name is bound to, a few names deep."""
        for _ in range(10):
            if not isinstance(node, ast.Name) or node.id not in self.bound:
                break
            node = self.bound[node.id]
        return node
