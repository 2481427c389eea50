"""Variables of a shell word, as far as the text gives their values. What it doesn't give stays as written, and is asked for."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence

from kvcalc.launch.lexer import BARE, LITERAL, closing
from kvcalc.launch.python_values import parsed
from kvcalc.launch.values import LaunchError, Word

Held = str | list[Word] | None
Lookup = Callable[[str], Held]
MAX_DEPTH, MAX_TEXT = 20, 200_000
_BRACED = re.compile(r"\$\{(?:env:)?(#?)([A-Za-z_]\w*|[0-9@*]+)(\[[@*]\])?(.*)\}", re.DOTALL)
_PLAIN = re.compile(r"\$(?:env:)?([A-Za-z_]\w*|[0-9@*#?$!-])")


class Expansion:
    """The fields that one word becomes."""

    def __init__(self, lookup: Lookup, line: int, depth: int = 0) -> None:
        self.lookup, self.line, self.depth = lookup, line, depth
        self.fields: list[Word] = []
        self.text: list[str] = []
        self.asks: list[str] = []
        self.open = False
        self.quoted = False
        self.vanished = False

    def end(self) -> None:
        """Close the field that is being written."""
        text = "".join(self.text)
        if self.open and (text or not self.vanished):
            if len(text) > MAX_TEXT:
                raise LaunchError("a word grows beyond all bounds", f"line {self.line}", "write its value out")
            self.fields.append(Word(text, self.line, tuple(dict.fromkeys(self.asks)), self.quoted))
        self.text, self.asks, self.open, self.quoted, self.vanished = [], [], False, False, False

    def put(self, text: str, asks: Sequence[str] = (), quoted: bool = True) -> None:
        """Add to the field."""
        self.text.append(text)
        self.asks += asks
        self.open = True
        self.quoted = self.quoted or quoted

    def put_split(self, text: str, asks: Sequence[str]) -> None:
        """Add text that blanks cut into fields."""
        pieces = re.split(r"(\s+)", text)
        for piece in pieces:
            if piece and piece.isspace():
                self.end()
            elif piece:
                self.put(piece, asks, quoted=False)

    def variable(self, raw: str, quote: str) -> None:
        """One expansion: ``$X``, ``${X:-y}``, ``$((…))``."""
        held, asks = resolve(raw, self.lookup, self.depth)
        if isinstance(held, list):
            self._put_fields(held)
        elif quote == BARE and not asks:
            self.put_split(held, asks)
        else:
            self.put(held, asks, quoted=quote != BARE)

    def _put_fields(self, fields: list[Word]) -> None:
        self.vanished = self.vanished or not fields  # an empty "${A[@]}" is no word at all
        for number, field in enumerate(fields):
            if number:
                self.end()
            self.put(field.text, field.asks)


def expand(parts: Sequence[tuple[str, str]], lookup: Lookup, line: int = 0, depth: int = 0) -> list[Word]:
    """The fields of one word. Raises LaunchError where expansion grows beyond bounds."""
    if depth > MAX_DEPTH:
        raise LaunchError("variables refer to each other without end", f"line {line}", "write the value out")
    out = Expansion(lookup, line, depth)
    for text, quote in parts:
        if quote == LITERAL or not text:
            out.put(text)
        elif text[0] in "$`" and len(text) > 1:
            out.variable(text, quote)
        else:
            out.put(text, quoted=False)
    out.end()
    return out.fields


def expand_text(text: str, lookup: Lookup, depth: int = 0) -> tuple[str, tuple[str, ...]]:
    """A text with its variables put in, and the names that were not found."""
    pieces: list[str] = []
    asks: list[str] = []
    at = 0
    while at < len(text):
        start = text.find("$", at)
        if start < 0 or depth > MAX_DEPTH:
            break
        end = closing(text, start)
        pieces.append(text[at:start])
        held, missing = resolve(text[start:end], lookup, depth)
        pieces.append(held if isinstance(held, str) else " ".join(word.text for word in held))
        asks += missing
        at = end
    joined = "".join(pieces) + text[at:]
    if len(joined) > MAX_TEXT:
        raise LaunchError("a word grows beyond all bounds", fix="write its value out")
    return joined, tuple(dict.fromkeys(asks))


def resolve(raw: str, lookup: Lookup, depth: int = 0) -> tuple[str | list[Word], tuple[str, ...]]:
    """The value of one expansion, or the expansion as written and the name to ask for."""
    if raw.startswith("$(("):
        return _arithmetic(raw, lookup, depth)
    if raw.startswith(("$(", "`")):
        return raw, (raw,)
    braced = _BRACED.fullmatch(raw)
    if braced:
        return _braced(raw, braced, lookup, depth)
    plain = _PLAIN.fullmatch(raw)
    if not plain:
        return raw, ()
    held = lookup(plain.group(1))
    return (raw, (plain.group(1),)) if held is None else (_joined(held, plain.group(1)), ())


def _joined(held: str | list[Word], name: str) -> str | list[Word]:
    """An array's plain ``$X`` is its first word; ``$@`` is all."""
    if isinstance(held, list) and name not in "@*":
        return held[0].text if held else ""
    return held


