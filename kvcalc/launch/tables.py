"""Each engine's options, as its own parsers have them: names, kinds, the releases that take them. Read when first asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from kvcalc.tables import read_table
from kvcalc.values import value


@value
class Name:
    """A name of an option, with the sampled releases it came in and is gone in (empty: beyond the samples).

    ``after`` is the last sample that lacks it: a release between that and ``since`` may have it, and is not said to lack it.
    """

    text: str
    since: str = ""
    gone: str = ""
    after: str = ""

    def taken_by(self, release: str) -> bool:
        """Whether this release's parser has the name; no release means the newest."""
        if not release:
            return not self.gone
        key = version(release)
        return (not self.after or version(self.after) < key) and (not self.gone or key < version(self.gone))


@value
class Option:
    """One option: ``kind`` is switch, bool, int, size, float, json, text, list or maybe (a value may follow)."""

    key: str
    kind: str
    names: tuple[Name, ...]
    negative: tuple[str, ...] = ()
    env: str = ""
    removed: bool = False


@value
class Table:
    """All options of one parser."""

    engine: str
    releases: tuple[str, ...]
    options: Mapping[str, Option]
    owners: Mapping[str, tuple[tuple[Name, Option], ...]]

    def at(self, release: str) -> dict[str, Option]:
        """Name → option, as this release's parser has them."""
        return {text: option for text, held in self.owners.items() for name, option in held if name.taken_by(release)}

    def ever(self, text: str) -> tuple[Name, Option] | None:
        """The last option that had this name."""
        held = self.owners.get(text)
        return max(held, key=lambda pair: version(pair[0].gone or "9999")) if held else None

    def near(self, text: str) -> str:
        """The nearest name there is, or nothing."""
        found = get_close_matches(text[:60], self.owners, n=1, cutoff=0.75)
        return found[0] if found else ""


def version(text: str) -> tuple[int, ...]:
    """A release as numbers that compare: "0.10.1.post2" → (0, 10, 1, 2), "b5172" → (5172,)."""
    return tuple(int(part[:9]) for part in re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:6])


@cache
def table(engine: str) -> Table:
    """The table of one engine, or of one of its programs ("mlx-lm.generate")."""
    raw = read_table("kvcalc.launch", engine)
    before = dict(zip(raw["releases"][1:], raw["releases"], strict=False))
    options = {key: _option(key, row, before) for key, row in raw["options"].items()}
    owners: dict[str, tuple[tuple[Name, Option], ...]] = {}
    for option in options.values():
        for name in option.names:
            owners[name.text] = (*owners.get(name.text, ()), (name, option))
    return Table(engine, tuple(raw["releases"]), options, owners)


def _option(key: str, row: Mapping[str, Any], before: Mapping[str, str]) -> Option:
    spans = {text: span.split("..") if span else ["", ""] for text, span in row["names"].items()}
    names = tuple(Name(text, since, gone, before.get(since, "")) for text, (since, gone) in spans.items())
    return Option(key, row["kind"], names, tuple(row.get("negative", ())), row.get("env", ""), row.get("removed", False))


def matches(names: Mapping[str, Option], written: str) -> list[str]:
    """The names that a written flag stands for: itself, or every name that it begins (argparse's abbreviation)."""
    if written in names:
        return [written]
    if not written.startswith("--") or len(written) < 3:
        return []
    return sorted(name for name in names if name.startswith(written))


def one_option(names: Mapping[str, Option], found: Sequence[str]) -> Option | None:
    """The option that all these names belong to, where it is one."""
    options = {names[name].key: names[name] for name in found}
    return next(iter(options.values())) if len(options) == 1 else None
