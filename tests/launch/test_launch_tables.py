"""The tables of options: whole, and read as Python's own argparse would read them."""

from __future__ import annotations

import argparse
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.launch.names import match, names_of
from kvcalc.launch.roles import names
from kvcalc.launch.tables import table, version
from kvcalc.launch.values import AMBIGUOUS, COUNTED

TABLES = ("vllm", "sglang", "llama.cpp", "tensorrt-llm", "lmdeploy", "mlx-lm", "mlx-lm.generate")
KINDS = {"switch", "bool", "int", "size", "float", "json", "text", "list", "maybe"}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_whole(name: str) -> None:
    found = table(name)
    releases = [version(release) for release in found.releases]
    assert releases == sorted(releases)
    for option in found.options.values():
        assert option.kind in KINDS
        assert option.names
        for spelled in option.names:
            assert re.fullmatch(r"--?[A-Za-z][\w.-]*", spelled.text)
            assert {spelled.since, spelled.gone} <= {"", *found.releases}
            assert not spelled.gone or version(spelled.since or "0") < version(spelled.gone)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_decides_is_an_option_of_some_release(engine: str) -> None:
    keys = {key.replace("_", "-") for key in table(engine).options} | {name.lstrip("-") for name in table(engine).owners}
    assert len(names(engine) - keys) <= 12  # a few are names of forks, or of another engine's release


REFUSED = (
    *("--no-such-option", "--tp_size", "--speculative-draft", "--context", "--pp", "--cuda-graph-max-bs"),
    *("--max-prefill-num-token", "--mamba-scheduler-strategy", "--enable-ep-moe", "--nsa-decode-backend"),
)
TAKEN = {"--tp": "tp_size", "--dp": "dp_size", "--mem-frac": "mem_fraction_static", "--max-prefill": "max_prefill_tokens"}


@pytest.mark.parametrize("flag", REFUSED)
def test_what_sglang_refuses(flag: str) -> None:
    assert match("sglang", "0.5.23", flag).verdict != COUNTED


@pytest.mark.parametrize("flag", TAKEN)
def test_what_sglang_takes(flag: str) -> None:
    found = match("sglang", "0.5.23", flag)
    assert (found.verdict, found.option and found.option.key) == (COUNTED, TAKEN[flag])


def real(engine: str) -> argparse.ArgumentParser:
    """A parser with these very names."""
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    groups: dict[str, list[str]] = {}
    for name, (option, negated) in names_of(engine, "").items():
        groups.setdefault(f"{option.key} {negated}", []).append(name)
    for dest, spelled in groups.items():
        parser.add_argument(*spelled, dest=dest, action="store_true")
    return parser


PARSERS = {engine: real(engine) for engine in ("vllm", "sglang", "lmdeploy", "mlx-lm")}


@given(st.data(), st.sampled_from(sorted(PARSERS)))
def test_an_abbreviation_is_read_as_argparse_reads_it(data: st.DataObject, engine: str) -> None:
    name = data.draw(st.sampled_from(sorted(name for name in names_of(engine, "") if name.startswith("--"))))
    written = name[: data.draw(st.integers(3, len(name)))]
    tuples = PARSERS[engine]._get_option_tuples(written)
    exact = written in names_of(engine, "")
    dests = {entry[0].dest for entry in tuples}
    found = match(engine, "", written)
    expected = COUNTED if exact or len(dests) == 1 else AMBIGUOUS
    assert found.verdict == expected
    if expected == COUNTED and not exact:
        assert found.option is not None
        assert dests == {f"{found.option.key} {found.negated}"}


def test_a_release_between_two_samples_is_not_said_to_lack_a_name() -> None:
    # --kv-transfer-config is in the sample of 0.6.6, and not in that of 0.6.3: what 0.6.4 has was not looked at
    assert match("vllm", "0.6.3", "--kv-transfer-config").verdict != COUNTED
    assert match("vllm", "0.6.4", "--kv-transfer-config").verdict == COUNTED
    # --swap-space is in the sample of 0.17.0, and not in that of 0.18.0
    assert match("vllm", "0.17.1", "--swap-space").verdict == COUNTED
    assert match("vllm", "0.18.0", "--swap-space").verdict != COUNTED
