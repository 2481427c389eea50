"""Every row of the table of architectures has a fixture, and gives what is pinned.

The pins show that a change elsewhere leaves a type alone. That the figures are right is shown beside: by published files
(``test_published``), by worked ones (``test_remote``) and by what the library itself allocates (``tests/engines``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mutants import SAME_EITHER_WAY, Mutant, mutants, own_rule, pinned, turned_plain

from kvcalc.architectures.base import Architecture
from kvcalc.architectures.lookup import find_architecture
from kvcalc.architectures.table import ARCHITECTURES
from kvcalc.core.fields import MAX_LAYERS, Field, Fields
from kvcalc.core.layers import kind_of, runs
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines.exact import ENGINE
from kvcalc.errors import ArchitectureError, KvcalcError
from kvcalc.readers.hf_config import model_of

DATA = Path(__file__).parents[1] / "data"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (DATA / name).read_text("utf-8").splitlines()]


ROWS: dict[str, dict[str, Any]] = {row["type"]: row for row in lines("architectures.jsonl")}
SHOWN = lines("architectures_shown.jsonl")  # further configs, in which all that a rule does can be seen
BF16 = find_dtype("bf16")


def test_every_row_has_a_fixture() -> None:
    """Write one with ``tests/tools/pin_architectures.py``."""
    assert set(ARCHITECTURES) - ROWS.keys() == set()
    assert ROWS.keys() - set(ARCHITECTURES) == set()


@pytest.mark.parametrize("name", ROWS)
def test_a_row_gives_what_is_pinned(name: str) -> None:
    row = ROWS[name]
    model = model_of(row["config"], "config.json", name)
    tally = ENGINE.allocate(model, Request(tokens=4096, k_dtype=BF16, v_dtype=BF16, encoder_tokens=100))
    assert " ".join(f"{count}x{kind_of(layer)}" for _, count, layer in runs(model.layers)) == row["layers"]
    split = tally.component_bytes()
    assert [split["kv"], split["index"], split["state"], split["other"]] == [*row["bytes"], 0]
    assert tally.total_bytes > 0


@pytest.mark.parametrize("row", SHOWN, ids=[row["type"] for row in SHOWN])
def test_what_a_rule_does_is_pinned(row: dict[str, Any]) -> None:
    assert pinned(row["type"], row["config"]) == {"layers": row["layers"], "bytes": row["bytes"]}


PINS: dict[str, list[dict[str, Any]]] = {name: [] for name in ROWS}
for _row in (*ROWS.values(), *SHOWN):
    PINS[_row["type"]].append(_row)


def notices(mutant: Mutant, names: list[str]) -> bool:
    with mutant.made():
        return any(
            pinned(name, pin["config"]) != {k: pin[k] for k in ("layers", "bytes")} for name in names for pin in PINS[name]
        )


OF_RULES: dict[int, list[str]] = {}
for _name, _architecture in ARCHITECTURES.items():
    OF_RULES.setdefault(id(_architecture.rule), []).append(_name)


@pytest.mark.parametrize("names", OF_RULES.values(), ids=[names[0] for names in OF_RULES.values()])
def test_each_thing_that_a_rule_does_shows(names: list[str]) -> None:
    """A period, an offset, a pattern or a builder that is changed changes a pin: ``tests/tools/show_architectures.py``."""
    changes = [mutant for mutant in mutants(ARCHITECTURES[names[0]].rule) if (names[0], mutant.what) not in SAME_EITHER_WAY]
    assert [mutant.what for mutant in changes if not notices(mutant, names)] == []


def test_no_row_passes_for_a_plain_one() -> None:
    assert [name for name in ARCHITECTURES if own_rule(name) and not notices(turned_plain(name), [name])] == []


HOSTILE: list[object] = [-1, 0, 2**40, 10**30, "8", True, float("nan"), [], [1, -1], {"a": 1}]
ONE_A_RULE = list({id(row.rule): name for name, row in ARCHITECTURES.items()}.values())


def taken(name: str, overrides: dict[str, Field]) -> tuple[Model, int] | None:
    """The model with some fields changed and its bytes, or None where that is refused."""
    try:
        model = model_of(ROWS[name]["config"], "config.json", name, overrides)
        return model, ENGINE.allocate(model, Request(tokens=10, encoder_tokens=10)).total_bytes
    except KvcalcError:
        return None


@pytest.mark.parametrize("name", ONE_A_RULE)
def test_no_bad_value_of_any_field_that_a_rule_reads_breaks_it(name: str) -> None:
    whole = taken(name, {})
    assert whole is not None
    for key in whole[0].fields.used:
        for value in HOSTILE:
            found = taken(name, {key: Field(value, f"flag --set {key}")})
            assert found is None or (found[1] >= 0 and len(found[0].layers) <= 2 * MAX_LAYERS), (key, value)


def test_an_unknown_type_names_its_relatives() -> None:
    with pytest.raises(ArchitectureError) as caught:
        find_architecture("qwen3_mo", "config.json")
    assert "qwen3_moe" in caught.value.fix
    assert caught.value.where == "config.json"


def test_a_row_s_constants_stand_whatever_the_file_says() -> None:
    from kvcalc.architectures.lookup import neutral_fields
    from kvcalc.architectures.rules import decoder

    row = Architecture(decoder(), aliases={"num_layers": ("depth",)}, constants={"head_dim": 7})
    fields = neutral_fields({"depth": 3, "head_dim": 9, "num_layers": 5}, row, "none", {}, "config.json: ", "config.json")
    assert (fields.int("num_layers"), fields.origin("num_layers")) == (3, "config.json: depth")
    assert (fields.int("head_dim"), fields.origin("head_dim")) == (7, "fixed by the model's code")


def test_a_row_that_means_something_else_by_a_key_hides_it() -> None:
    from kvcalc.architectures.lookup import neutral_fields

    row = Architecture(lambda _: (), aliases={"head_dim": ("own_width",)})
    assert "head_dim" not in neutral_fields({"head_dim": 9}, row, "none", {}, "", "config.json")


def test_rules_look_at_fields_alone() -> None:
    for name, row in ARCHITECTURES.items():
        try:
            row.rule(Fields({}, "config.json"))
        except KvcalcError:
            continue
        pytest.fail(f"{name} gives layers of nothing")
