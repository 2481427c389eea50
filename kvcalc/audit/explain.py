"""What a difference most likely is: each known slip as a factor, tried in the order in which they are met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from kvcalc.audit.kept import Kept
from kvcalc.dtypes import DTYPES, Dtype

RANKS = (2, 4, 8, 16)
MOST_GUESSES = 2


@dataclass(frozen=True, slots=True)
class Guess:
    """If the prediction times ``factor`` agrees, ``words`` explain the difference."""

    factor: Fraction
    words: str


def explain(low: int, high: int, predicted: int, guesses: Iterable[Guess]) -> str:
    """The likeliest guesses that turn ``predicted`` into something between ``low`` and ``high``, or an empty string."""
    return likeliest(guess.words for guess in guesses if guess.factor != 1 and low - 1 <= guess.factor * predicted <= high + 1)


def likeliest(words: Iterable[str]) -> str:
    """The first few of the explanations that fit, each once."""
    return "; or ".join(islice(dict.fromkeys(words), MOST_GUESSES))


def common_guesses() -> list[Guess]:
    """Ranks and units, which any engine's line may hide."""
    found = [
        Guess(Fraction(10**9, 2**30), "the line means decimal GB"),
        Guess(Fraction(2**30, 10**9), "the line means binary GiB where GB is read"),
        Guess(Fraction(10**6, 2**20), "the line means decimal MB"),
    ]
    for ranks in RANKS:
        split = f"the line is one of {ranks} ranks': name them with --tp {ranks}"
        found.append(Guess(Fraction(1, ranks), split))
        found.append(
            Guess(Fraction(ranks), f"the line is of {ranks} times as many heads: fewer ranks, or heads that aren't shared")
        )
    return found


def dtype_guesses(dtype: Dtype, elements: int) -> list[Guess]:
    """Another element type than the one that the line, or the request, names."""
    if not elements or elements % dtype.block_elements:
        return []
    own = dtype.row_bytes(elements)
    return [
        Guess(Fraction(other.row_bytes(elements), own), f"as if the type were {other.name}, not {dtype.name}")
        for other in DTYPES.values()
        if elements % other.block_elements == 0 and other.row_bytes(elements) != own
    ]


def layer_guesses(counted: int, kept: tuple[Kept, ...]) -> list[Guess]:
    """Other layers than those that were counted: all of them, the full ones alone, the draft layers too."""
    if not counted:
        return []
    main = [each for each in kept if not each.draft and each.kind != "index"]
    counts = {
        "every layer is counted, as if all kept the whole length": len(main),
        "only layers with full attention are counted": sum(each.kind == "full" for each in main),
        "only sliding layers are counted": sum(each.kind == "window" for each in main),
        "the draft layers are counted too: add --draft": len(main) + sum(each.draft for each in kept),
    }
    found = [Guess(Fraction(count, counted), words) for words, count in counts.items() if count]
    found += [
        Guess(Fraction(counted + extra, counted), f"{extra} more layer{'s' * (extra > 1)} kept: a draft or MTP head")
        for extra in (1, 2, 3)
    ]
    return found
