"""A printed figure stands for every count that prints so."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.log_facts import Figure, Load, Setting, Statement

MIB = 2**20


def test_a_rounded_size_covers_half_a_last_digit_either_side() -> None:
    figure = Figure("3.19", MIB)
    assert figure.covers(3_342_336)  # 3.1875 MiB, which prints 3.19
    assert not figure.covers(3_331_000)
    assert not figure.exact
    assert (figure.low, figure.high) == (-(-3185 * MIB // 1000), 3195 * MIB // 1000)


def test_the_printed_number_is_kept_as_it_stands() -> None:
    assert Figure("3.1", MIB).exact_value == Fraction(31, 10) * MIB
    assert Figure("3.1", MIB).value == 3_250_585  # whole bytes


def test_a_count_covers_itself_alone() -> None:
    figure = Figure("1,048,576")
    assert figure.exact
    assert (figure.value, figure.low, figure.high) == (2**20, 2**20, 2**20)


def test_a_negative_size_covers_nothing_positive() -> None:
    assert not Figure("-0.50", MIB).covers(1)


@given(st.integers(0, 2**45), st.integers(0, 4))
def test_what_prints_so_is_covered(count: int, decimals: int) -> None:
    assert Figure(f"{count / MIB:.{decimals}f}", MIB).covers(count)


def test_a_statement_hands_out_figures_counts_and_words_by_name() -> None:
    statement = Statement("blocks", 3, "line", {"tokens": Figure("1,024"), "device": "cuda:0"})
    assert statement.figure("tokens") == Figure("1,024")
    assert statement.figure("device") is None
    assert statement.count("tokens") == 1024
    assert statement.count("missing") is None
    assert statement.word("device") == "cuda:0"
    assert statement.word("tokens") == ""


def test_a_load_finds_settings_and_statements() -> None:
    load = Load("vllm", 1, settings={"b": Setting("2", 4)})
    load.statements += [Statement("x", 1, "", {}), Statement("y", 2, "", {}), Statement("x", 3, "", {})]
    assert load.setting("a", "b") == "2"
    assert load.setting("a") is None
    assert [each.line for each in load.of_kind("x")] == [1, 3]
