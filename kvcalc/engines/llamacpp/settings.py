"""What a request asks of llama.cpp, under the engine's own option names and defaults.

Source: llama.cpp 0.5.0-dev, ``common/common.h``, ``tools/server/server.cpp`` (llama-server), ``src/llama-context.cpp``
(llama_context_default_params: the library).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvcalc.core.model import OptionValue, Request
from kvcalc.dtypes import Dtype, find_dtype
from kvcalc.engines.llamacpp.hparams import Hparams
from kvcalc.engines.llamacpp.releases import Release
from kvcalc.engines.options import Option
from kvcalc.errors import EngineError, UsageError

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
LARGEST = 2**32 - 1  # the engine counts in 32 bits

OPTIONS = (
    Option(
        "ctx-size",
        "count",
        "context size over all sequences (n_ctx); 0 takes the model's own",
        "0; library: 512",
        short=("c", "n-ctx"),
    ),
    Option("batch-size", "count", "logical batch size (n_batch)", "2048", short=("b",)),
    Option(
        "ubatch-size", "count", "physical batch size (n_ubatch); a sliding cache keeps so many cells more", "512", short=("ub",)
    ),
    Option(
        "parallel",
        "count",
        "number of sequences (n_seq_max)",
        "4 that share one cache; library: 1",
        minimum=1,
        short=("np", "n-parallel"),
    ),
    Option(
        "kv-unified", "bool", "one cache shared by all sequences", "true unless parallel is given; library: false", short=("kvu",)
    ),
    Option("swa-full", "bool", "keep sliding layers at full length", "false; library: true"),
    Option("cache-type-k", "choice", "type of the keys (also --k-dtype)", "f16", CACHE_TYPES, short=("ctk",)),
    Option("cache-type-v", "choice", "type of the values (also --v-dtype)", "f16", CACHE_TYPES, short=("ctv",)),
    Option(
        "flash-attn",
        "choice",
        "flash attention; off stores values transposed, all as wide as the widest",
        "auto",
        ("auto", "on", "off"),
        short=("fa",),
    ),
    Option("n-rs-seq", "int", "snapshots of recurrent state kept for rolling back speculation", "0"),
    Option(
        "context-type",
        "choice",
        "mtp: the second context, of the blocks that predict further tokens",
        "default",
        ("default", "mtp"),
    ),
    Option(
        "beside-target", "bool", "a draft model that runs beside its target: its own cache, though it can't run alone", "false"
    ),
    Option("defaults", "choice", "whose defaults stand where nothing is said", "server", ("server", "library")),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """A context's parameters before the engine rounds them, and where each came from."""

    ctx_size: int
    parallel: int
    unified: bool
    batch_size: int
    ubatch_size: int
    swa_full: bool
    type_k: Dtype
    type_v: Dtype
    flash_attn: str
    snapshots: int
    mtp: bool
    beside_target: bool
    origins: Mapping[str, str]


class _Choices:
    """Options, flags and defaults, in that order, noting which one spoke."""

    def __init__(self, request: Request, release: Release) -> None:
        self.request = request
        self.options = request.options
        self.library = request.options.get("defaults") == "library"
        self.release = release
        self.origins: dict[str, str] = {}
        self.default = "default of the library" if self.library else "default of llama-server"

    def batch_said(self) -> bool:
        """Whether the request itself gives a number of sequences."""
        return self.request.batch_size > 1 or not self.request.origins.get("batch_size", "default").startswith("default")

    def pick(self, name: str, fallback: OptionValue, origin: str = "") -> OptionValue:
        """An option's value, or the fallback."""
        if name in self.options:
            self.origins[name] = f"-o {name}"
            return self.options[name]
        self.origins[name] = origin or self.default
        return fallback

    def number(self, name: str, fallback: int, origin: str = "") -> int:
        """An option that is a number, within the engine's 32 bits."""
        value = int(self.pick(name, fallback, origin))
        if value > LARGEST and name not in self.options:
            raise EngineError(f"llama.cpp counts in 32 bits: a {name} of {value:,} is beyond them", fix="ask for fewer, or less")
        if value > LARGEST:
            raise UsageError(f"-o {name} is {value:,}, beyond the engine's 32 bits", fix=f"give {LARGEST:,} or less")
        return value


