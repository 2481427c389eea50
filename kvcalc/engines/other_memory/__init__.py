"""What an engine takes of a card besides weights and cache: activations, graphs, buffers, by engine and release; an interval."""

from __future__ import annotations

from collections.abc import Callable

from kvcalc.core.model import Model, Request
from kvcalc.engines.base import Engine
from kvcalc.engines.other_memory import llamacpp, sglang, vllm
from kvcalc.engines.other_memory.facts import Card, Facts, Other, not_covered
from kvcalc.engines.other_memory.sizes import sizes_of

__all__ = ["Card", "Other", "other_memory", "share_of_card"]

RULES: dict[str, Callable[[Facts], Other]] = {"vllm": vllm.other, "sglang": sglang.other, "llama.cpp": llamacpp.other}
NOTHING = ("exact", "paged", "static", "lmcache")  # accountings, and a store beside an engine: nothing runs


def other_memory(engine: Engine, model: Model, request: Request, card: Card) -> Other | None:
    """What each rank's card gives to neither weights nor cache; None for the equation, which runs nowhere.

    Raises UsageError, EngineError for a release that is not known.
    """
    if engine.name in NOTHING:
        return None
    facts = _facts(engine, model, request, card)
    rule = RULES.get(engine.name)
    return rule(facts) if rule else not_covered(f"{engine.name}: neither a rule nor public starts")


def share_of_card(engine: Engine, model: Model, request: Request, card: Card) -> tuple[str, str]:
    """The share of a card that an engine takes by default, and the rule that says so: SGLang's goes by the card.

    Raises UsageError, EngineError for a release that is not known.
    """
    found = sglang.share(_facts(engine, model, request, card)) if engine.name == "sglang" else None
    return found or engine.share(request.options)


def _facts(engine: Engine, model: Model, request: Request, card: Card) -> Facts:
    asked = request.options.get("release")
    return Facts(sizes_of(model), request, engine.releases.find(None if asked is None else str(asked)), card)
