"""From a launch to a question that the engines answer: the one place where settings meet requests, options and memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvcalc.core.gpus import find_gpu
from kvcalc.core.model import Model, OptionValue, Request
from kvcalc.dtypes import Dtype, find_dtype
from kvcalc.engines import ENGINES, find_engine
from kvcalc.engines.base import Engine
from kvcalc.engines.fit import Memory
from kvcalc.engines.other_memory import Card, Other, other_memory
from kvcalc.errors import EngineError, UsageError
from kvcalc.launch.values import Launch
from kvcalc.units import ceil_div, parse_bytes
from kvcalc.values import value


@value
class Names:
    """Under which setting an engine is told each number."""

    length: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()
    share: tuple[str, ...] = ()
    tp: tuple[str, ...] = ()
    pp: tuple[str, ...] = ()
    dp: tuple[str, ...] = ()
    flag: str = ""  # the flag that shortens a sequence
    refuses_length: bool = False  # whether the engine refuses to start where one sequence of that length doesn't fit
    narrower: tuple[str, str] = ("", "")  # the flag of the cache's type, and one half as wide
    total: str = ""  # the engine's option for the length, where it allocates all slots at the start
    types: tuple[str, ...] = ()  # and those for the cache's type

    @property
    def whole(self) -> bool:
        """Whether all slots are allocated at the start."""
        return bool(self.total)


NAMES: dict[str, Names] = {
    "vllm": Names(
        ("max-model-len",),
        ("max-num-seqs",),
        ("gpu-memory-utilization",),
        ("tensor-parallel-size",),
        ("pipeline-parallel-size",),
        ("data-parallel-size",),
        "--max-model-len",
        True,
        ("--kv-cache-dtype", "fp8"),
    ),
    "sglang": Names(
        ("context-length",),
        ("max-running-requests",),
        ("mem-fraction-static",),
        ("tp-size",),
        ("pp-size",),
        ("dp-size",),
        "--context-length",
        False,
        ("--kv-cache-dtype", "fp8_e4m3"),
    ),
    "tensorrt-llm": Names(
        ("max_seq_len",),
        ("max_batch_size",),
        ("free_gpu_memory_fraction", "kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction"),
        ("tensor_parallel_size", "tp_size"),
        ("pipeline_parallel_size", "pp_size"),
        (),
        "--max_seq_len",
        True,
        ("--kv_cache_dtype", "fp8"),
    ),
    "llama.cpp": Names(
        ("ctx-size",),
        ("parallel",),
        flag="--ctx-size",
        narrower=("--cache-type-k", "q8_0 --cache-type-v q8_0"),
        total="ctx-size",
        types=("cache-type-k", "cache-type-v"),
    ),
    "ollama": Names(
        ("num_ctx", "OLLAMA_CONTEXT_LENGTH"),
        ("OLLAMA_NUM_PARALLEL",),
        flag="OLLAMA_CONTEXT_LENGTH",
        narrower=("OLLAMA_KV_CACHE_TYPE", "q8_0"),
        total="num-ctx",
        types=("kv-cache-type",),
    ),
    "mlx-lm": Names(("max-kv-size",), flag="--max-kv-size"),
    "lmdeploy": Names(
        ("session-len",),
        ("max-batch-size",),
        ("cache-max-entry-count",),
        ("tp",),
        (),
        ("dp",),
        "--session-len",
        True,
        ("--quant-policy", "8"),
    ),
}
_WIDTHS = {"half": "float16", "float16": "float16", "bfloat16": "bfloat16", "float": "float32", "float32": "float32"}
_WIDTHS |= {"fp16": "float16", "bf16": "bfloat16"}


@value
class Room:
    """What the command line adds about the card."""

    gpu: str = ""
    cards: int = 0  # how many, where that is said
    memory: str = ""
    overhead: str = ""


@value
class Known:
    """A model found for a launch: how, and its weights where they are known."""

    model: Model
    weights: tuple[int, str] | None
    notes: tuple[str, ...] = ()


@value
class Question:
    """A launch as the engines take it. ``length`` and ``batch`` are what the line states, nothing where it doesn't."""

    launch: Launch
    engine: Engine
    model: Model
    request: Request
    names: Names
    length: int | None
    batch: int | None
    memory: Memory | None
    ranks: int
    notes: tuple[str, ...] = ()
    stand_in: str = ""  # that another release's rules are taken for the line's own
    loose: str = ""  # why the weights that are counted may be fewer than a rank holds

    @property
    def release(self) -> str | None:
        """The release whose rules are asked for, where the line states one."""
        held = self.request.options.get("release")
        return None if held is None else str(held)


