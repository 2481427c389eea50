"""What a written flag stands for in a release: the option itself, an abbreviation, a negation, or why the release refuses it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from kvcalc.launch.tables import Option, Table, matches, one_option, table, version
from kvcalc.launch.values import AMBIGUOUS, COUNTED, REMOVED, UNKNOWN
from kvcalc.values import value

ENABLE_DISABLE_SINCE = "0.33.0"  # vLLM: --disable-x stands for --no-enable-x


@value
class Match:
    """The option (none where no release has it), whether it is negated, and what there is to say."""

    option: Option | None
    negated: bool = False
    verdict: str = COUNTED
    note: str = ""
    name: str = ""


@cache
def names_of(engine: str, release: str) -> Mapping[str, tuple[Option, bool]]:
    """Every name that this release's parser takes → its option, and whether the name negates it."""
    found: dict[str, tuple[Option, bool]] = {}
    known = table(engine)
    # llama.cpp counts builds, and its samples carry another number: a stated build is taken to have every name there ever was.
    taken = {text: held[-1][1] for text, held in known.owners.items()} if engine == "llama.cpp" and release else known.at(release)
    for text, option in taken.items():
        found[text] = (option, text in option.negative)
    if engine == "vllm":
        for text, (option, _) in list(found.items()):
            if option.kind == "bool" and text.startswith("--"):
                found.setdefault("--no-" + text[2:], (option, True))
        if not release or version(release) >= version(ENABLE_DISABLE_SINCE):
            for text, (option, negated) in list(found.items()):
                if option.kind == "bool" and text.startswith("--enable-") and not negated:
                    found.setdefault("--disable-" + text[len("--enable-") :], (option, True))
    return found


def match(engine: str, release: str, written: str) -> Match:
    """What a flag stands for. Its verdict is COUNTED where the release takes it; roles are looked at later."""
    names = names_of(engine, release)
    found = _found(engine, names, written)
    options = {name: names[name][0] for name in found}
    if found and one_option(options, found) is not None and len({names[name][1] for name in found}) == 1:
        option, negated = names[found[0]]
        if option.removed and not release:
            return Match(option, negated, REMOVED, "the newest release refuses it", found[0])
        return Match(option, negated, name=found[0])
    known = table(engine)
    if found:
        return _ambiguous(known, engine, release, written, found)
    return _gone(known, engine, release, written)


def _found(engine: str, names: Mapping[str, tuple[Option, bool]], written: str) -> list[str]:
    if engine == "llama.cpp":  # no abbreviations there
        return [written] if written in names else []
    return matches({name: option for name, (option, _) in names.items()}, written)


def _ambiguous(known: Table, engine: str, release: str, written: str, found: list[str]) -> Match:
    shown = ", ".join(found[:4]) + (" …" if len(found) > 4 else "")
    note = f"{release or known.releases[-1]} refuses it: it may stand for {shown}"
    older = _older(known, engine, release, written)
    if older:
        note += f"; up to {older[1]} it stood for {older[2]}"
    return Match(older[0] if older else None, False, AMBIGUOUS, note, older[2] if older else written)


def _gone(known: Table, engine: str, release: str, written: str) -> Match:
    """No name of this release: one of another, or of none."""
    ever = known.ever(written)
    if ever is not None:
        name, option = ever
        if release and name.after and version(release) <= version(name.after):
            return Match(option, written in option.negative, REMOVED, f"not in {release} yet: it came in {name.since}", written)
        return Match(option, written in option.negative, REMOVED, f"gone since {name.gone}", written)
    older = _older(known, engine, release, written)
    if older:
        return Match(older[0], False, REMOVED, f"gone; up to {older[1]} it stood for {older[2]}", older[2])
    glued = re.fullmatch(r"(--?[a-zA-Z][\w-]*?)-?(\d[\w.]*)", written)
    if glued and known.ever(glued.group(1)):
        return Match(None, False, UNKNOWN, f"no such option: a blank is missing, {glued.group(1)} {glued.group(2)}")
    near = known.near(written)
    return Match(None, False, UNKNOWN, f"no such option; the nearest is {near}" if near else "no such option")


def _older(known: Table, engine: str, release: str, written: str) -> tuple[Option, str, str] | None:
    """The newest release before this one that takes the flag for one option."""
    if engine == "llama.cpp" or not written.startswith("--"):
        return None
    for before in reversed(known.releases):
        if release and version(before) >= version(release):
            continue
        names = names_of(engine, before)
        found = _found(engine, names, written)
        option = one_option({name: names[name][0] for name in found}, found)
        if option is not None:
            return option, before, found[0]
    return None
