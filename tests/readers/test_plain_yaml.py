"""The plainest YAML is read as the library reads it, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.readers.plain_yaml import block_of
from kvcalc.readers.presets import shipped_folder

PRESETS = sorted(shipped_folder().glob("*.yaml"))


def test_every_shipped_preset_reads_as_the_library_reads_it() -> None:
    read = 0
    for path in PRESETS:
        text = path.read_text(encoding="utf-8")
        found = block_of(text, "config")
        read += found is not None
        assert found in (None, yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["config"])
    assert read > len(PRESETS) // 4  # llama-8b among them: the fast way is taken
    assert block_of((shipped_folder() / "llama-8b.yaml").read_text(encoding="utf-8"), "config") is not None


SCALARS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.text(st.characters(codec="ascii", exclude_characters="\n\r"), min_size=1, max_size=12),
    st.sampled_from(
        ["yes", "NO", "Off", "~", "null", "Null", "1:30", "020", "0x10", "1_000", ".inf", "1e5", "2.0", "-0", "=", "<<"]
    ),
)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), SCALARS), min_size=1, max_size=4))
def test_a_block_is_the_librarys_or_left_to_it(lines: list[tuple[str, str]]) -> None:
    text = "name: x\nconfig:\n" + "".join(f"  {key}: {value}\n" for key, value in lines)
    found = block_of(text, "config")
    if found is not None:
        expected: Any = yaml.safe_load(text)["config"]
        assert found == expected
        assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "config:\n",
        "\nconfig:\n",
        "\nconfig:\n  a: 1\nnext: 2\n",
        "\nconfig:\n  a:\n    b: 1\n",
        "\nconfig:\n  a: 1\n  a: 2\n",
    ],
)
def test_what_is_not_plain_is_left_to_the_library(text: str) -> None:
    assert block_of(text, "config") is None
