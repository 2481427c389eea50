"""Fields check what they hand out, and remember what was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.fields import MAX_FIELD, MAX_LAYERS, Field, Fields
from kvcalc.errors import ConfigError

FILE = "config.json"


def made(**values: object) -> Fields:
    return Fields({name: Field(value, f"{FILE}: {name}") for name, value in values.items()}, FILE)


def test_a_mapping_that_remembers_what_was_read() -> None:
    fields = made(a=1, b=None)
    assert list(fields) == ["a", "b"]
    assert len(fields) == 2
    assert "b" in fields
    assert "c" not in fields
    assert fields.used == {}
    assert fields["a"].value == 1
    assert fields.raw("b") is None
    assert fields.raw("c") is None
    assert fields.used.keys() == {"a", "b"}


def test_an_origin_is_told_without_being_read() -> None:
    fields = made(a=1)
    assert fields.origin("a") == "config.json: a"
    assert fields.origin("missing") == ""
    assert fields.at("missing") == "config.json: missing"
    assert fields.used == {}


def test_other_values_stand_in_a_copy() -> None:
    fields = made(a=1)
    other = fields.with_values({"a": Field(2, "flag --a"), "b": Field(3, "flag --b")})
    assert (other.int("a"), other.int("b"), fields.int("a")) == (2, 3, 1)
    assert other.where == FILE


@pytest.mark.parametrize("value", [1, 128, MAX_FIELD, 128.0], ids=repr)
def test_an_integer(value: object) -> None:
    found = made(n=value).int("n")
    assert found == value
    assert type(found) is int


BAD = [True, False, "8", 1.5, float("nan"), float("inf"), 1e30, [], {}, [8], -1, 0, MAX_FIELD + 1, 10**30, 10**5000]


@pytest.mark.parametrize("value", BAD, ids=lambda value: f"{value!r:.20}" if value is not BAD[-1] else "10^5000")
def test_what_is_no_integer_is_refused_with_file_and_key(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        made(n=value).int("n")
    assert caught.value.what.startswith("n ")
    assert caught.value.where == "config.json: n"
    assert len(str(caught.value)) < 200


def test_a_missing_integer_names_the_flag_that_gives_it() -> None:
    with pytest.raises(ConfigError, match="num_kv_heads is missing") as caught:
        made().int("num_kv_heads")
    assert "--kv-heads" in caught.value.fix
    with pytest.raises(ConfigError) as caught:
        made().int("kv_lora_rank")
    assert "complete file" in caught.value.fix


def test_null_and_missing_take_the_default() -> None:
    assert made(n=None).int("n", 7) == 7
    assert made().int("n", 7) == 7
    assert made(n=None).int_or_none("n") is None
    assert made(n=0).int("n", 7, minimum=0) == 0


def test_the_first_of_several_names() -> None:
    assert made(a=None, b=3, c=4).int_of(("a", "b", "c")) == 3
    assert made().int_of(("a", "b"), 5) == 5
    with pytest.raises(ConfigError, match="a is missing"):
        made().int_of(("a", "b"))


def test_a_flag() -> None:
    assert made(f=True).flag("f") is True
    assert made(f=None).flag("f", default=True) is True
    assert made().flag("f") is False
    with pytest.raises(ConfigError, match="true or false, not 1"):
        made(f=1).flag("f")


def test_a_text() -> None:
    assert made(t="x").text("t") == "x"
    assert made(t=None).text("t", "y") == "y"
    with pytest.raises(ConfigError, match="must be text"):
        made(t=5).text("t")


@pytest.mark.parametrize(("value", "expected"), [(2, 2), (0.5, 0.5), (None, 1.5)])
def test_a_factor(value: object, expected: float) -> None:
    assert made(x=value).number("x", 1.5) == expected


@pytest.mark.parametrize("value", [0, -1, True, "2", float("nan"), float("inf"), 10**30, []], ids=repr)
def test_what_is_no_factor(value: object) -> None:
    with pytest.raises(ConfigError, match="number above 0"):
        made(x=value).number("x", 1.0)


def test_words() -> None:
    assert made(w=["a", "b"]).texts("w") == ["a", "b"]
    assert made(w=None).texts("w") is None


@pytest.mark.parametrize("value", ["ab", 5, ["a", 1], {"a": 1}, ["a"] * (MAX_LAYERS + 1)], ids=lambda value: f"{value!r:.15}")
def test_what_is_no_list_of_words(value: object) -> None:
    with pytest.raises(ConfigError, match="list of words"):
        made(w=value).texts("w")


def test_integers() -> None:
    assert made(n=[0, 1, 2.0]).ints("n") == [0, 1, 2]
    assert made(n=None).ints("n") is None
    with pytest.raises(ConfigError, match=r"n\[1\] is 0, outside 1"):
        made(n=[1, 0]).ints("n", minimum=1)
    with pytest.raises(ConfigError, match=r"n\[0\] must be an integer") as caught:
        made(n=["1"]).ints("n")
    assert caught.value.where == "config.json: n"


@pytest.mark.parametrize("value", ["12", 5, {"a": 1}, [1] * (MAX_LAYERS + 1)], ids=lambda value: f"{value!r:.15}")
def test_what_is_no_list_of_integers(value: object) -> None:
    with pytest.raises(ConfigError, match="list of integers"):
        made(n=value).ints("n")


def test_one_integer_a_layer() -> None:
    assert made(n=[1, 2, 3]).per_layer("n", 2) == [1, 2]
    assert made(n=4).per_layer("n", 3) == [4, 4, 4]
    assert made().per_layer("n", 2, default=5) == [5, 5]
    with pytest.raises(ConfigError, match="1 entries for 2 layers"):
        made(n=[1]).per_layer("n", 2)
    with pytest.raises(ConfigError, match="0 entries for 1 layers"):
        made(n=[]).per_layer("n", 1)


def test_a_nested_object_knows_its_path() -> None:
    inner = made(o={"a": 5, "b": "x"}).mapping("o")
    assert inner.int("a") == 5
    with pytest.raises(ConfigError) as caught:
        inner.int("b")
    assert caught.value.where == "config.json: o.b"


@pytest.mark.parametrize("fields", [made(o=None), made()], ids=["null", "missing"])
def test_no_nested_object_is_an_empty_one(fields: Fields) -> None:
    assert len(fields.mapping("o")) == 0


@pytest.mark.parametrize("value", [5, [], "x", True], ids=repr)
def test_what_is_no_object(value: Any) -> None:
    with pytest.raises(ConfigError, match="must be an object"):
        made(o=value).mapping("o")
