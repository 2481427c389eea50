"""``@value``: what a frozen dataclass promises holds here too."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, field, fields, replace

import pytest

from kvcalc.values import value


@value
class Point:
    x: int
    y: int = 0
    more: dict[str, int] = field(default_factory=dict)


@value
class Other:
    x: int
    y: int = 0


@value
class Named:
    x: int

    def __repr__(self) -> str:
        return f"<{self.x}>"


def test_equal_by_value_and_type() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(2, 1)
    others: list[object] = [Other(1), Named(1), 1]
    assert [other for other in others if other == Point(1)] == []


def test_hashed_by_value() -> None:
    assert {Other(1, 2): "a"}[Other(1, 2)] == "a"
    assert hash(Other(1, 2)) != hash(Other(2, 1))


def test_nothing_can_be_changed_or_taken_away() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="x"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="x"):
        del point.x
    assert point == Point(1)


def test_shown_with_its_fields_unless_it_shows_itself() -> None:
    assert repr(Other(1, 2)) == "Other(x=1, y=2)"
    assert repr(Named(3)) == "<3>"


def test_works_with_replace_fields_and_match() -> None:
    assert replace(Other(1, 2), y=5) == Other(1, 5)
    assert [each.name for each in fields(Other)] == ["x", "y"]
    match Other(1, 2):
        case Other(x, y):
            assert (x, y) == (1, 2)


def test_defaults_are_made_anew() -> None:
    assert Point(1).more is not Point(1).more


@pytest.mark.parametrize(
    ("given", "named", "problem"),
    [
        ((1, 2, 3), {}, "takes 2 values, 3 were given"),
        ((1,), {"x": 2}, "got 'x' twice"),
        ((), {"y": 2}, "lacks 'x'"),
        ((1,), {"z": 2}, "has no 'z'"),
    ],
)
def test_made_with_other_values_than_its_fields(given: tuple[int, ...], named: dict[str, int], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        Other(*given, **named)


def test_no_field_can_be_added() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="new"):
        point.new = 1  # type: ignore[attr-defined]
