"""The JSON that each verb prints, as pydantic models: what ``kvcalc schema VERB`` publishes.

Keys that are named here are there and of these types; a later version of the same schema may add keys.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from kvcalc.reports.to_json import Document

Number = int | float


class Part(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(extra="allow")


class EngineRules(Part):
    """Whose rules made a figure, and of which release."""

    name: str
    version: str
    source: str
    evidence: str


class ReleasedRules(EngineRules):
    """The same where a release was chosen: ``rules_release`` differs where one stands in for the one asked for."""

    rules_release: str
    asked_release: str
    unchecked: str | None = None


class FieldOrigin(Part):
    """A field's value, and the key, flag or default that it came from."""

    value: Any
    origin: str


class ModelPart(Part):
    """Which model, and where its fields came from."""

    name: str
    model_type: str
    source: str
    format: str
    num_layers: int
    max_tokens: int | None
    dtype: str | None
    draft_layers: int
    assumed: str | None
    fields: dict[str, FieldOrigin]


class ArrayPart(Part):
    """One array of a layer: ``rows`` × ``row_bytes``."""

    component: Literal["kv", "index", "state", "other"]
    label: str
    rows: int
    row_bytes: int
    heads: int
    width: int
    dtype: str
    bytes: int


class LayerPart(Part):
    """``count`` equal layers from ``first`` on."""

    kind: str
    first: int
    count: int
    bytes: int
    bytes_per_layer: int
    positions: int
    arrays: list[ArrayPart]


class RequestPart(Part):
    """What was asked, as the engine took it."""

    batch_size: int
    tokens: int
    k_dtype: str
    v_dtype: str
    options: dict[str, Any]
    origins: dict[str, str]


class Problem(Part):
    """What is wrong, where, and how to fix it."""

    code: str
    what: str
    where: str
    fix: str
    exit_code: int


class Envelope(Part):
    """What every answer has."""

    schema_version: Literal[1]
    verb: str


class Estimate(Envelope):
    """``kvcalc estimate``."""

    engine: ReleasedRules
    model: ModelPart
    request: RequestPart
    total_bytes: int
    components: dict[Literal["kv", "index", "state", "other"], int]
    bytes_per_token: Number | None
    bytes_per_token_step: int
    fixed_bytes: int | None
    layers: list[LayerPart]
    shared: list[ArrayPart]
    excluded: list[str]
    warnings: list[str]
    notes: list[str]
    fits: bool
    held_bytes: int | None = None
    refusal: str | None = None
    engine_report: dict[str, Any] | None = None


class Inspect(Estimate):
    """``kvcalc inspect``."""

    layout: list[Part]


class Cell(Part):
    """One figure of a sweep; refused cells have ``error`` and no bytes."""

    model: str
    k_dtype: str
    v_dtype: str
    batch_size: int
    tokens: int
    total_bytes: int | None
    beyond_model_maximum: bool
    fits: bool | None
    needed_bytes: int | None
    error: Problem | None = None


class Sweep(Envelope):
    """``kvcalc sweep``."""

    engine: EngineRules
    models: list[ModelPart]
    request: Part
    cells: list[Cell]


class Refused(Part):
    """A model of a comparison that is refused."""

    model: ModelPart
    total_bytes: None
    error: Problem


class Compare(Envelope):
    """``kvcalc compare``."""

    engine: EngineRules
    estimates: list[Estimate | Refused]


class Pair(Part):
    """A row of a frontier."""

    batch_size: int
    tokens: int
    needed_bytes: int


class Fit(Envelope):
    """``kvcalc fit``; with ``--frontier`` the pairs stand in ``frontier``."""

    engine: ReleasedRules
    model: ModelPart
    searched: str
    fits: bool
    memory_bytes: int
    memory_origin: str
    weights_bytes: int
    overhead_bytes: int
    utilization: Number
    ranks: int
    held_back_bytes: int
    budget_bytes: int
    limit: str
    tokens: int | None = None
    batch_size: int | None = None
    needed_bytes: int | None = None
    shortfall_bytes: int | None = None
    frontier: list[Pair] | None = None


