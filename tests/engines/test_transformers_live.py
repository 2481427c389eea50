"""Every model type that the installed transformers can be built with, against the prediction: bytes, layers, storages.

    python -m pytest -m engines tests/engines/test_transformers_live.py

Models are built from small configs on the meta device, one at a time. A new release of the library is taken in by
running this beside ``tests/tools/generate_class_defaults.py``.
"""

from __future__ import annotations

import gc
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from transformers_live_cases import PROMPT_ONLY, UNBUILT, VARIANTS, Config, small

from kvcalc.architectures.class_defaults import CLASS_DEFAULTS
from kvcalc.core.model import Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines.transformers.engine import ENGINE
from kvcalc.engines.transformers.releases import MEASURED
from kvcalc.engines.transformers.types import NO_STATIC
from kvcalc.errors import EngineError, KvcalcError
from kvcalc.readers.hf_config import model_of
from kvcalc.readers.presets import read_preset, shipped_folder

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers isn't installed"),
    pytest.mark.filterwarnings("default"),
]
TOKENS, ENCODER_TOKENS, CAPACITY = 20, 8, 32
BUILT = sorted(set(CLASS_DEFAULTS) - set(UNBUILT))
CASES = [pytest.param(small(name), id=name) for name in BUILT]
CASES += [pytest.param(config, id=f"{config['model_type']}-{index}") for index, config in enumerate(VARIANTS)]


def asked(config: Config, **options: int | str) -> Any:
    """The prediction for ``config``. Raises EngineError where this release has no such model."""
    model = model_of(config, "config.json", "m")
    release = import_module("transformers").__version__
    texts = [f"{name.replace('_', '-')}={value}" for name, value in {**options, "release": release}.items()]
    size = find_dtype("bfloat16")
    request = Request(1, TOKENS, size, size, ENCODER_TOKENS, options=ENGINE.parse_options(texts))
    return ENGINE.allocate(model, request)


def differences(config: Config, prompt: int, capacity: int | None = None) -> list[str]:
    """What differs between the library's cache and the prediction."""
    from kvcalc.verify.against.transformers_cache import Ask, config_of, measure

    options: dict[str, int | str] = {"prompt_tokens": prompt}
    if capacity is not None:
        options |= {"cache": "static", "max_cache_len": capacity}
    found = measure(config_of(config), Ask(1, TOKENS, "bfloat16", prompt, ENCODER_TOKENS, capacity))
    tally = asked(config, **options)
    layers = [run.bytes_per_layer for run in tally.layers for _ in range(run.count)]
    told = []
    if tally.total_bytes != found.total:
        told.append(f"total {tally.total_bytes}, the library {found.total} ({found.cache_class} of {found.model_class})")
    if found.layers and not found.shared and not tally.shared and [found.layers.get(i, 0) for i in range(len(layers))] != layers:
        told.append(f"layers {layers}, the library {dict(found.layers)}")
    if tally.held_bytes != found.storage:
        told.append(f"held {tally.held_bytes}, the library {found.storage}")
    return told


def run(config: Config, prompt: int, capacity: int | None = None) -> None:
    """Equal, or skipped with the library's own words where it can't run this."""
    try:
        told = differences(config, prompt, capacity)
    except EngineError as problem:
        if "transformers" in problem.what:
            pytest.skip(problem.what[:200])
        raise
    finally:
        gc.collect()
    assert told == []


@pytest.mark.parametrize("config", CASES)
def test_a_prompt_and_a_step(config: Config) -> None:
    run(config, TOKENS if config["model_type"] in PROMPT_ONLY else TOKENS - 1)


@pytest.mark.slow
@pytest.mark.parametrize("config", CASES)
def test_a_prompt_alone(config: Config) -> None:
    run(config, TOKENS)


@pytest.mark.slow
@pytest.mark.parametrize("config", CASES)
def test_a_static_cache(config: Config) -> None:
    if config["model_type"] in NO_STATIC:
        with pytest.raises(EngineError, match="static"):
            asked(config, cache="static", max_cache_len=CAPACITY)
        return
    run(config, TOKENS, CAPACITY)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(shipped_folder().glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_preset(path: Path) -> None:
    """At full size: published files bend rules that a type's own defaults don't."""
    config = dict(read_preset(path).config)
    run(config, TOKENS if config.get("model_type") in PROMPT_ONLY else TOKENS - 1)


@pytest.mark.parametrize("name", sorted(UNBUILT))
def test_what_cannot_be_built_is_refused(name: str) -> None:
    """A type outside the suite has a reason, and no figure."""
    assert UNBUILT[name]
    with pytest.raises(KvcalcError):
        asked({"model_type": name})


def test_the_installed_release_is_one_that_was_measured() -> None:
    version = import_module("transformers").__version__
    assert version in MEASURED, f"transformers {version} is new here: generate the class defaults, read the diff, run this suite"