def settings_of(request: Request, hparams: Hparams, release: Release) -> Settings:
    """The request in the engine's terms. Raises UsageError where it contradicts itself."""
    _refuse_ranks(request)
    choices = _Choices(request, release)
    parallel, shared = _parallel(choices)
    ctx_size = _ctx_size(choices, parallel, hparams)
    batch_size = choices.number("batch-size", 2048)
    return Settings(
        ctx_size=ctx_size,
        parallel=parallel,
        unified=release.divides == "shared" or bool(choices.pick("kv-unified", shared)),
        batch_size=batch_size,
        ubatch_size=choices.number("ubatch-size", 512) or batch_size,
        swa_full=bool(choices.pick("swa-full", choices.library)),
        type_k=_type(choices, "cache-type-k", request.k_dtype, "k_dtype"),
        type_v=_type(choices, "cache-type-v", request.v_dtype, "v_dtype"),
        flash_attn=_flash(choices, hparams),
        snapshots=choices.number("n-rs-seq", 0),
        mtp=choices.pick("context-type", "default") == "mtp",
        beside_target=bool(choices.pick("beside-target", False)),
        origins=choices.origins,
    )


def _refuse_ranks(request: Request) -> None:
    if max(request.tp_size, request.pp_size, request.dp_size) > 1:
        raise UsageError(
            "llama.cpp has no parallel ranks: it splits one cache over the devices",
            fix="leave the ranks out; the total is the same",
        )


def _parallel(choices: _Choices) -> tuple[int, bool]:
    """n_seq_max, and whether the sequences share one cache where nothing else is said."""
    request = choices.request
    asked = len(request.lengths) or (request.batch_size if choices.batch_said() else None)
    if asked is not None and "parallel" in choices.options and choices.options["parallel"] != asked:
        raise UsageError(
            f"{asked} sequences are asked for, and -o parallel={choices.options['parallel']} says otherwise",
            fix="give the number once, by --batch or by -o parallel",
        )
    if asked is not None or "parallel" in choices.options:
        return choices.number("parallel", asked or 1, request.origins.get("batch_size", "flag")), False
    if choices.library or _lengths_said(choices):
        return choices.number("parallel", 1), False
    return choices.number("parallel", choices.release.server_sequences), choices.release.server_sequences > 1


def _lengths_said(choices: _Choices) -> bool:
    return bool(choices.request.lengths) or choices.request.tokens is not None


def _ctx_size(choices: _Choices, parallel: int, hparams: Hparams) -> int:
    """n_ctx: of all sequences together."""
    request = choices.request
    if _lengths_said(choices):
        wanted = parallel * max(request.lengths, default=request.tokens or 0)
        given = choices.options.get("ctx-size", wanted)
        if given != wanted:
            raise UsageError(
                f"{parallel} x {wanted // parallel:,} tokens make a context of {wanted:,}, and -o ctx-size={given} differs",
                fix="give --tokens or -o ctx-size, not both",
            )
        return choices.number("ctx-size", wanted, f"{request.origins.get('tokens', 'tokens')}, times {parallel}")
    size = choices.number("ctx-size", 512 if choices.library else choices.release.server_context)
    if size:
        return size
    if not hparams.context:
        raise EngineError("llama.cpp refuses: neither the file nor the request names a context length", fix="give -o ctx-size")
    choices.origins["ctx-size"] += f": {hparams.name}.context_length"
    return hparams.context


def _type(choices: _Choices, option: str, asked: Dtype | None, field: str) -> Dtype:
    """The type of one side of the cache."""
    named = choices.options.get(option)
    if asked is not None and named is not None and find_dtype(str(named)) != asked:
        raise UsageError(f"--{field.replace('_', '-')} is {asked}, and -o {option}={named} says otherwise", fix="give it once")
    if asked is None:
        return find_dtype(str(choices.pick(option, "f16")))
    choices.origins[option] = choices.request.origins.get(field, "flag")
    if asked not in [find_dtype(name) for name in CACHE_TYPES]:
        raise EngineError(f"llama.cpp has no cache of type {asked}", fix=f"one of {', '.join(CACHE_TYPES)}")
    return asked


def _flash(choices: _Choices, hparams: Hparams) -> str:
    """auto, on or off; some architectures force it off."""
    value = str(choices.pick("flash-attn", "auto"))
    if value == "auto" and not choices.release.flash_by_default:
        value = "off"
    if hparams.arch.no_flash and value != "off":
        choices.origins["flash-attn"] = f"forced off for {hparams.name}"
        return "off"
    return value
