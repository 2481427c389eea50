"""The cells of a sweep: what fits is what fit and estimate say, and a refused cell doesn't take the others with it."""

from __future__ import annotations

import pytest

from kvcalc.core.model import OptionValue, Request
from kvcalc.engines import ENGINES, find_engine
from kvcalc.engines.fit import BOTH, Memory, fit
from kvcalc.engines.sweep import Cell, Grid, Refused, cells
from kvcalc.errors import EngineError, KvcalcError, UsageError
from kvcalc.readers.presets import preset_model

KINDS = ("qwen3-0.6b", "gemma-3-270m", "deepseek-v2-lite", "qwen3.5-0.8b", "gpt-oss-20b", "whisper-tiny", "opt-125m")


def grid(engine: str, kinds: tuple[str, ...], lengths: tuple[int, ...], memory: int | None = None, **more: object) -> Grid:
    """A grid of one type and the batches 1 and 3."""
    request = Request(**more)  # type: ignore[arg-type]
    models = tuple(preset_model(kind) for kind in kinds)
    return Grid(models, ((None, None),), (1, 3), lambda: lengths, find_engine(engine), request, memory)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine_name", ENGINES)
def test_what_fits_is_what_fit_says(engine_name: str, kind: str) -> None:
    """At the bytes that a cell needs, and one less: the same yes and no as fit's, and as the engine's own verdict."""
    engine, model, lengths = find_engine(engine_name), preset_model(kind), (100, 440)
    for cell in cells(grid(engine_name, (kind,), lengths, memory=2**50)):
        asked = Request(tokens=cell.tokens, batch_size=cell.batch_size)
        if isinstance(cell, Refused):
            with pytest.raises(KvcalcError):
                fit(engine, model, asked, Memory(2**50), BOTH)
            continue
        assert cell.needed_bytes is not None
        assert cell.total_bytes is not None
        assert cell.needed_bytes >= cell.total_bytes
        for budget in (cell.needed_bytes, cell.needed_bytes - 1):
            again = next(same for same in cells(grid(engine_name, (kind,), (cell.tokens,), memory=budget)) if same[3] == cell[3])
            assert again.fits is (budget == cell.needed_bytes)
            assert fit(engine, model, asked, Memory(budget), BOTH).fits is again.fits
            if "available-bytes" in engine.memory.named_by and cell.batch_size == 1:
                own = engine.allocate(model, Request(tokens=cell.tokens, options={"available-bytes": budget}))
                # SGLang's buffers have a page beyond the memory that it divides: its own verdict is no stricter
                assert own.fits is again.fits or (engine_name == "sglang" and own.fits)


def test_a_refused_cell_stands_among_the_others() -> None:
    """vLLM serves opt-125m at 2,048 tokens and no more; the other model and the shorter length are counted."""
    found = list(cells(grid("vllm", ("opt-125m", "qwen3-0.6b"), (2048, 4096))))
    assert [cell.total_bytes is None for cell in found] == [False, True, False, True, False, False, False, False]
    refused = [cell for cell in found if isinstance(cell, Refused)]
    assert [(cell.model, cell.batch_size, cell.tokens) for cell in refused] == [("opt-125m", 1, 4096), ("opt-125m", 3, 4096)]
    assert all(isinstance(cell.problem, EngineError) and "2,048" in cell.problem.what for cell in refused)


def test_a_model_that_is_refused_at_any_length() -> None:
    """TensorRT-LLM's recurrent layers are not modelled: every cell of that model says so."""
    found = list(cells(grid("tensorrt-llm", ("mamba-130m", "qwen3-0.6b"), (64,))))
    assert [isinstance(cell, Refused) for cell in found] == [True, True, False, False]


@pytest.mark.parametrize(("engine_name", "option"), [("sglang", "max-total-tokens"), ("tensorrt-llm", "max-tokens")])
@pytest.mark.parametrize("memory", [None, 2**40])
def test_a_pool_that_an_option_bounds(engine_name: str, option: str, memory: int | None) -> None:
    """256 tokens: one sequence of 128 or 256 fits, three of 64, none of 257."""
    options: dict[str, OptionValue] = {option: 256}
    found = cells(grid(engine_name, ("qwen3-0.6b",), (64, 128, 256, 257), memory, options=options))
    assert [cell.fits for cell in found] == [True, True, True, False, True, False, False, False]


def test_the_memory_is_named_once() -> None:
    with pytest.raises(UsageError, match="--memory"):
        list(cells(grid("vllm", ("qwen3-0.6b",), (64,), 2**30, options={"available-bytes": 2**30})))


def test_a_refused_cell_has_the_columns_of_every_cell() -> None:
    (refused, _) = cells(grid("vllm", ("opt-125m",), (4096,)))
    assert len(refused) == len(Cell._fields)