def question(launch: Launch, model: Model, weights: tuple[int, str] | None, room: Room) -> Question:
    """What is asked of which engine. Raises UsageError, EngineError, DtypeError."""
    names = NAMES[launch.engine]
    settings = _flat(launch)
    engine, notes = engine_of(launch)
    sizes = {
        "tp_size": _whole(settings, names.tp, 1),
        "pp_size": _whole(settings, names.pp, 1),
        "dp_size": _whole(settings, names.dp, 1),
    }
    ranks = sizes["tp_size"] * sizes["pp_size"] * sizes["dp_size"]
    if _attention_groups(launch, settings):
        ranks //= sizes["dp_size"]
        settings["attn-dp-size"] = sizes["dp_size"]
        notes.append(f"DP attention: {sizes['dp_size']} groups, each with a cache of its own, within the tensor-parallel ranks")
    options, untold = _options(launch, engine, settings, names, room)
    unknown = _unknown_release(engine, options) or other_platform(launch) or "; ".join(untold)
    options = {name: held for name, held in options.items() if name != "release" or not _unknown_release(engine, options)}
    length, batch = _length(settings, names), _number(settings, names.batch)
    width = _dtype(settings, options)
    request = Request(k_dtype=width, v_dtype=width, options=options)
    copies = 1 if "attn-dp-size" in options else sizes["dp_size"]
    request = replace(request, tp_size=sizes["tp_size"], pp_size=sizes["pp_size"], dp_size=copies)
    notes += _untold(launch, options, names)
    if room.gpu:
        card = find_gpu(room.gpu)
        request = replace(request, options={**engine.on_card(card.bytes, card.name), **request.options})
    loose = _loose(launch, settings, sizes["dp_size"])
    if loose and weights and "attn-dp-size" not in options:  # at least an even part of them, over all ranks
        weights = (ceil_div(weights[0], sizes["dp_size"]), weights[1])
    memory = _memory(launch, engine, request, settings, names, weights, room)
    if memory is not None and room.gpu and not room.overhead and "kv-cache-memory-bytes" not in settings:
        memory = replace(memory, other=_other(engine, model, request, length, room))
    return Question(launch, engine, model, request, names, length, batch, memory, ranks, tuple(notes), unknown, loose)


def _unknown_release(engine: Engine, options: Mapping[str, OptionValue]) -> str:
    """Whose rules stand in for a release that is older than any that is known; nothing where none must."""
    try:
        engine.releases.find(str(options["release"]) if "release" in options else None)
    except EngineError as problem:
        return f"{problem.what}: those of {engine.releases.newest} are taken, and promise nothing"
    return ""


def _loose(launch: Launch, settings: Mapping[str, Any], copies: int) -> str:
    """That experts are split over the ranks of all copies while the rest stands on each, or attention over fewer than all."""
    experts = settings.get("enable-expert-parallel") or settings.get("ep-size") or settings.get("ep_size")
    if copies > 1 and (experts or _attention_groups(launch, settings)):
        return "experts are split over all ranks, and attention stands on several: the weights are at least what is counted"
    return ""


_OTHER = re.compile(r"rocm|amd|gaudi|hpu|tpu|ascend|npu|xpu|neuron|mlu|-cpu", re.IGNORECASE)


def other_platform(launch: Launch) -> str:
    """That a launch is meant for another platform than CUDA, whose backends the rules are; nothing where it isn't."""
    if launch.engine not in ("vllm", "sglang", "tensorrt-llm", "lmdeploy"):
        return ""
    variables = " ".join(name for name in launch.settings if name.startswith("env:"))
    if _OTHER.search(launch.image) or re.search(r"ROCM|AITER|HIP_|HABANA|ASCEND|VLLM_CPU", variables):
        return "the rules are those of CUDA's backends, and this is meant for another platform: they promise nothing"
    return ""


def _attention_groups(launch: Launch, settings: Mapping[str, Any]) -> bool:
    """Whether SGLang's --dp-size counts groups of ranks within the tensor-parallel ones, and not whole copies."""
    sizes = _number(settings, ("dp-size",)) or 1
    return launch.engine == "sglang" and bool(settings.get("enable-dp-attention")) and sizes > 1


def engine_of(launch: Launch) -> tuple[Engine, list[str]]:
    """The engine whose rules count. Raises EngineError where there are none."""
    if launch.engine in ENGINES:
        return find_engine(launch.engine), []
    raise EngineError(f"no rules of {launch.engine} are known here", launch.place, "--settings prints what was read")


