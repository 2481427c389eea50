"""Cards by name, and how much of each a program can use: less than the name says.

Three totals stay apart. What the driver prints (nvidia-smi) is a little more than what CUDA, HIP or Metal report to a program;
Windows reports about the nominal size. Engines divide what they are told: vLLM and llama.cpp the second, SGLang's automatic
share the first. Each figure is a public report of that card; where reports differ, the least counts.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import cache

from kvcalc.errors import UsageError
from kvcalc.tables import read_table
from kvcalc.units import format_bytes
from kvcalc.values import value

_MIB, _GIB = 2**20, 2**30
# Where no report shows what CUDA sees: the least share of what the driver prints that any reported card has (L4, RTX 4090).
LEAST_SHARE = Fraction(975, 1000)


@value
class Gpu:
    """One card. Sizes are bytes."""

    name: str
    title: str  # as the driver prints it
    nominal_gb: int
    driver_bytes: int | None  # as nvidia-smi prints it
    bytes: int  # what a program can use: the least that was reported
    most_bytes: int  # the most that was reported
    architecture: str  # sm89, gfx1100, metal
    source: str  # public reports
    assumed: str = ""  # how ``bytes`` was reckoned where no report shows it
    spellings: tuple[str, ...] = ()

    @property
    def gib(self) -> str:
        """What a program can use, for people."""
        return f"{self.bytes / _GIB:.2f}"


@cache
def cards() -> tuple[Gpu, ...]:
    """Every card of the table, the largest first."""
    found = [_card(row) for row in read_table("kvcalc.core", "cards")["cards"]]
    return tuple(sorted(found, key=lambda gpu: -gpu.bytes))


def _card(row: dict[str, object]) -> Gpu:
    driver, printed = row.get("driver_mib"), row.get("driver_mib") or row.get("windows_mib")
    low, high = row.get("low_mib"), row.get("high_mib")
    assumed = ""
    if low is None:
        low = high = Fraction(str(printed)) * LEAST_SHARE
        assumed = f"{float(LEAST_SHARE):.1%} of the {printed:,} MiB that the driver prints: no report shows what CUDA sees"
    return Gpu(
        name=str(row["name"]),
        title=str(row["title"]),
        nominal_gb=int(str(row["gb"])),
        driver_bytes=None if driver is None else int(str(driver)) * _MIB,
        bytes=int(Fraction(str(low)) * _MIB),
        most_bytes=int(Fraction(str(high)) * _MIB),
        architecture=str(row["arch"]),
        source=str(row["source"]),
        assumed=assumed,
        spellings=tuple(map(str, row.get("spellings", ()))),  # type: ignore[call-overload]
    )


_COUNTED = re.compile(r"(\d{1,4})\s*[x×*]\s*(\S.*)", re.ASCII)


def counted(text: str) -> tuple[int, str]:
    """``2x4090`` → 2 and ``4090``; one where no number stands before the name."""
    match = _COUNTED.fullmatch(text.strip())
    return (int(match[1]), match[2]) if match and int(match[1]) else (1, text)


def find_gpu(name: str) -> Gpu:
    """The card called ``name``: as a tool prints it, or as people type it. Raises UsageError, with the variants it may mean."""
    if (apple := apple_chip(name)) is not None:
        return apple
    key = plain(name)
    exact = [gpu for gpu in cards() if key in _keys(gpu)]
    if len(exact) == 1:
        return exact[0]
    longer = [gpu for gpu in cards() if key and any(word.startswith(key) for word in _keys(gpu))]
    if len(exact) + len(longer) == 1:
        return (exact or longer)[0]
    if exact or longer:
        raise _ambiguous(name, exact or longer)
    return _by_beginning(name, key)


def _by_beginning(name: str, key: str) -> Gpu:
    """A name with more in it than the table has: form factor, memory, board partner's words that say nothing of the size."""
    found = [gpu for gpu in cards() for word in _keys(gpu) if key.startswith(word) and _says_nothing(key.removeprefix(word), gpu)]
    if found and len({gpu.name for gpu in found}) == 1:
        return found[0]
    if found:
        raise _ambiguous(name, list(dict.fromkeys(found)))
    raise _unknown(name, key)


_REST = re.compile(r"(?:(?P<gb>\d{1,3})gb|hbm\d?e?|gddr\d?x?|sxm\d?|pcie|nvl|oc|founders|edition|gpu|graphics)*", re.ASCII)


def _says_nothing(rest: str, gpu: Gpu) -> bool:
    match = _REST.fullmatch(rest)
    return match is not None and (match["gb"] is None or int(match["gb"]) == gpu.nominal_gb)


def _ambiguous(name: str, found: list[Gpu]) -> UsageError:
    variants = ", ".join(f"{gpu.name} ({gpu.gib} GiB)" for gpu in found)
    return UsageError(f"{name[:40]!r} is several cards", fix=f"name one: {variants}")


def _unknown(name: str, key: str) -> UsageError:
    from difflib import get_close_matches

    known = {word: gpu.name for gpu in cards() for word in _keys(gpu)}
    near = list(dict.fromkeys(known[word] for word in get_close_matches(key[:40], known, n=3, cutoff=0.75)))
    hint = f"did you mean {', '.join(near)}?" if near else "kvcalc gpus lists the cards"
    return UsageError(f"the table has no card {name[:40]!r}", fix=f"{hint}; --memory takes any size")


@cache
def _keys(gpu: Gpu) -> frozenset[str]:
    words = (gpu.name, gpu.title, *gpu.spellings)
    keys = {plain(word) for word in words}
    return frozenset(keys | {key.removeprefix("rtx").removeprefix("gtx").removeprefix("rx") for key in keys})


_MAKERS = re.compile(r"nvidia|geforce|tesla|quadro|amd|radeon|instinct|corporation|\(.*\)", re.ASCII)


def plain(name: str) -> str:
    """One spelling of a card's name: without makers' words, blanks and dashes."""
    return re.sub(r"[^a-z0-9]", "", _MAKERS.sub("", name.lower().removesuffix("generation")))


_APPLE = re.compile(r"(?:apple\s*)?(m[1-9])\s*(pro|max|ultra)?[\s,(]*(\d{1,3})\s*gi?b?\)?", re.ASCII)
# recommendedMaxWorkingSetSize as Metal reports it: two thirds up to 32 GB, three quarters at 64 and 96 GB (llama-cpp-python#687,
# ollama#434, llama.cpp#1870, llama.cpp#3213). No report of other sizes was found.
_WORKING_SET = {8: (2, 3), 16: (2, 3), 24: (2, 3), 32: (2, 3), 64: (3, 4), 96: (3, 4)}


def apple_chip(name: str) -> Gpu | None:
    """``m3 max 64gb``: what Metal recommends as the most; None for other names. Raises UsageError for sizes without a report."""
    match = _APPLE.fullmatch(name.strip().lower())
    if match is None:
        return None
    size, words = int(match[3]), " ".join(word for word in ("Apple", match[1].upper(), (match[2] or "").title()) if word)
    if size not in _WORKING_SET:
        raise UsageError(
            f"no report shows Metal's limit on {words} with {size} GB",
            fix=f"known for {', '.join(map(str, _WORKING_SET))} GB; --memory takes what recommendedMaxWorkingSetSize says",
        )
    over, under = _WORKING_SET[size]
    limit = size * _GIB * over // under
    said = f"Metal's recommendedMaxWorkingSetSize: {over}/{under} of {format_bytes(size * _GIB)}"
    return Gpu(f"{match[1]}{'-' if match[2] else ''}{match[2] or ''}-{size}gb", words, size, None, limit, limit, "metal", said)
