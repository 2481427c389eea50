"""Text from outside, made harmless to a terminal: what would steer it is shown as a visible escape.

Control characters (C0 with ESC, DEL, C1), marks that turn the direction of writing, other invisible format characters, line
separators and halves of surrogate pairs. Letters of any script stay as they are.
"""

from __future__ import annotations

import re

# Bidirectional marks, embeddings, overrides and isolates; zero-width characters that hide words; separators; halves of pairs.
_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
_ANY = re.compile(f"[{_UNSAFE}]")
_BUT_LINES = re.compile(f"(?!\n)[{_UNSAFE}]")


def visible(text: str, *, lines: bool = False) -> str:
    r"""``text`` with each such character as ``\x1b`` or ``\u202e``; with ``lines`` an end of line stays one."""
    return (_BUT_LINES if lines else _ANY).sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "replace").decode("ascii") if not _half(match[0]) else f"\\u{ord(match[0]):04x}"


def _half(letter: str) -> bool:
    return "\ud800" <= letter <= "\udfff"


def visible_json(text: str) -> str:
    r"""A JSON text with the same characters as ``\u`` escapes, which mean the same inside its strings."""
    return _BUT_LINES.sub(lambda match: "".join(f"\\u{unit:04x}" for unit in _units(match[0])), text)


def _units(letter: str) -> list[int]:
    code = ord(letter)
    return [code] if code < 0x10000 else [0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)]


def text_cell(text: str) -> str:
    """A cell of a CSV file that a spreadsheet takes for text: what starts like a formula is quoted."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
