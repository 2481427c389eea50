"""The real cache of Hugging Face transformers: built from a config on the meta device, filled, and weighed.

On the meta device a model has shapes and types but no data, so that a config of any size is built and run in seconds.
What the code then asks of data that isn't there (is this mask all true? which elements are set?) is answered yes.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

from kvcalc.errors import EngineError
from kvcalc.verify.against.transformers_inputs import encoder_width, images_of, inputs_of, settle

# What kind of model a config may be, in the order in which they are tried.
_DECODERS = ("CAUSAL_LM",)
_COMPOSITES = (
    "IMAGE_TEXT_TO_TEXT",
    "MULTIMODAL_LM",
    "VISION_2_SEQ",
    "SPEECH_SEQ_2_SEQ",
    "TEXT_TO_WAVEFORM",
    "TEXT_TO_SPECTROGRAM",
)
_ENCODER_DECODERS = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "TEXT_TO_SPECTROGRAM", "VISION_2_SEQ")
_OUTPUTS = ("cache", "past_key_values", "cache_params", "state", "past_buckets_states", "mems")
_ARGUMENTS = ("cache", "past_key_values", "cache_params", "past_buckets_states", "state")
_PACKAGES = ("transformers", "optimum", "hqq", "collections")
_TEXT_ENDINGS = ("ForCausalLM", "LMHeadModel", "TextModel")
_MOST_STEPS = 4096
_MOST_BYTES = 2**28  # of weights, where a model must be built with data after all
# Lists of a cache object that hold a layer an entry, by release and class.
_LISTS = frozenset(
    (
        "layers",
        "key_cache",
        "value_cache",
        "conv_cache",
        "conv_states",
        "ssm_states",
        "linear_cache",
        "states_cache",
        "buckets_cache",
        "rnn_state",
    )
)
# Attributes in which RecurrentGemma's modules keep what others keep in a cache object.
_MODULE_STATES = ("conv1d_state", "recurrent_states", "key_states", "value_states")


@dataclass(frozen=True, slots=True)
class Ask:
    """What to run: sizes, the class of cache, and how many tokens come at once."""

    batch: int
    tokens: int
    dtype: str
    prompt: int | None = None
    encoder_tokens: int | None = None
    max_cache_len: int | None = None  # of a static cache


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a cache holds: bytes by layer, bytes of no layer, and the storages behind them."""

    layers: Mapping[int, int]
    shared: int
    storage: int
    cache_class: str
    model_class: str
    tensors: tuple[tuple[str, tuple[int, ...], str, int], ...]  # path, shape, type, bytes counted

    @property
    def total(self) -> int:
        """Every tensor's own bytes, views and expanded axes once."""
        return sum(self.layers.values()) + self.shared


def config_of(config: Mapping[str, object]) -> Any:
    """The library's config object. Raises EngineError where it knows no such type or refuses the values."""
    values = copy.deepcopy(dict(config))
    model_type = values.pop("model_type", "")
    mapping = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    if model_type not in mapping:
        raise EngineError(f"the installed transformers knows no model type {str(model_type)[:60]!r}", "model_type")
    try:
        found = mapping[model_type].from_dict(values)
        unread = isinstance(found.get_text_config(decoder=True), Mapping)
    except Exception as problem:
        raise EngineError(f"transformers refuses this config: {_first_line(problem)}", "config.json") from problem
    if unread:
        raise EngineError(f"transformers' {type(found).__name__} has no nested decoder: its keys stay unread", "model_type")
    return found


def model_classes(config: Any) -> list[Any]:
    """Classes that can run it, likeliest first; then those of its text decoder alone."""
    nested = config.get_text_config(decoder=True)
    kinds: tuple[str, ...] = _DECODERS + _COMPOSITES
    if getattr(config, "is_encoder_decoder", False):
        kinds = _ENCODER_DECODERS + _COMPOSITES + _DECODERS
    elif type(nested) is not type(config):
        kinds = _COMPOSITES + _DECODERS
    return list(dict.fromkeys(found for kind in kinds for found in _mapped(kind, config)))


def _mapped(kind: str, config: Any) -> tuple[Any, ...]:
    mapping = getattr(import_module("transformers.models.auto.modeling_auto"), f"MODEL_FOR_{kind}_MAPPING", {})
    try:
        found = mapping[type(config)]
    except KeyError:
        return ()
    return tuple(found) if isinstance(found, tuple | list) else (found,)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the library's own words about odd configs."""
    import warnings

    log = import_module("transformers").logging
    level = log.get_verbosity()
    log.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.set_verbosity(level)


