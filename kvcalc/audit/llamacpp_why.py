"""Why a llama.cpp figure differs. A line that names its type, its layers or its cells is not contradicted."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.audit.explain import Guess, common_guesses, dtype_guesses, explain, layer_guesses
from kvcalc.audit.kept import Kept
from kvcalc.audit.llamacpp_rules import Expected
from kvcalc.core.log_facts import Figure, Statement
from kvcalc.dtypes import find_dtype

PARTS_NAMED = "the parts are rounded one by one"


def layers_why(counted: int | None, expected: Expected, kept: tuple[Kept, ...]) -> str:
    """Why a line counts other layers."""
    predicted = expected.layers or 0
    guess = explain(counted or 0, counted or 0, predicted, layer_guesses(predicted, kept)) if predicted else ""
    return guess or f"the line counts {counted} layers, the model keeps {predicted}: another model, or layers that keep no cache"


def sizes_why(statement: Statement, side: str, figure: Figure, expected: Expected, kept: tuple[Kept, ...]) -> str:
    """Why keys or values take another size."""
    predicted = (expected.keys if side == "k" else expected.values) or 0
    chosen = expected.kept or tuple(each for each in kept if not each.draft)
    counted = statement.count("layers")
    if expected.layers is not None and counted not in (None, expected.layers):  # equal numbers explain nothing
        return layers_why(counted, expected, kept)
    if side == "v" and chosen and all(each.latent for each in chosen):
        return "this release keeps values besides the latent, as llama.cpp did up to b7698: name it with -o release"
    guesses = _widest(side, chosen, kept) + common_guesses()
    if not statement.word(f"{side}_type") and chosen:
        guesses += dtype_guesses(find_dtype("f16"), chosen[0].keys if side == "k" else chosen[0].values)
    return explain(figure.low, figure.high, predicted, guesses) or other_model(figure, predicted)


def _widest(side: str, chosen: tuple[Kept, ...], kept: tuple[Kept, ...]) -> list[Guess]:
    total = sum(each.values for each in chosen)
    if side != "v" or not total:
        return []
    widest = max(each.values for each in kept)
    words = "without flash attention every layer's values are as wide as the widest layer's"
    return [Guess(Fraction(widest * len(chosen), total), words)]


def other_model(figure: Figure, predicted: int) -> str:
    """What is left to say."""
    if not predicted:
        return "the model keeps nothing here: another model"
    ratio = figure.value / predicted
    return f"another model, or settings that the log doesn't state: the line is {ratio:.3g} times the prediction"
