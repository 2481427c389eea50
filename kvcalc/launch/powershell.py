"""PowerShell's own ways of assigning: ``$X = "y"``, ``$env:X="y"``, ``$a = @("--model", "x")``, and ``@a`` for its words."""

from __future__ import annotations

from kvcalc.launch.lexer import BARE, Token


def assigned(tokens: list[Token]) -> list[Token]:
    """A statement with its assignment as one token, as a shell has it; any other as it is."""
    if not tokens or not tokens[0].parts or not tokens[0].parts[0][0].startswith("$"):
        return tokens
    name, rest = tokens[0].parts[0][0], tokens[0].parts[1:]
    if rest and rest[0][1] == BARE and rest[0][0].startswith("="):
        return [_joined(name, rest[0][0], rest[1:], tokens[0].line), *tokens[1:]]
    if len(tokens) < 3 or tokens[1].bare != "=":
        return tokens
    if tokens[2].bare == "@":
        return [_joined(name, "=", (), tokens[0].line), *tokens[3:]]
    return [_joined(name, "=", tokens[2].parts, tokens[0].line), *tokens[3:]]


def _joined(name: str, sign: str, parts: tuple[tuple[str, str], ...], line: int) -> Token:
    return Token(((name + sign, BARE), *parts), line=line)


def without_comma(token: Token) -> Token:
    """An array's item without the comma after it."""
    text, quote = token.parts[-1] if token.parts else ("", BARE)
    if quote == BARE and text.endswith(","):
        return Token((*token.parts[:-1], (text[:-1], quote)), line=token.line)
    return token
