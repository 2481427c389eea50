"""What an engine takes of a card besides weights and cache: activations, graphs, buffers, by engine and release; an interval."""

from __future__ import annotations

from collections.abc import Callable

from kvcalc.core.model import Model, Request
from kvcalc.engines.base import Engine
from kvcalc.engines.other_memory import llamacpp, sglang, vllm
from kvcalc.engines.other_memory.facts import Card, Facts, Other, not_covered
from kvcalc.engines.other_memory.sizes import sizes_of

__all__ = ["Card", "Other", "other_memory"]

RULES: dict[str, Callable[[Facts], Other]] = {"vllm": vllm.other, "sglang": sglang.other, "llama.cpp": llamacpp.other}
NOTHING = ("exact", "paged", "static", "lmcache")  # accountings, and a store beside an engine: nothing runs


def other_memory(engine: Engine, model: Model, request: Request, card: Card) -> Other | None:
    """What each rank's card gives to neither weights nor cache; None for the equation, which runs nowhere.

    Raises UsageError, EngineError for a release that is not known.
    """
    if engine.name in NOTHING:
        return None
    asked = request.options.get("release")
    rules = engine.releases.find(None if asked is None else str(asked))
    facts = Facts(sizes_of(model), request, rules, card)
    rule = RULES.get(engine.name)
    return rule(facts) if rule else not_covered(f"{engine.name}: neither a rule nor public starts")
