"""A shell text → the commands that it would run: variables resolved from the text, branches taken in turn, nothing executed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kvcalc.launch.expand import Held, expand, expand_text
from kvcalc.launch.lexer import Lexer, Token
from kvcalc.launch.powershell import assigned, without_comma
from kvcalc.launch.values import Command, Slip, Word

MAX_VARIANTS, MAX_NESTED = 6, 5
_ASSIGNS = re.compile(r"(?:\$env:|\$)?([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_SEPARATES = {"\n", ";", ";;", "&&", "||", "|", "&", "(", ")"}
_REDIRECTS = {"<", ">", ">>", "&>", ">&", "<&", "<<<"}
_STRIPPED = {"then", "do", "else", "{", "}", "!", "time", "function", "$", "PS", "@"}
_DECLARES = {"export", "declare", "local", "readonly", "typeset", "set", "setx", "setenv"}
_RUNS_DOCUMENTS = {"sbatch", "bash", "sh", "ssh"}
_STOPS = {"exit", "return"}
Statement = list[Token]


def escape_of(text: str) -> str:
    """The sign that continues lines in this dialect: a back-tick in PowerShell, ``^`` in cmd.exe."""
    if re.search(r"\\[ \t]*\n", text) and not re.search(r"[`^][ \t]*\n", text):
        return "\\"
    if re.search(r"(?<=[ \t])`[ \t]*\n|(?m:^\s*\$(?:env:)?\w+\s*=)|(?m:^\s*&\s*[\"'$])", text):
        return "`"
    if re.search(r"(?<=[ \t])\^[ \t]*\n|(?mi:^\s*@echo off|^\s*set \w+=|^\s*rem )", text):
        return "^"
    return "" if re.search(r"(?<![\w\"'])[A-Za-z]:\\", text) and ".exe" in text.lower() else "\\"


def commands_of(text: str, env: Mapping[str, Word] | None = None, place: str = "", args: Sequence[Word] = ()) -> list[Command]:
    """Every command of the text, each way in which its branches may go. Raises LaunchError."""
    escape = escape_of(text)
    lexer = Lexer(_percents(text) if escape == "^" else text, escape)
    statements = list(_statements(lexer))
    paths, choices = _branches(statements)
    found: dict[tuple[object, ...], Command] = {}
    for choice in range(max(1, min(choices, MAX_VARIANTS))):
        run = Run(lexer, dict(env or {}), place, args)
        for statement, path in zip(statements, paths, strict=True):
            if not run.stopped and all(branch == min(choice, last) for branch, last in path):
                run.take(statement)
        for command in run.commands:
            found.setdefault((tuple(word.text for word in command.words), tuple(command.env.items())), command)
    return [_with(command, lexer.slips) for command in found.values()]


def environment_of(text: str, env: Mapping[str, Word]) -> dict[str, Word]:
    """The variables that a text sets where it starts nothing itself. Raises LaunchError."""
    escape = escape_of(text)
    lexer = Lexer(_percents(text) if escape == "^" else text, escape)
    run = Run(lexer, dict(env), "", ())
    for statement in list(_statements(lexer)):
        run.take(statement)
    for command in run.commands:
        texts = [word.text for word in command.words]
        if texts[:2] == ["launchctl", "setenv"] and len(texts) > 3:
            run.env[texts[2]] = Word(texts[3], command.words[3].line)
    return run.env


def _with(command: Command, slips: Sequence[Slip]) -> Command:
    from dataclasses import replace

    lines = {word.line for word in command.words}
    near = [slip for slip in slips if not lines or min(lines) <= slip.line <= max(lines)]
    return replace(command, slips=(*command.slips, *near))


def _percents(text: str) -> str:
    """cmd.exe's ``%X%`` as ``${X}``."""
    return re.sub(r"%([A-Za-z_]\w*)%", r"${\1}", text)