@contextmanager
def yes_to_everything() -> Iterator[None]:
    """Answer what code asks of a meta tensor's values: every element is set, every condition holds."""
    import torch

    answer = torch.ops.aten._local_scalar_dense.default  # noqa: SLF001 - what Tensor.item() calls
    mode: Any = import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Answers(mode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is answer and args[0].is_meta:
                return args[0].dtype is torch.bool or args[0].dtype.is_floating_point or 1
            return func(*args, **(kwargs or {}))

    experiments: Any = import_module("torch.fx.experimental._config")
    before, autocast = experiments.meta_nonzero_assume_all_nonzero, torch.autocast

    def without_meta(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return autocast("cpu" if device_type == "meta" else device_type, *args, **kwargs)

    experiments.meta_nonzero_assume_all_nonzero = True
    torch.autocast = without_meta  # type: ignore[misc,assignment]  # older releases name the meta device here
    try:
        with Answers():
            yield
    finally:
        experiments.meta_nonzero_assume_all_nonzero = before
        torch.autocast = autocast  # type: ignore[misc]


def build(config: Any, model_class: Any, dtype: str, device: str = "meta") -> Any:
    """An instance without weights."""
    import torch

    before, own = torch.get_default_dtype(), copy.deepcopy(config)
    _set_dtype(own, getattr(torch, dtype))
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            return model_class._from_config(own).eval()  # noqa: SLF001 - what the Auto classes call
    finally:
        torch.set_default_dtype(before)


def _set_dtype(config: Any, dtype: Any) -> None:
    """The type asked for stands, not the file's own, as ``from_pretrained(dtype=…)`` has it."""
    config.dtype = dtype
    for name in getattr(config, "sub_configs", ()):
        nested = getattr(config, name, None)
        if hasattr(nested, "sub_configs"):
            _set_dtype(nested, dtype)


def measure(config: Any, ask: Ask, device: str = "meta") -> Weighed:
    """Build, fill and weigh. Raises EngineError with the library's own words where no class can run it."""
    problems = []
    with quiet():
        settle(config)
        for chosen, model_class in _candidates(config):
            try:
                return _measured(chosen, model_class, ask, device)
            except Exception as problem:  # noqa: BLE001 - any failure of the library's code means: the next class
                problems.append(f"{model_class.__name__}: {_first_line(problem)}")
    raise EngineError(f"transformers can't run this config: {'; '.join(problems[:2]) or 'it has no class to generate with'}")


def _candidates(config: Any) -> Iterator[tuple[Any, Any]]:
    """(config, class), likeliest first: the whole model, its thinker, its text decoder alone."""
    for found in model_classes(config):
        yield config, found
    for part in (getattr(config, "thinker_config", None), config.get_text_config(decoder=True)):
        if part is not None and type(part) is not type(config):
            for found in dict.fromkeys((*model_classes(part), *_text_classes(config, part))):
                yield part, found


def _text_classes(config: Any, nested: Any) -> list[Any]:
    """Text decoders that a composite's own module has, outside the library's mappings."""
    package, _, name = type(config).__module__.rpartition(".configuration_")
    found = []
    for module_name in (f"{package}.modeling_{name}", f"{package}.modeling_{name}_text"):
        try:
            module = import_module(module_name)
        except ImportError:
            continue
        found += [item for key, item in vars(module).items() if key.endswith(_TEXT_ENDINGS) and isinstance(item, type)]
    return [item for item in found if getattr(item, "config_class", None) is type(nested)]


def _measured(config: Any, model_class: Any, ask: Ask, device: str) -> Weighed:
    model = build(config, model_class, ask.dtype, device)
    try:
        return _run(model, config, model_class, ask, device)
    except (NotImplementedError, KeyError):  # code that reads numbers out of a tensor: a small model can have them
        weights = sum(item.numel() * item.element_size() for item in model.parameters())
        if device != "meta" or weights > _MOST_BYTES:
            raise
        return _run(build(config, model_class, ask.dtype, "cpu"), config, model_class, ask, "cpu")


def _run(model: Any, config: Any, model_class: Any, ask: Ask, device: str) -> Weighed:
    with yes_to_everything():
        cache = fill(model, config, ask, device)
    if cache is None:
        raise EngineError("it returns no cache")
    return weigh([*tensors_of(cache), *_module_states(model)], type(cache).__name__, model_class.__name__)


def fill(model: Any, config: Any, ask: Ask, device: str, cache: Any = None) -> Any:
    """The cache after the prompt, and after the rest of the tokens one by one; ``cache`` is one that was made before."""
    import torch

    parameters = inspect.signature(model.forward).parameters
    prompt = ask.tokens if ask.prompt is None else ask.prompt
    if ask.tokens - prompt > _MOST_STEPS:
        raise EngineError(f"more than {_MOST_STEPS:,} single steps", "-o prompt-tokens")
    given: dict[str, Any] = {"use_cache": True}
    newest = "cache" if _has_cache_argument() else "past_key_values"
    argument = next((name for name in _ARGUMENTS if name in parameters and (name != "cache" or newest == "cache")), newest)
    if ask.max_cache_len is not None:
        cache = _static_cache(config, ask)
    if cache is not None:
        given[argument] = cache
    dtype = getattr(torch, ask.dtype)
    images = images_of(config, parameters, ask.batch, ask.encoder_tokens, device, dtype)
    with torch.no_grad():
        for count in [prompt] + [1] * (ask.tokens - prompt):
            step = inputs_of(config, parameters, ask.batch, count, ask.encoder_tokens, device, dtype)
            out = model(**{**given, **step, **images})
            images = {}
            cache = next((found for name in _OUTPUTS if (found := getattr(out, name, None)) is not None), given.get(argument))
            if cache is None:
                own = _own_cache(model, config, ask, device)
                return fill(model, config, ask, device, own) if own is not None else None
            given[argument] = cache
    return cache


def _own_cache(model: Any, config: Any, ask: Ask, device: str) -> Any:
    """What ``generate`` would make first, for classes that make none themselves."""
    import torch

    module = import_module(type(model).__module__)
    hybrid = next((found for name, found in vars(module).items() if name.endswith("HybridMambaAttentionDynamicCache")), None)
    if hybrid is not None:
        return hybrid(config, ask.batch, dtype=getattr(torch, ask.dtype), device=device)
    return import_module("transformers").DynamicCache(config=config)


def _has_cache_argument() -> bool:
    return not import_module("transformers").__version__.startswith("4.")


def _static_cache(config: Any, ask: Ask) -> Any:
    library = import_module("transformers")
    own = library.StaticCache(config=config, max_cache_len=ask.max_cache_len)
    if not getattr(config, "is_encoder_decoder", False):
        # As ``generate`` does: layers that attend to an image have room for its positions, not for the text's.
        crossed = set(getattr(config.get_text_config(decoder=True), "cross_attention_layers", None) or ())
        for index in crossed & set(range(len(own.layers))):
            own.layers[index] = type(own.layers[index])(max_cache_len=ask.encoder_tokens or 8)
        return own
    return library.EncoderDecoderCache(own, library.StaticCache(config=config, max_cache_len=ask.encoder_tokens or 8))


def _module_states(model: Any) -> Iterator[tuple[str, Any]]:
    import torch

    for name, module in model.named_modules():
        for key in _MODULE_STATES:
            if isinstance(module.__dict__.get(key), torch.Tensor):
                yield f"{name}.{key}", module.__dict__[key]


def tensors_of(held: Any, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Every tensor that can be reached from a cache object, with where it was found."""
    import torch

    seen = set() if seen is None else seen
    if id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, torch.Tensor):
        inner = held.__tensor_flatten__()[0] if type(held) is not torch.Tensor and hasattr(held, "__tensor_flatten__") else ()
        if not inner:
            yield path, held
        for name in inner:
            yield from tensors_of(getattr(held, name), f"{path}.{name}", seen)
        return
    for name, item in _children(held):
        yield from tensors_of(item, f"{path}.{name}", seen)


def _children(held: Any) -> Iterator[tuple[object, Any]]:
    import torch

    if isinstance(held, Mapping):
        yield from held.items()
    elif isinstance(held, list | tuple):
        yield from enumerate(held)
    elif (
        type(held).__module__.split(".")[0] in _PACKAGES
        and hasattr(held, "__dict__")
        and not isinstance(held, torch.nn.Module)
        and "Config" not in type(held).__name__
    ):
        yield from vars(held).items()


def weigh(found: list[tuple[str, Any]], cache_class: str, model_class: str) -> Weighed:
    """Bytes by layer. A tensor within another's bytes, and an axis expanded without data, count once; scalars don't."""
    placed = [(path, tensor, *_place(tensor)) for path, tensor in found if tensor.dim()]
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for _, tensor, *_ in placed}  # noqa: SLF001
    layers: dict[int, int] = {}
    shared, rows = 0, []
    for index, (path, tensor, size, key, start, end) in enumerate(placed):
        covered = any(
            key == other and begins <= start and end <= stops and (before < index or (begins, stops) != (start, end))
            for before, (_, _, _, other, begins, stops) in enumerate(placed)
            if before != index
        )
        counted = 0 if covered else size
        layer = _layer_of(path)
        if layer is None:
            shared += counted
        else:
            layers[layer] = layers.get(layer, 0) + counted
        rows.append((path, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), counted))
    return Weighed(layers, shared, sum(storages.values()), cache_class, model_class, tuple(rows))


def _place(tensor: Any) -> tuple[int, int, int, int]:
    """(own bytes, storage, first byte, last byte + 1)."""
    key, item = tensor.untyped_storage()._cdata, tensor.element_size()  # noqa: SLF001 - the storage's identity
    if not tensor.numel():
        return 0, key, 0, 0
    own, reach = item, 0
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        own *= length if stride else 1
        reach += (length - 1) * stride
    start = tensor.storage_offset() * item
    return own, key, start, start + (reach + 1) * item


def _layer_of(path: str) -> int | None:
    """The layer that a path names: ``.layers.3.keys``, ``.conv_states.3``, ``model.layers.3.…``; None for a whole."""
    for before, word in pairwise(path.split(".")):
        if word.isdigit() and before in _LISTS:
            return int(word)
    return None


def _first_line(problem: BaseException) -> str:
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:240]


__all__ = ["Ask", "Weighed", "config_of", "encoder_width", "measure", "model_classes", "weigh"]