def _flat(launch: Launch) -> dict[str, Any]:
    """The settings, with those of TensorRT-LLM's kv_cache_config beside the others."""
    settings = dict(launch.settings)
    inner = settings.get("kv_cache_config")
    if not isinstance(inner, dict):
        return settings
    return {**settings, **{"kv_cache_dtype" if name == "dtype" else name: held for name, held in inner.items()}}


def _number(settings: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        held = settings.get(name)
        if isinstance(held, str) and held.isdecimal() and len(held) < 16:
            held = int(held)
        if isinstance(held, int) and not isinstance(held, bool):
            return held
        if isinstance(held, str) and held != "auto":
            raise UsageError(f"{name} is {held[:60]!r}, which is no number", fix="say what the variable holds: --var NAME=VALUE")
    return None


def _whole(settings: Mapping[str, Any], names: tuple[str, ...], default: int) -> int:
    found = _number(settings, names)
    if found is not None and found < 1:
        raise UsageError(f"{names[0]} is {found}", fix="give 1 or more")
    return default if found is None else found


def _length(settings: Mapping[str, Any], names: Names) -> int | None:
    """The length of one sequence that the line states; none for 0, -1 and auto, which the engine decides."""
    found = _number(settings, names.length)
    if found is None or found < 1:
        return None
    return found


# Settings that have another name among an engine's options here, or another form.
_RENAMED: dict[str, dict[str, str]] = {
    "tensorrt-llm": {"kv_cache_dtype": "kv-cache-dtype", "max_tokens": "max-tokens"},
    "ollama": {
        "OLLAMA_CONTEXT_LENGTH": "num-ctx",
        "num_ctx": "num-ctx",  # stands after the variable, and beats it
        "OLLAMA_NUM_PARALLEL": "num-parallel",
        "OLLAMA_KV_CACHE_TYPE": "kv-cache-type",
        "OLLAMA_FLASH_ATTENTION": "flash-attention",
        "OLLAMA_NEW_ENGINE": "new-engine",
    },
}


def _options(
    launch: Launch, engine: Engine, settings: Mapping[str, Any], names: Names, room: Room
) -> tuple[dict[str, OptionValue], list[str]]:
    """The engine's options that the settings give."""
    known = {option.name for option in engine.options}
    apart = {*names.tp, *names.pp, *names.dp, *names.share, *engine.memory.named_by}
    apart |= set() if names.whole else {*names.length, *names.batch, "max-kv-size"} - {"max-num-seqs", "max-running-requests"}
    texts: dict[str, str] = {}
    for name, held in sorted(settings.items(), key=lambda item: item[0] in names.length[:1]):
        own = _RENAMED.get(launch.engine, {}).get(name, name).replace("_", "-")
        if own in known and own != "dtype" and not {name, own} & apart and not isinstance(held, dict | list):
            texts[own] = str(held).lower() if isinstance(held, bool) else str(held)
    texts |= _derived(launch, settings, known, room)
    return _parsed(engine, texts)


def _parsed(engine: Engine, texts: Mapping[str, str]) -> tuple[dict[str, OptionValue], list[str]]:
    """The options with their values, and those whose value the rules don't know."""
    found: dict[str, OptionValue] = {}
    untold: list[str] = []
    for name, text in texts.items():
        try:
            found |= engine.parse_options([f"{name}={text}"])
        except UsageError:
            untold.append(f"{name} {text[:60]} is not known to the rules")
    return found, untold


# Settings that count by other ways than an option of the same name.
_HANDLED = {
    "quantization",
    *("dtype", "hf-overrides", "json-model-override-args", "rope-scaling", "kv_cache_config", "kv-cache-memory-bytes", "nnodes"),
    *(
        "enable-dp-attention",
        "config",
        "extra_llm_api_options",
        "hf-repo",
        "mmproj",
        "OLLAMA_KV_CACHE_TYPE",
        "speculative-config",
    ),
    *("CUDA_VISIBLE_DEVICES", "env:CUDA_VISIBLE_DEVICES", "env:VLLM_ALLOW_LONG_MAX_MODEL_LEN", "n-gpu-layers"),
}
_DRAFTS = {
    *(
        "speculative-model",
        "spec-model",
        "model-draft",
        "spec-draft-model",
        "hf-repo-draft",
        "draft-model",
        "speculative-draft-model",
    ),
    "speculative-draft-model-path",
}


def _untold(launch: Launch, options: Mapping[str, OptionValue], names: Names) -> list[str]:
    """What was read and is no part of the figures: a draft's own cache, and settings that these rules don't take."""
    apart = {*names.tp, *names.pp, *names.dp, *names.share, *names.length, *names.batch, *_HANDLED, *_DRAFTS}
    rest = [name for name in launch.settings if name not in apart and name.replace("_", "-") not in options]
    spec = launch.settings.get("speculative-config")
    drafts = isinstance(spec, dict) and str(spec.get("method", "")) not in ("ngram", "suffix")
    found = ["the draft's own cache is no part of the figures"] if drafts or _DRAFTS & launch.settings.keys() else []
    return found + (["read, and no part of the figures: " + ", ".join(rest)] if rest else [])


def _derived(launch: Launch, settings: Mapping[str, Any], known: set[str], room: Room) -> dict[str, str]:
    """Options that follow from more than one setting, or from a variable."""
    found: dict[str, str] = {}
    size = _card_bytes(room)
    if "vram" in known and size is not None:
        found["vram"] = str(size)
    if launch.release and "release" in known:
        found["release"] = launch.release
    if str(settings.get("env:VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0")) == "1" and "allow-long-max-model-len" in known:
        found["allow-long-max-model-len"] = "true"
    spec = settings.get("speculative-config")
    if isinstance(spec, dict) and isinstance(spec.get("num_speculative_tokens"), int) and "num-speculative-tokens" in known:
        found["num-speculative-tokens"] = str(spec["num_speculative_tokens"])
    return found


def _dtype(settings: Mapping[str, Any], options: Mapping[str, OptionValue]) -> Dtype | None:
    """The cache's type where the model's own is changed by --dtype, and the cache follows it."""
    width = _WIDTHS.get(str(settings.get("dtype", "")))
    return (
        find_dtype(width) if width and options.get("kv-cache-dtype", "auto") == "auto" and "max_seq_len" not in settings else None
    )


def _share(
    launch: Launch, engine: Engine, settings: Mapping[str, Any], names: Names, options: Mapping[str, OptionValue]
) -> tuple[Fraction, str]:
    """The share of the card that the engine may take: the line's, else the engine's own. Raises UsageError."""
    name = next((name for name in names.share if name in settings), "")
    if not name:
        usual, origin = engine.share(options)
        return Fraction(usual), origin
    held = settings[name]
    share = Fraction(str(held)) if type(held) in (int, float) or re.fullmatch(r"\d{1,3}(\.\d{1,9})?", str(held)) else Fraction(0)
    if not 0 < share <= 1:
        raise UsageError(f"{name} is {str(held)[:60]!r}, which is no share", launch.place, "give a number above 0, at most 1")
    return share, "the line"


def _other(engine: Engine, model: Model, request: Request, length: int | None, room: Room) -> Other | None:
    """What else the engine takes of a whole card, for sequences of the line's length."""
    gpu = find_gpu(room.gpu)
    asked = replace(request, tokens=length or request.tokens)
    return other_memory(engine, model, asked, Card(gpu.bytes, gpu.name, gpu.architecture, gpu.driver_bytes))


def _card_bytes(room: Room) -> int | None:
    """The whole card. Raises UsageError."""
    if room.gpu:
        return find_gpu(room.gpu).bytes
    return parse_bytes(room.memory) if room.memory else None


def _memory(
    launch: Launch,
    engine: Engine,
    request: Request,
    settings: Mapping[str, Any],
    names: Names,
    weights: tuple[int, str] | None,
    room: Room,
) -> Memory | None:
    """The memory of one card and what else lives in it; nothing where no card is named. Raises UsageError."""
    pool = settings.get("kv-cache-memory-bytes")
    if isinstance(pool, int):
        return Memory(pool, origin="--kv-cache-memory-bytes")
    size = _card_bytes(room)
    if size is None:
        return None
    card = find_gpu(room.gpu) if room.gpu else None
    share, origin = _share(launch, engine, settings, names, request.options)
    note = f" ({card.assumed})" if card and card.assumed else ""
    taken, taken_origin = weights or (0, "not known: not counted")
    return Memory(
        device_bytes=size,
        weights=taken,
        overhead=parse_bytes(room.overhead) if room.overhead else 0,
        utilization=share,
        origin=f"{card.name}: {card.gib} GiB usable{note}" if card else "flag --memory",
        weights_origin=taken_origin,
        utilization_origin=origin,
    )
