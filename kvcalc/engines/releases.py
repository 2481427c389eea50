"""Releases, one idea for every engine: what changed, since when, and which rules answer for a release that is asked for.

An engine lists the releases whose rules are known, the newest last, and its changes, a row each. A release between two known
ones takes the nearest older one's name and every change up to its own number. A newer one is answered by the newest rules,
which the answer says; an older one than the oldest is refused.
"""

from __future__ import annotations

import re

from kvcalc.errors import EngineError, UsageError
from kvcalc.values import value

Number = tuple[int, ...]

# 0.11.2, v5.24.0, b4600 (a build of llama.cpp, before it had numbers), 0.5.0-dev, 1.2.0rc3, 0.19.0+cu129
_FORM = re.compile(
    r"v?(?:b(?P<build>\d{1,6})|(?P<number>\d{1,5}(?:\.\d{1,5}){0,3}))"
    r"(?:(?P<dash>[-.]?)(?P<stage>dev|rc|a|b|post)\.?(?P<count>\d{0,6}))?(?:\+[\w.]{1,40})?",
    re.ASCII,
)
_STAGES = {"": 0, "post": 1, "dev": -4, "a": -3, "b": -2, "rc": -1}
_AFTER = 2  # 0.5.0-dev is what comes after 0.5.0; 0.5.0.dev1 comes before it


def number_of(text: str) -> Number:
    """A release as a tuple that sorts: four numbers, its stage (a release candidate comes before the release), its count.

    Builds (``b4600``) come before every numbered release. Raises UsageError for a text that is no release.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"-o release={text[:40]} is no release number", fix="write it like 0.11.2")
    stage = _AFTER if match["dash"] == "-" and match["stage"] == "dev" else _STAGES[match["stage"] or ""]
    count = int(match["count"] or 0)
    if match["build"] is not None:
        return (0, 0, 0, int(match["build"]), stage, count)
    parts = [int(part) for part in match["number"].split(".")]
    return (*parts, *[0] * (4 - len(parts)), stage, count)


@value
class Change:
    """From ``since`` on, ``name`` holds. ``said`` is one sentence for people."""

    name: str
    since: str
    said: str


@value
class Rules:
    """The rules that answer: those of ``name``, for the release that was ``asked`` for."""

    name: str
    asked: str
    has: frozenset[str] = frozenset()  # names of the changes that hold
    stand_in: bool = False  # the release asked for is not among the known ones
    warning: str = ""

    def __contains__(self, change: object) -> bool:
        """Whether a change holds: ``"latent_mla" in rules``."""
        return change in self.has

    @property
    def number(self) -> Number:
        """The release asked for, as it sorts."""
        return number_of(self.asked)

    def since(self, release: str) -> bool:
        """Whether the release asked for is ``release`` or a later one."""
        return self.number >= number_of(release)

    @property
    def said(self) -> str:
        """For a headline: the release, and whose rules stand in for it."""
        return f"{self.asked} (rules of {self.name})" if self.stand_in else self.name


@value
class Releases:
    """The releases of one engine whose rules are known, oldest first, and what changed."""

    engine: str
    known: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    refused: str = ""  # why none before the oldest is answered for, where there is more to say
    versioned: bool = True  # whether a release can be asked for

    @property
    def newest(self) -> str:
        """The default."""
        return self.known[-1]

    def find(self, text: str | None) -> Rules:
        """The rules of one release; unsaid, the newest. Raises UsageError (no number), EngineError (older than is known)."""
        asked = (text or self.newest).strip().removeprefix("v")
        number = number_of(asked)
        if number < number_of(self.known[0]):
            raise self._too_old(asked)
        name = [known for known in self.known if number_of(known) <= number][-1]
        has = frozenset(change.name for change in self.changes if number_of(change.since) <= number)
        if number == number_of(name):
            return Rules(name, name, has)
        return Rules(name, asked, has, stand_in=True, warning=self._stand_in(asked, name))

    def _too_old(self, asked: str) -> EngineError:
        why = f": {self.refused}" if self.refused else ""
        return EngineError(
            f"the rules of {self.engine} {asked} are not known{why}", "-o release", f"the oldest known release is {self.known[0]}"
        )

    def _stand_in(self, asked: str, name: str) -> str:
        if name == self.newest:
            return f"{self.engine} {asked} is newer than {name}, the newest release whose rules are known: those are taken"
        return (
            f"{self.engine} {asked} is not among the releases that were checked: it takes the rules of {name}, the nearest before"
            " it, and the changes up to its own number"
        )

    def brought(self) -> dict[str, tuple[str, ...]]:
        """What each known release brought, in sentences, newest first; a change between two is told at the later one."""
        found: dict[str, list[str]] = {known: [] for known in reversed(self.known)}
        for change in self.changes:
            at = next((known for known in self.known if number_of(known) >= number_of(change.since)), self.newest)
            since = "" if change.since == at else f" (since {change.since})"
            found[at].append(change.said + since)
        return {known: tuple(said) for known, said in found.items()}


def unversioned(engine: str) -> Releases:
    """Of kvcalc's own accountings, which have no releases."""
    return Releases(engine, ("1",), versioned=False)