def _statements(lexer: Lexer) -> list[Statement]:
    """Tokens cut at separators; an array's brackets stay in its statement."""
    found: list[Statement] = []
    current: Statement = []
    array, before = 0, ""
    for token in lexer.tokens():
        if array:
            array += (token.operator == "(") - (token.operator == ")")
            current += [token] if token.operator in ("", ")") else []
        elif token.operator == "(" and current and (current[-1].text.endswith("=") or current[-1].bare == "@"):
            array = 1
            current.append(token)
        elif token.operator in _SEPARATES:
            if current and not (before in ("||", "&&") and current[0].bare in _STOPS):
                found.append(current)
            before = token.operator if current or token.operator != "\n" else before
            current = [Token(operator=";;", line=token.line)] if token.operator == ";;" else []
        else:
            current.append(token)
    return [*found, current] if current else found


Path = tuple[tuple[int, int], ...]


def _branches(statements: list[Statement]) -> tuple[list[Path], int]:
    """For every statement the branches that it stands in, with the last branch of each; and how many ways there are."""
    stack: list[list[int]] = []
    raw: list[tuple[tuple[int, int], ...]] = []
    last: dict[int, int] = {}
    opened = 0
    for statement in statements:
        word = statement[0].bare or (";;" if statement[0].operator == ";;" else "")
        if word in ("if", "case"):
            opened += 1
            stack.append([opened, 0, 0])
            last[opened] = 1 if word == "if" else 0
        elif stack and word in ("elif", "else", ";;"):
            stack[-1][1] += 1
            last[stack[-1][0]] = stack[-1][1] + (word == "elif")
        raw.append(tuple((frame[0], frame[1]) for frame in stack))
        if stack and (word in ("fi", "esac") or (len(statement) > 1 and statement[1].bare == "esac")):
            stack.pop()
    paths = [tuple((branch, last[number]) for number, branch in path) for path in raw]
    return paths, 1 + max(last.values(), default=0)


