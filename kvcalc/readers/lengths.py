"""A traffic sample: a text file with one sequence length a line (or first in a CSV's line)."""

from __future__ import annotations

from pathlib import Path

from kvcalc.errors import InputError, UsageError
from kvcalc.readers.files import read_text
from kvcalc.units import parse_count


def read_lengths(path: Path, most: int) -> tuple[int, ...]:
    """Every length of the file; empty lines, ``#`` comments and a heading are passed over. Raises InputError."""
    found = []
    for number, line in enumerate(read_text(path, InputError).splitlines(), start=1):
        cell = line.split(",")[0].split("#")[0].strip().strip('"')
        if not cell or (number == 1 and not cell[0].isdigit()):
            continue
        try:
            found.append(parse_count(cell, "a length"))
        except UsageError as problem:
            raise InputError(problem.what, f"{path}: line {number}", "write one length a line, like 512 or 8k") from None
        if len(found) > most:
            raise InputError(f"the file names over {most:,} sequences", str(path), "take a sample of them")
    if not found:
        raise InputError("the file names no length", str(path), "write one length a line, like 512 or 8k")
    return tuple(found)
