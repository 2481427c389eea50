r"""Text → the words of a shell, in their order, with their quotes and lines; nothing is expanded here.

Three dialects differ in the sign that escapes and continues a line: ``\`` (sh), a back-tick (PowerShell), ``^`` (cmd.exe).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvcalc.launch.values import LaunchError, Slip
from kvcalc.values import value

MAX_WORDS = 50_000
LITERAL, DOUBLE, BARE = "'", '"', ""
OPERATORS = ("<<<", "<<-", ";;", "&&", "||", "<<", ">>", "&>", ">&", "<&", ";", "&", "|", "(", ")", "<", ">", "\n")
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./:|-]*>")
_PLAIN = re.compile(r"[^\s'\"\\`^$;&|()<>#]+")
_BROKEN = re.compile(r"[ \t]+(#[^\n]*)?\r?\n")


@value
class Token:
    """A word (parts with their quotes) or an operator."""

    parts: tuple[tuple[str, str], ...] = ()
    operator: str = ""
    line: int = 0

    @property
    def bare(self) -> str:
        """The text of a word that no quote protects; empty where one does."""
        return "".join(text for text, quote in self.parts) if all(not quote for _, quote in self.parts) else ""

    @property
    def text(self) -> str:
        """The text as written, without its quotes."""
        return "".join(text for text, _ in self.parts)


class Lexer:
    """One pass over a text. ``slips`` gathers what its author hardly meant."""

    def __init__(self, text: str, escape: str = "\\", line: int = 1) -> None:
        self.text = text.replace("\r\n", "\n")
        self.escape = escape
        self.at = 0
        self.line = line
        self.parts: list[tuple[str, str]] = []
        self.started = 0
        self.slips: list[Slip] = []
        self.heredocs: list[tuple[str, bool]] = []
        self.documents: list[tuple[str, bool]] = []

    def tokens(self) -> Iterator[Token]:
        """Words and operators; a here-document's text follows its line as ``documents``."""
        count = 0
        while self.at < len(self.text):
            for token in self._step():
                count += 1
                if count > MAX_WORDS:
                    raise LaunchError(f"more than {MAX_WORDS} words", fix="name the file that was meant")
                yield token
        yield from self._end_word()

    def _step(self) -> Iterator[Token]:
        char = self.text[self.at]
        if char in " \t\r":
            self.at += 1
            yield from self._end_word()
        elif char == "#" and not self.parts:
            self.at = self._find("\n", self.at)
        elif self.escape and char == self.escape:
            yield from self._escaped()
        elif char in "'\"":
            self._quoted(char)
        elif char == "$" or (char == "`" and self.escape != "`"):
            end = closing(self.text, self.at)
            self._add(self.text[self.at : end], BARE, end)
        elif (match := _PLACEHOLDER.match(self.text, self.at)) is not None:
            self._add(match.group(), LITERAL, match.end())
        else:
            yield from self._plain_or_operator()

    def _plain_or_operator(self) -> Iterator[Token]:
        operator = next((sign for sign in OPERATORS if self.text.startswith(sign, self.at)), "")
        if not operator:
            match = _PLAIN.match(self.text, self.at)
            end = match.end() if match else self.at + 1
            self._add(self.text[self.at : end], BARE, end)
            return
        yield from self._end_word()
        self.at += len(operator)
        yield Token(operator=operator, line=self.line)
        if operator == "\n":
            self.line += 1
            self._take_documents()
        elif operator in ("<<", "<<-"):
            self._note_document()

    def _add(self, text: str, quote: str, end: int) -> None:
        self.started = self.started if self.parts else self.line
        self.parts.append((text, quote))
        self.line += text.count("\n")
        self.at = end

    def _end_word(self) -> Iterator[Token]:
        if self.parts:
            yield Token(tuple(self.parts), line=self.started)
            self.parts = []

    def _find(self, sign: str, start: int) -> int:
        found = self.text.find(sign, start)
        return len(self.text) if found < 0 else found

    def _escaped(self) -> Iterator[Token]:
        """A continued line, a broken continuation, or one character that is meant as it stands."""
        broken = _BROKEN.match(self.text, self.at + 1)
        if self.at + 1 >= len(self.text):
            self.at += 1  # nothing follows that could be meant
        elif self.text.startswith("\n", self.at + 1):
            self.at += 2
            self.line += 1
        elif broken:
            yield from self._end_word()
            self.slips.append(Slip(self.line, f"a blank after {self.escape}: the shell ends the command on this line"))
            self.at = broken.end()
            self.line += 1
        elif self.escape == "\\":
            self._add(self.text[self.at + 1 : self.at + 2], LITERAL, self.at + 2)
        else:
            self._add(self.text[self.at + 1 : self.at + 2], BARE, self.at + 2)

    def _quoted(self, quote: str) -> None:
        end = _quote_end(self.text, self.at, self.escape)
        if end > len(self.text):
            self.slips.append(Slip(self.line, f"a quote {quote} that nothing closes"))
        inner = self.text[self.at + 1 : end - 1]
        line, self.started = self.line, self.started if self.parts else self.line
        self.parts.append(("", quote))  # an empty word is a word
        pieces = [(inner, LITERAL)] if quote == "'" else double_parts(inner, self.escape)
        self.parts += pieces
        self.line = line + self.text.count("\n", self.at, end)
        self.at = end

    def _note_document(self) -> None:
        match = re.compile(r"[ \t]*(['\"]?)([\w.-]+)\1").match(self.text, self.at)
        if match:
            self.heredocs.append((match.group(2), bool(match.group(1))))
            self.at = match.end()

    def _take_documents(self) -> None:
        for mark, quoted in self.heredocs:
            match = re.compile(rf"^[ \t]*{re.escape(mark)}[ \t]*$", re.MULTILINE).search(self.text, self.at)
            end = match.start() if match else len(self.text)
            body = self.text[self.at : end]
            self.documents.append((body, quoted))
            self.line += body.count("\n") + 1
            self.at = min(len(self.text), match.end() + 1 if match else end)
        self.heredocs = []


