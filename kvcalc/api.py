"""The same as the command line, typed: ``from kvcalc import load_model, estimate``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from kvcalc.answers import Answer, audit, check, compare, engines, fit, gpus, inspect, presets, sweep
from kvcalc.core.fields import Field
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.engines import find_engine
from kvcalc.engines.estimate import Estimate
from kvcalc.engines.estimate import estimate as _estimate
from kvcalc.errors import UsageError
from kvcalc.units import MAX_COUNT, parse_count

__all__ = [
    "Answer",
    "EstimateAnswer",
    "audit",
    "check",
    "compare",
    "engines",
    "estimate",
    "fit",
    "gpus",
    "inspect",
    "load_model",
    "presets",
    "sweep",
]


class EstimateAnswer(Estimate):
    """An estimate that shows itself as the command line does."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON that ``kvcalc estimate --json`` prints."""
        from kvcalc.reports.to_json import estimate_document

        return json.loads(json.dumps(estimate_document(self)))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        from rich.console import Console

        from kvcalc.reports.to_table import estimate_view

        console = Console(file=io.StringIO(), width=100, highlight=False, emoji=False, markup=False)
        with console.capture() as captured:
            console.print(estimate_view(self, verbose=False))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def load_model(
    preset: str | None = None,
    *,
    config: Path | str | Mapping[str, object] | None = None,
    gguf: Path | str | None = None,
    hub: str | None = None,
    assume: str = "",
    presets_dir: Path | None = None,
    **fields: object,
) -> Model:
    """The model of a preset, a config.json (a path, its folder, or the parsed object), a GGUF file or a hub repository.

    Further keywords stand instead of the model's own neutral fields (``num_layers=2, num_kv_heads=2, head_dim=4``); with no
    model named they are the equation itself. Raises KvcalcError.
    """
    named = [value for value in (preset, config, gguf, hub) if value is not None]
    if len(named) > 1 or not (named or fields):
        raise UsageError("name one model", fix='load_model("llama-8b"), load_model(config=…) or load_model(num_layers=…, …)')
    overrides = {name: Field(value, f"argument {name}") for name, value in fields.items()}
    if preset is not None:
        from kvcalc.readers.presets import preset_model

        return preset_model(preset, presets_dir, overrides, assume)
    if gguf is not None:
        from kvcalc.readers.gguf_model import read_gguf_model

        return read_gguf_model(str(gguf), None, None, overrides, assume)
    if hub is not None:
        from kvcalc.readers.hub import read_hub

        return read_hub(hub, None, overrides, assume)
    return _from_config(config, overrides, assume)


def _from_config(config: Path | str | Mapping[str, object] | None, overrides: Mapping[str, Field], assume: str) -> Model:
    from kvcalc.readers.hf_config import model_of, read_config

    if config is None:
        return model_of({"model_type": "equation"}, "", "the equation", overrides, assume, "flags")
    if isinstance(config, Mapping):
        return model_of(config, "config", "config", overrides, assume)
    return read_config(Path(config), overrides, assume)


def estimate(
    model: Model | str | Path | Mapping[str, object],
    *,
    tokens: int | str | None = None,
    batch_size: int = 1,
    dtype: str | None = None,
    k_dtype: str | None = None,
    v_dtype: str | None = None,
    encoder_tokens: int | None = None,
    lengths: tuple[int, ...] = (),
    draft: bool = False,
    tp_size: int = 1,
    pp_size: int = 1,
    dp_size: int = 1,
    engine: str = "exact",
    options: Mapping[str, str] | None = None,
) -> EstimateAnswer:
    """Bytes of ``model``'s cache for a request, under ``engine``'s rules. Raises KvcalcError.

    A model is a ``Model``, or whatever the command line takes (a preset, a file or folder, ORG/NAME), or a config object; tokens
    are a number or written like ``"32k"``.
    ``options`` are the engine's own, as text under their own names. Unsaid, tokens are 4,096 (or the engine's own default) and
    types the model's own, else float16.
    """
    tokens = parse_count(tokens, "tokens") if isinstance(tokens, str) else tokens
    sizes = {"tokens": tokens, "batch_size": batch_size, "tp_size": tp_size, "pp_size": pp_size, "dp_size": dp_size}
    for name, value in (*sizes.items(), *(("a length", length) for length in lengths)):
        _check_size(name, value, minimum=1)
    _check_size("encoder_tokens", encoder_tokens, minimum=0)
    if lengths and (tokens is not None or batch_size != 1):
        raise UsageError("lengths say both how long and how many", fix="leave out tokens and batch_size")
    chosen = find_engine(engine)
    k_name, v_name = (dtype if side is None else side for side in (k_dtype, v_dtype))
    origins = {name: "argument" for name, value in sizes.items() if value is not None}
    request = Request(
        batch_size=batch_size,
        tokens=tokens,
        k_dtype=None if k_name is None else find_dtype(k_name),
        v_dtype=None if v_name is None else find_dtype(v_name),
        encoder_tokens=encoder_tokens,
        lengths=lengths,
        draft=draft,
        tp_size=tp_size,
        pp_size=pp_size,
        dp_size=dp_size,
        options=chosen.parse_options([f"{name}={value}" for name, value in (options or {}).items()]),
        origins={**origins, "k_dtype": "argument", "v_dtype": "argument"},
    )
    return EstimateAnswer(**vars(_estimate(_model_of(model), chosen.with_sequences(request), chosen)))


def _model_of(model: Model | str | Path | Mapping[str, object]) -> Model:
    """By any name that the command line takes. Raises KvcalcError."""
    if isinstance(model, Model):
        return model
    if isinstance(model, Mapping):
        return load_model(config=model)
    from kvcalc.cli.model_args import load
    from kvcalc.cli.options import Naming

    return load(Naming(), str(model))


def _check_size(name: str, value: object, minimum: int) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_COUNT):
        raise UsageError(f"{name} must be an integer from {minimum} to 2^53", fix=f"give {minimum} or more")
