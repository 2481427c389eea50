"""Whether a release of vLLM has a class for a model, by its own registry, or may run the library's code for it.

Source: ``vllm/model_executor/models/registry.py`` of each release, ``vllm/config/model.py`` (``_SUFFIX_TO_DEFAULTS``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvcalc.core.layers import CrossAttention, Indexer, Recurrent
from kvcalc.core.model import Model
from kvcalc.engines.base import SERVED, Serving
from kvcalc.engines.releases import Rules, number_of
from kvcalc.engines.vllm.models import INCOMPATIBLE, NGRAMS, STATEFUL, UNMODELLED, class_names, reading_of

WHERE = "vllm/model_executor/models/registry.py"
BACKEND_CHECKED = "0.32.0"  # from here on its Transformers backend was held against the engine
# The release of transformers from which on a release of vLLM takes none, newest first (the wheels' own metadata).
LIBRARY_BELOW = (
    ("0.34.0", ""),
    ("0.33.0", "5.21.0"),
    ("0.32.0", "5.20.0"),
    ("0.31.0", "5.18.0"),
    ("0.19.1", ""),
    ("0.11.1", "5"),
)
# Endings under which a generating class is served for pooling too.
_GENERATES = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel")
_POOLS = (
    *("ForTextEncoding", "EmbeddingModel", "ForSequenceClassification", "ForTokenClassification", "ForAudioClassification"),
    *("ForImageClassification", "ForVideoClassification", "ClassificationModel", "ForRewardModeling", "RewardModel", "Model"),
)


def serving_of(model: Model, rules: Rules) -> Serving:
    """Whether the release runs the model. A GGUF file or the equation's flags name no class: only their layers are looked at."""
    found = _by_layers(model, rules)
    if found is SERVED and model.format in ("hf", "preset"):
        return _by_class(model, rules)
    return found


def spans_of(name: str) -> list[tuple[str, str]]:
    """(first, last) release of each span in which a class is in the registry; the last is empty where the newest has it."""
    from kvcalc.engines.vllm.registry import CLASSES

    keys = next((key for key, names in CLASSES.items() if f" {name} " in names), "")
    return [(first, last) for first, _, last in (span.partition("-") for span in keys.split(",")) if first]


def _by_layers(model: Model, rules: Rules) -> Serving:
    """What no class says: engines' versions, and models whose caches are not modelled."""
    for name in (*class_names(model), model.model_type):
        if name in UNMODELLED:
            return Serving(f"{name} is not modelled for vLLM: {UNMODELLED[name]}")
    if model.model_type in NGRAMS and (reason := _unmodelled_ngrams(model)):
        return Serving(f"{model.model_type} is not modelled for vLLM: {reason}")
    since = reading_of(model).since
    if since and not rules.since(since):
        return Serving(f"the layout of {model.model_type} in vLLM {rules.said} is not modelled: it is from {since} on")
    crosses, stateful = _has(model, CrossAttention), _has(model, Recurrent)
    if stateful and "state_layers" not in rules:
        return _unserved(rules, "runs recurrent layers on its V0 engine, whose rules are not known")
    if crosses and "encoder_decoders" not in rules:
        return _unserved(rules, "runs encoder-decoders on its V0 engine, whose rules are not known")
    if crosses and not reading_of(model).crosses:
        return _unserved(rules, f"serves no {model.model_type}: of the encoder-decoder models only Whisper and its kin")
    return SERVED


def _has(model: Model, kind: type) -> bool:
    return any(isinstance(part, kind) for layer in model.layers for part in layer)


def _unmodelled_ngrams(model: Model) -> str:
    if _has(model, Indexer):
        return "its sparse attention keeps index keys and a ring of its own (vllm/models/qwen4_exp/common/qsa_cache.py)"
    if model.fields.raw("ple_layer_ids"):
        return "its n-gram layers keep several kinds of states (vllm/models/qwen4_exp/nvidia/ple_layer.py)"
    return ""


def _by_class(model: Model, rules: Rules) -> Serving:
    names = class_names(model)
    native = any(_native(name, rules) for name in names)
    if names and not native:
        return _by_backend(model, names[0], rules)
    if _has(model, Recurrent) and model.model_type not in STATEFUL:
        return _unserved(rules, f"serves no {model.model_type} that is modelled: its recurrent layers are not")
    if native:
        return SERVED
    return Serving(unchecked=f"{model.name} names no class: whether vLLM {rules.said} has one for it was not checked")


def _native(name: str, rules: Rules) -> bool:
    return any(rules.since(first) and _until(rules, last) for other in _aliases(name) for first, last in spans_of(other))


def _until(rules: Rules, last: str) -> bool:
    return not last or rules.number <= number_of(last)


def _aliases(name: str) -> Iterator[str]:
    """The class itself, and the generating ones that it is made of."""
    yield name
    ending = next((ending for ending in _POOLS if name.endswith(ending)), "")
    if ending:
        yield from (name.removesuffix(ending) + other for other in _GENERATES)


def _by_backend(model: Model, name: str, rules: Rules) -> Serving:
    """The library's own code under vLLM's Transformers backend, where it has the class and every layer attends."""
    reason = _unlike(model, name, rules)
    if reason:
        return _unserved(rules, f"does not serve {name}{_history(name, rules)}{reason}")
    if rules.since(BACKEND_CHECKED):
        return SERVED
    return Serving(
        unchecked=f"vLLM {rules.said} runs {name} by its Transformers backend, which was checked from {BACKEND_CHECKED} on"
    )


def _unlike(model: Model, name: str, rules: Rules) -> str:
    """Why the backend can't run a class, or nothing."""
    if name in INCOMPATIBLE:
        return ", and the library's code can't run under it"
    if _has(model, Recurrent):
        return ", and its Transformers backend runs no recurrent layers"
    since = library_since(name)
    if not since:
        return "" if model.metadata.get("auto_map") and not spans_of(name) else ", and the library has no such class either"
    below = next(below for first, below in (*LIBRARY_BELOW, ("0", "5")) if rules.since(first))
    if below and number_of(since) >= number_of(below):
        return f", and takes no transformers as new as the class (below {below})"
    return ""


def library_since(name: str) -> str:
    """The first release of transformers, of those read, that has the class; empty where none has."""
    from kvcalc.engines.vllm.registry import LIBRARY

    return next((version for version, names in LIBRARY.items() if f" {name} " in names), "")


def _history(name: str, rules: Rules) -> str:
    """When the class was, or will be, in the registry."""
    spans: Iterable[tuple[str, str]] = spans_of(name)
    gone = [last for _, last in spans if last and number_of(last) < rules.number]
    if gone:
        return f": the last release that did is {gone[-1]}"
    coming = [first for first, _ in spans if not rules.since(first)]
    return f": the first release that does is {coming[0]}" if coming else ""


def _unserved(rules: Rules, what: str) -> Serving:
    return Serving(f"vLLM {rules.said} {what}", where=WHERE, fix="--engine exact or transformers count it")