def _quote_end(text: str, start: int, escape: str) -> int:
    """One past the quote that closes the one at ``start``; beyond the text where none does."""
    quote, at = text[start], start + 1
    while at < len(text):
        if text[at] == quote:
            return at + 1
        at += 2 if quote == '"' and escape in ("\\", "`") and text[at] == escape else 1
    return len(text) + 1


def double_parts(inner: str, escape: str = "\\") -> list[tuple[str, str]]:
    """The inside of double quotes: variables stay to be expanded, escaped signs are meant as they stand."""
    parts: list[tuple[str, str]] = []
    at = 0
    pattern = re.compile(r'\\(\n|[\\$"`])' if escape == "\\" else r"`(.)" if escape == "`" else r"(?!)")
    while at < len(inner):
        match = pattern.match(inner, at)
        if match:
            parts += [] if match.group(1) == "\n" else [(match.group(1), LITERAL)]
            at = match.end()
        elif inner[at] == "$":
            end = closing(inner, at)
            parts.append((inner[at:end], DOUBLE))
            at = end
        else:
            match = re.compile(r"[^\\$`]+").match(inner, at)
            end = match.end() if match else at + 1
            parts.append((inner[at:end], LITERAL))
            at = end
    return parts


_CLOSES = {"{": "}", "(": ")"}
_NAME = re.compile(r"\$(?:env:)?(?:[A-Za-z_]\w*|[0-9@*#?$!-])")


def closing(text: str, start: int) -> int:
    """One past the end of the expansion that begins at ``start``: ``$X``, ``${…}``, ``$(…)``, ``$((…))`` or back-ticks."""
    if text[start] == "`":
        end = text.find("`", start + 1)
        return len(text) if end < 0 else end + 1
    opened = text[start + 1 : start + 2]
    if opened in _CLOSES:
        return _balanced(text, start + 1, opened, _CLOSES[opened])
    match = _NAME.match(text, start)
    return match.end() if match else start + 1


def _balanced(text: str, start: int, opened: str, closed: str) -> int:
    depth, at = 0, start
    while at < len(text):
        char = text[at]
        depth += (char == opened) - (char == closed)
        at += 2 if char == "\\" else 1
        if depth == 0:
            return at
    return len(text)
