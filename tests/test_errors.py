"""The exception tree and the exit codes that it ends in."""

from __future__ import annotations

import pytest

from kvcalc import errors
from kvcalc.errors import ExitCode, KvcalcError

CODES = {
    "UsageError": (2, "usage"),
    "InputError": (3, "input"),
    "PresetError": (3, "preset"),
    "ConfigError": (3, "config"),
    "GgufError": (3, "gguf"),
    "LogError": (3, "log"),
    "UnsupportedError": (4, "unsupported"),
    "ArchitectureError": (4, "architecture"),
    "EngineError": (4, "engine"),
    "DtypeError": (4, "dtype"),
    "UnavailableError": (5, "unavailable"),
    "MissingExtraError": (5, "missing-extra"),
    "HubError": (5, "hub"),
    "DeviceError": (5, "device"),
    "OutputError": (5, "output"),
}


def test_every_error_is_in_this_table_and_in_the_tree_that_the_module_draws() -> None:
    found = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, KvcalcError)}
    assert found - {"KvcalcError"} == CODES.keys()
    assert all(name in (errors.__doc__ or "") for name in found)


@pytest.mark.parametrize("name", CODES)
def test_the_code_of(name: str) -> None:
    kind = getattr(errors, name)
    assert (int(kind.exit_code), kind.code) == CODES[name]


def test_codes_of_errors_are_unlike() -> None:
    words = [code for _, code in CODES.values()]
    assert len(set(words)) == len(words)


def test_the_exit_codes() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0,
        "NO": 1,
        "USAGE": 2,
        "INPUT": 3,
        "UNSUPPORTED": 4,
        "UNAVAILABLE": 5,
        "BUG": 70,
    }


def test_a_message_has_what_where_and_fix() -> None:
    assert str(KvcalcError("what", "where", "fix")) == "what\n  at: where\n  fix: fix"


@pytest.mark.parametrize(("parts", "expected"), [(("what",), "what"), (("what", "", "fix"), "what\n  fix: fix")])
def test_parts_that_are_not_known_leave_no_empty_line(parts: tuple[str, ...], expected: str) -> None:
    assert str(KvcalcError(*parts)) == expected
