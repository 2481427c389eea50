"""How far a right answer may be from the reference: bounds from the types and the number of terms, nothing tuned.

Caches are read into float32 and attention is computed in float32, so u = 2^-24 (half a unit in the last place).
A sum or chain of n roundings is off by at most gamma(n) = n·u / (1 - n·u) times the sum of its terms' magnitudes
(Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
"""

from __future__ import annotations

import math

UNIT = 2.0**-24  # float32
UNITS = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}

ATTENTION_RULE = (
    "max|v|·(exp(2d) - 1 + 2·gamma(m) + 6u) with d = (gamma(D) + 4u)·scale·max|q|·max|k|: "
    "a score of D terms is off by d, a softmax over m positions and its sum over values by gamma(m) each, u = 2^-24"
)


def gamma(terms: float, unit: float = UNIT) -> float:
    """n·u / (1 - n·u), and infinity where that bound says nothing."""
    share = terms * unit
    return share / (1 - share) if share < 1 else float("inf")


def score_error(width: int, query_norm: float, key_norm: float, scale: float, extra: float = 0.0) -> float:
    """How far a score q·k·scale may be off: its sum, the scaling and the exponential's argument.

    ``extra`` is the relative error that the keys themselves carry.
    """
    return (gamma(width) + 4 * UNIT + extra) * scale * query_norm * key_norm


def attention_tolerance(score: float, positions: int, value_limit: float, value_error: float = 0.0) -> float:
    """How far an output may be off when each score is off by ``score``: see ``ATTENTION_RULE``."""
    growth = math.expm1(2 * score) if score < 300 else math.inf
    return value_limit * (growth + 2 * gamma(positions) + 6 * UNIT) + value_error
