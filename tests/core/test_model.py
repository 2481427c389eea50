"""Requests and tallies: what adds up to what."""

from __future__ import annotations

from kvcalc.core.fields import Fields
from kvcalc.core.layers import FullAttention
from kvcalc.core.model import COMPONENTS, Array, LayerTally, Model, Request, Tally

LAYER = (FullAttention(8, 128, 128),)
KEYS = Array("kv", "keys", rows=10, row_bytes=2048)
STATE = Array("state", "conv", rows=1, row_bytes=96)
PAD = Array("other", "block table", rows=3, row_bytes=4)


def run(count: int, *arrays: Array) -> LayerTally:
    return LayerTally(0, count, LAYER, "full_attention", arrays)


def test_sequences_of_one_length() -> None:
    assert Request(batch_size=3, tokens=7).sequences == ((7, 3),)


def test_no_length_counts_nothing() -> None:
    assert Request().sequences == ((0, 1),)


def test_sequences_of_several_lengths_are_counted_once_each() -> None:
    assert Request(lengths=(5, 9, 5)).sequences == ((5, 2), (9, 1))


def test_the_same_request_at_another_length() -> None:
    request = Request(batch_size=4, tokens=1)
    assert (request.at(99).tokens, request.at(99).batch_size, request.tokens) == (99, 4, 1)


def test_an_array_is_rows_times_bytes_a_row() -> None:
    assert KEYS.bytes == 10 * 2048


def test_a_run_is_count_times_its_arrays() -> None:
    found = run(3, KEYS, STATE)
    assert found.bytes_per_layer == 10 * 2048 + 96
    assert found.bytes == 3 * (10 * 2048 + 96)


def test_a_total_is_its_runs_and_what_belongs_to_no_layer() -> None:
    tally = Tally((run(3, KEYS, STATE), run(2, KEYS)), shared=(PAD,))
    assert tally.total_bytes == 3 * (20480 + 96) + 2 * 20480 + 12
    assert tally.component_bytes() == {"kv": 5 * 20480, "index": 0, "state": 3 * 96, "other": 12}
    assert tuple(tally.component_bytes()) == COMPONENTS


def test_an_empty_tally_is_nothing_that_fits() -> None:
    tally = Tally(())
    assert (tally.total_bytes, tally.fits, tally.refusal) == (0, True, "")


def test_a_model_has_only_what_is_known() -> None:
    model = Model("m", "llama", (LAYER,), Fields({}))
    assert (model.max_tokens, model.dtype, model.draft_layers, model.metadata) == (None, None, (), {})