class Audit(Envelope):
    """``kvcalc audit``."""

    log: Part
    agrees: bool
    loads: list[Part]


class LaunchFlag(Part):
    """A flag that an engine's parser doesn't take as it stands, and why."""

    flag: str
    value: Any
    line: int
    note: str


class LaunchSlip(Part):
    """Something in a launch line that its author hardly meant."""

    line: int
    text: str


class LaunchChange(Part):
    """One flag of a launch line: as it stands, as it might, and what that gives."""

    flag: str
    before: str | None
    after: str | None
    gives: str


class LaunchAnswer(Part):
    """The verdict on one launch. ``cache_bytes`` are those of one rank."""

    verdict: Literal["fits", "does not fit", "refused", "contradicts itself", "open", "not answered"]
    exit_code: int
    why: list[str]
    error: Problem | None
    rules: str | None
    model: ModelPart | None
    ranks: int | None
    tokens: int | None
    cache_bytes: int | None
    sequences: int | None
    sequences_at_most: int | None
    budget_bytes: int | None
    need_bytes: int | None
    memory_bytes: int | None
    memory_origin: str | None
    weights_bytes: int | None
    other_low_bytes: int | None
    other_high_bytes: int | None
    other_basis: str | None
    not_counted: list[str]
    changes: list[LaunchChange]
    notes: list[str]


class LaunchCommand(Part):
    """One launch as it was read; ``settings`` by the engine's own option names. ``answer`` is left out by --settings."""

    engine: str
    release: str | None
    program: str | None
    model: str | None
    place: str | None
    gpu: str | None
    gpus: int | None
    replicas: int
    settings: dict[str, Any]
    unrelated: list[str]
    unknown: list[LaunchFlag]
    removed: list[LaunchFlag]
    ambiguous: list[LaunchFlag]
    unreadable: list[LaunchFlag]
    notes: list[str]
    slips: list[LaunchSlip]
    asks: list[str]
    answer: LaunchAnswer | None = None


class Check(Envelope):
    """``kvcalc check``."""

    commands: list[LaunchCommand]


class Presets(Envelope):
    """``kvcalc presets``."""

    presets: list[Part]


class Engines(Envelope):
    """``kvcalc engines``."""

    engines: list[EngineRules]


class GpuPart(Part):
    """A card; sizes in bytes."""

    name: str
    title: str
    nominal_gb: int
    driver_bytes: int | None
    total_bytes: int
    most_bytes: int
    architecture: str
    source: str
    assumed: str | None


class Gpus(Envelope):
    """``kvcalc gpus``."""

    gpus: list[GpuPart]


class Verify(Envelope):
    """``kvcalc verify``."""

    passed: bool


class Tool(Part):
    """A tool that an agent is given."""

    name: str
    description: str
    parameters: list[str]


class Mcp(Envelope):
    """``kvcalc mcp --json``."""

    tools: list[Tool]


class Schema(Envelope):
    """``kvcalc schema --json``."""

    schemas: dict[str, Any]


class Error(Part):
    """What every verb prints instead of an answer."""

    schema_version: Literal[1]
    error: Problem


ANSWERS: dict[str, type[BaseModel]] = {
    "estimate": Estimate,
    "sweep": Sweep,
    "compare": Compare,
    "fit": Fit,
    "inspect": Inspect,
    "audit": Audit,
    "check": Check,
    "presets": Presets,
    "engines": Engines,
    "gpus": Gpus,
    "mcp": Mcp,
    "schema": Schema,
    "verify": Verify,
}


def schema_of(verb: str) -> Document:
    """The JSON Schema (draft 2020-12) of a verb's answer, or of its error."""
    answer = ANSWERS[verb].model_json_schema(mode="validation")
    answer["properties"]["verb"] = {"const": verb}
    found: Document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kvcalc {verb} --json",
        **_either(answer, Error.model_json_schema(mode="validation")),
    }
    return found


def _either(answer: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    definitions = {**answer.pop("$defs", {}), **error.pop("$defs", {})}
    return {"anyOf": [answer, error], "$defs": definitions}