class Run:
    """The variables as they stand after each statement, and the commands met on the way."""

    def __init__(self, lexer: Lexer, env: dict[str, Word], place: str, args: Sequence[Word]) -> None:
        self.lexer = lexer
        self.env = env
        self.place = place
        self.variables: dict[str, Held] = {name: word.text for name, word in env.items()}
        self.args = list(args)
        self.commands: list[Command] = []
        self.files: dict[str, str] = {}
        self.documents = 0
        self.stopped = False

    def lookup(self, name: str) -> Held:
        """A variable's value, or nothing where the text doesn't say."""
        if name in ("@", "*"):
            return self.args
        return self.variables.get(name)

    def take(self, statement: Statement) -> None:
        """One statement: assignments change the variables, the rest is a command."""
        tokens = [token for token in statement if token.operator != ";;"]
        while tokens and tokens[0].bare in _STRIPPED | {"if", "elif", "while", "until"}:
            tokens = tokens[1:]
        tokens = assigned(tokens)
        self.stopped = bool(tokens) and tokens[0].bare in _STOPS
        declares = bool(tokens) and tokens[0].bare in _DECLARES
        tokens = tokens[1:] if declares else tokens
        prefix, rest = self._assigned(tokens, declares)
        if not rest:
            for name, held in prefix.items():
                self.variables[name] = held if isinstance(held, list) else held.text if held and not held.asks else None
                if isinstance(held, Word) and (declares or name in self.env or name.isupper()):
                    self.env[name] = held
            return
        if not declares:
            self._command(prefix, rest)
        elif len(rest) == 2 and not rest[0].operator:  # setx NAME VALUE
            self.env[rest[0].text] = Word(rest[1].text, rest[1].line)

    def _assigned(self, tokens: Statement, declares: bool) -> tuple[dict[str, Word | list[Word]], Statement]:
        """The assignments before a command, and what follows them."""
        found: dict[str, Word | list[Word]] = {}
        at = 0
        while at < len(tokens):
            match = None if tokens[at].operator else _ASSIGNS.fullmatch(tokens[at].parts[0][0]) if tokens[at].parts else None
            if not match and declares and not tokens[at].operator:
                at += 1
                continue
            if not match:
                break
            held, at = self._value(tokens, at, match.group(3))
            if match.group(2):
                held = self._added(match.group(1), held)
            found[match.group(1)] = held
        return found, tokens[at:]

    def _value(self, tokens: Statement, at: int, first: str) -> tuple[Word | list[Word], int]:
        if at + 1 < len(tokens) and tokens[at + 1].operator == "(":
            end = next((n for n in range(at + 2, len(tokens)) if tokens[n].operator == ")"), len(tokens))
            items = [without_comma(token) if self.lexer.escape == "`" else token for token in tokens[at + 2 : end]]
            return [word for token in items for word in self._expanded(token)], end + 1
        token = tokens[at]
        parts = ((first, ""), *token.parts[1:])
        fields = expand(parts, self.lookup, token.line)
        asks = tuple(name for field in fields for name in field.asks)
        return Word(" ".join(field.text for field in fields), token.line, asks), at + 1

    def _added(self, name: str, held: Word | list[Word]) -> Word | list[Word]:
        before = self.variables.get(name)
        if isinstance(held, list):
            return [*before, *held] if isinstance(before, list) else held
        return Word((before if isinstance(before, str) else "") + held.text, held.line, held.asks)

    def _expanded(self, token: Token) -> list[Word]:
        splat = self.variables.get(token.bare[1:]) if self.lexer.escape == "`" and token.bare.startswith("@") else None
        if isinstance(splat, list):
            return splat
        return expand(token.parts, self.lookup, token.line)

    def _command(self, prefix: Mapping[str, Word | list[Word]], tokens: Statement) -> None:
        """Record a command; a here-document that it writes to a file becomes that file."""
        words: list[Word] = []
        targets: list[str] = []
        document = None
        at = 0
        while at < len(tokens):
            operator = tokens[at].operator
            if operator in _REDIRECTS and at + 1 < len(tokens):
                if words and words[-1].text.isdecimal() and not words[-1].quoted:
                    words.pop()  # 2> and the like
                redirected = self._expanded(tokens[at + 1])
                targets += [word.text for word in redirected[:1]] if operator in (">", ">>") else []
                words += redirected if not words else []  # "> vllm serve …" is a prompt before a command
                at += 2
                continue
            if operator in ("<<", "<<-"):
                document = self._document()
            elif not operator:
                words += self._expanded(tokens[at])
            at += 1
        if document is not None:
            self._write(words, targets, document)
            if words and words[0].text in _RUNS_DOCUMENTS:
                words = [Word("sh", words[0].line), Word("-c", words[0].line), Word(document, words[0].line, quoted=True)]
        if words and words[0].text.startswith("-") and self.commands and not prefix:
            self._join(words)
        elif words:
            env = {**self.env, **{name: word for name, word in prefix.items() if isinstance(word, Word)}}
            self.commands.append(Command(tuple(words), env, self.place, files=self.files))

    def _document(self) -> str:
        self.documents += 1
        if self.documents > len(self.lexer.documents):
            return ""
        text, quoted = self.lexer.documents[self.documents - 1]
        return text if quoted else expand_text(text, self.lookup)[0]

    def _write(self, words: list[Word], targets: list[str], document: str) -> None:
        if words and words[0].text == "tee":
            targets += [word.text for word in words[1:] if not word.text.startswith("-")]
        for target in targets or ["-"]:
            self.files[target] = document

    def _join(self, words: list[Word]) -> None:
        """Flags on a line of their own after a command: the line before lost its continuation."""
        from dataclasses import replace

        before = self.commands[-1]
        slip = Slip(words[0].line, "flags on a line of their own: the line before them isn't continued")
        self.commands[-1] = replace(before, words=(*before.words, *words), slips=(*before.slips, slip))
