"""ollama, 0.6 to 0.30 and later: which engine runs a model, with which numbers.

From 0.30 on every GGUF file is served by llama.cpp's own server, one stream a sequence; from 0.6 to 0.25 by an engine of
ollama's own for the architectures that it lists, and by llama.cpp linked in for the others.
"""

from __future__ import annotations

from dataclasses import replace

from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.engines import find_engine
from kvcalc.engines.base import SERVED, Engine, Plan, Serving
from kvcalc.engines.llamacpp.metadata import metadata_of
from kvcalc.engines.ollama.arches import ARCHES, ON_REQUEST, Arch, own_name
from kvcalc.engines.ollama.own import Own
from kvcalc.engines.ollama.settings import OPTIONS, Settings, settings_of
from kvcalc.engines.releases import Change, Releases, Rules, number_of
from kvcalc.engines.requests import refuse_draft, require_layers
from kvcalc.errors import KvcalcError

CHANGES = (
    Change("reuse", "0.11.0", "4,096 positions of gpt-oss's windows (and Gemma 4's) are kept for requests that begin alike"),
    Change("padding", "0.13.0", "cells come by 256, with flash attention or without; a window keeps one position more"),
    Change("by_vram", "0.15.5", "a context that isn't asked for goes by the memory of the GPUs"),
    Change("checkpoints", "0.15.5", "24 checkpoints of every recurrent state are reserved beside it"),
    Change("llama_server", "0.30.0", "every GGUF file is served by llama.cpp's own server"),
)
RELEASES = Releases(
    "ollama",
    ("0.6.0", "0.11.0", "0.13.0", "0.15.5", "0.20.0", "0.25.0", "0.30.0"),
    CHANGES,
    refused="up to 0.5 it passed everything to llama.cpp: --engine llama.cpp counts it",
)
# The llama.cpp that a release links, as near as its rules are known.
_LINKED = (
    ("0.20.0", "b8390"),
    ("0.13.0", "b7698"),
    ("0.12.0", "b6673"),
    ("0.9.0", "b5640"),
    ("0.6.7", "b5135"),
    ("0.0.0", "b4600"),
)


class OllamaPlan(Plan):
    """One model, and the runner that a release gives it."""

    def __init__(self, engine: Engine, model: Model, request: Request, rules: Rules) -> None:
        super().__init__(engine, model, request, rules)
        self.name = _name(model)
        self.arch = _arch_of(self.name, rules, request.options.get("new-engine", False) is True)
        self.settings = settings_of(model, request, rules, ARCHES.get(self.name))

    def allocate(self) -> Tally:
        """The caches of the runner. Raises EngineError, UsageError, DtypeError."""
        refuse_draft(self.request, "ollama")
        if self.arch is not None:
            require_layers(self.model)
            own = Own(self.arch, self.rules, self.settings, self.model.encoder_tokens or 0)
            report = {"runner": "ollama's own engine", "cells": own.cells, "checkpoints": 24}
            return self._told(Tally(own.tally(self.model)), report)
        tally = self._llamacpp()
        runner = "llama-server" if "llama_server" in self.rules else "llama.cpp, linked in"
        return self._told(tally, {"runner": runner, **{key: tally.report[key] for key in ("n_ctx_seq", "caches")}})

    @property
    def step(self) -> int:
        """Cells come by the 256."""
        return 256

    def longer(self, tokens: int) -> Plan:
        """The same request with a longer context."""
        kept = {name: given for name, given in self.request.options.items() if name not in ("num-ctx", "ctx-size")}
        return self.resized(replace(self.request.at(self.settings.num_ctx + tokens), options=kept))

    def _llamacpp(self) -> Tally:
        options = llamacpp_options(self.settings, self.rules)
        request = replace(self.request, tokens=None, lengths=(), batch_size=1, k_dtype=None, v_dtype=None, options=options)
        return find_engine("llama.cpp").plan(self.model, replace(request, origins={})).allocate()

    def _told(self, tally: Tally, report: dict[str, object]) -> Tally:
        settings, origins = self.settings, self.settings.origins
        facts: dict[str, tuple[object, str]] = {
            "batch_size": (settings.parallel, origins["num_parallel"]),
            "tokens": (settings.num_ctx, origins["num_ctx"]),
            "num_batch": (settings.batch, origins["num_batch"]),
            "k_dtype": (settings.cache_type, origins["kv_cache_type"]),
            "v_dtype": (settings.cache_type, origins["kv_cache_type"]),
        }
        figures = {
            "release": self.rules.name,
            "architecture": self.name,
            "num_ctx": settings.num_ctx,
            "num_parallel": settings.parallel,
            "num_batch": settings.batch,
            **report,
            **_foretold(self.model, settings, self.rules),
        }
        return replace(tally, request=facts, report=figures, warnings=(*settings.warnings, *tally.warnings))


def llamacpp_options(settings: Settings, rules: Rules) -> dict[str, OptionValue]:
    """What ollama passes to llama.cpp."""
    served = "llama_server" in rules
    found: dict[str, OptionValue] = {
        "ctx-size": settings.cells,
        "parallel": settings.parallel,
        "batch-size": settings.batch,
        "ubatch-size": settings.batch,
        "kv-unified": not served,
        "swa-full": not served,
        "cache-type-k": settings.cache_type,
        "cache-type-v": settings.cache_type,
        "flash-attn": ("on" if settings.flash else "off") if settings.flash_said else "auto",
        "defaults": "server" if served else "library",
    }
    if not served:
        found["release"] = next(build for since, build in _LINKED if rules.since(since))
    return found


def _foretold(model: Model, settings: Settings, rules: Rules) -> dict[str, object]:
    """What ``ollama ps`` predicts of the cache before it loads: every layer whole, by the fewest heads of any."""
    hidden, heads = (model.fields.int_or_none(name, 0) for name in ("hidden_size", "num_attention_heads"))
    kv_heads = [number for layer in model.layers for part in layer if (number := getattr(part, "num_kv_heads", 0))]
    if "llama_server" not in rules or not hidden or not heads or not kv_heads:
        return {}
    return {"predicted_before_loading": 2 * len(model.layers) * min(kv_heads) * (hidden // heads) * settings.cells * 2}


def _name(model: Model) -> str:
    try:
        gguf_name, _ = metadata_of(model)
    except KvcalcError:
        gguf_name = model.model_type
    return own_name(gguf_name, model.model_type)


def _arch_of(name: str, rules: Rules, on_request: bool) -> Arch | None:
    """The row of ollama's own engine, where that runs the model."""
    row = ARCHES.get(name) or (ON_REQUEST.get(name) if on_request else None)
    if row is None or "llama_server" in rules or number_of(row.since) > rules.number:
        return None
    return row


class Ollama(Engine):
    """ollama's context memory."""

    name = "ollama"
    source = "ollama fb307609 (2026-08-21): kvcache/, ml/backend/ggml, llm/llama_server.go, server/sched.go"
    evidence = "read in the source; public figures agree, to the byte where bytes are stated"
    releases = RELEASES
    own_options = OPTIONS
    reads_file = True
    excluded = ("weights", "compute and output buffers", "projectors of vision models")

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Whatever its engine or llama.cpp runs: that is read, and refused, with the plan."""
        del model, rules
        return SERVED

    def plan_under(self, rules: Rules, model: Model, request: Request) -> OllamaPlan:
        """The plan of a request."""
        return OllamaPlan(self, model, request, rules)


ENGINE = Ollama()