def _braced(raw: str, match: re.Match[str], lookup: Lookup, depth: int) -> tuple[str | list[Word], tuple[str, ...]]:
    length, name, index, rest = match.groups()
    held = lookup(name)
    if index:
        return ([] if held is None else held), ()
    if length:
        return (raw, (name,)) if not isinstance(held, str) else (str(len(held)), ())
    text = None if held is None else held if isinstance(held, str) else " ".join(word.text for word in held)
    return _operated(raw, name, text, rest, lookup, depth)


def _operated(raw: str, name: str, held: str | None, rest: str, lookup: Lookup, depth: int) -> tuple[str, tuple[str, ...]]:
    """``:-``, ``:=``, ``:+``, ``:?`` and their forms without a colon; prefixes and suffixes cut; the rest is asked for."""
    colon, sign, other = rest.startswith(":"), rest.lstrip(":")[:1], rest.lstrip(":")[1:]
    there = held is not None and (held != "" or not colon)
    if not rest:
        return (raw, (name,)) if held is None else (held, ())
    if sign and sign in "-=":
        return (held or "", ()) if there else expand_text(_unquoted(other), lookup, depth + 1)
    if sign == "+":
        return expand_text(_unquoted(other), lookup, depth + 1) if there else ("", ())
    if sign == "?" and there:
        return held or "", ()
    if held is not None and (cut := _cut(held, rest)) is not None:
        return cut, ()
    return raw, (name,)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _cut(held: str, rest: str) -> str | None:
    """``${X##*/}``, ``${X%.gguf}``, ``${X^^}``, ``${X,,}``: the forms that names of models are made with."""
    match = re.fullmatch(r"(##?|%%?)(\*?)([^*?\[\]]*)(\*?)", rest)
    if rest in ("^^", ",,"):
        return held.upper() if rest == "^^" else held.lower()
    if not match:
        return None
    sign, before, text, after = match.groups()
    if sign[0] == "#" and not after:
        at = held.rfind(text) if sign == "##" else held.find(text)
        return held[at + len(text) :] if text and at >= 0 and (before or at == 0) else held
    if sign[0] == "%" and not before:
        at = held.find(text) if sign == "%%" and after else held.rfind(text)
        return held[:at] if text and at >= 0 and (after or held.endswith(text)) else held
    return None


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def _arithmetic(raw: str, lookup: Lookup, depth: int) -> tuple[str, tuple[str, ...]]:
    inner = raw[3:].removesuffix("))")
    text, asks = expand_text(re.sub(r"(?<![\w$}])([A-Za-z_]\w*)", r"${\1}", inner), lookup, depth + 1)
    if asks or len(text) > 200:
        return raw, asks or (raw,)
    try:
        tree = parsed(text.strip(), "eval")
        return (str(_whole(tree.body)), ()) if isinstance(tree, ast.Expression) else (raw, (raw,))
    except (ValueError, ZeroDivisionError, RecursionError):
        return raw, (raw,)


def _whole(node: ast.expr) -> int:
    """Sums, products and brackets of whole numbers below 10^18. Raises ValueError for the rest."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        found = _OPERATORS[type(node.op)](_whole(node.left), _whole(node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -_whole(node.operand)
    else:
        raise ValueError("no sum")
    if abs(found) > 10**18:
        raise ValueError("too large")
    return found
