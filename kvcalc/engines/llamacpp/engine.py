"""llama.cpp: the context memory that it allocates, byte for byte.

    cells = n_ctx, up to a multiple of 256, divided among the sequences and rounded up again, unless they share one cache
    bytes = row(type_k, head_k · kv_heads) · cells · streams, and so for the values; row(type, n) = n / block · block bytes
    sliding layers: min(cells, window · sequences that share it + n_ubatch), up to a multiple of 256
    recurrent layers: float32, whatever the cache type, once for each sequence

Source: llama.cpp 0.5.0-dev, commit 0c1e5709 (2026-10-01), and older releases as named; checked on the engine, whose own
figures for the same files agree on every byte.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from kvcalc.core.model import Model, Request, Tally
from kvcalc.engines.base import SERVED, Counted, Engine, Figure, Serving
from kvcalc.engines.llamacpp.arches import ARCHES, MTP_GRAPHS, SPLIT_BY_BLOCK, UNUSABLE
from kvcalc.engines.llamacpp.caches import Context, Layout, Memory, memory_of
from kvcalc.engines.llamacpp.hparams import Hparams
from kvcalc.engines.llamacpp.metadata import gguf_name, metadata_of
from kvcalc.engines.llamacpp.releases import BY_NAME, RELEASES, Release, release_of
from kvcalc.engines.llamacpp.settings import LARGEST, OPTIONS, Settings, settings_of
from kvcalc.engines.llamacpp.tally import cache_bytes, caches_report, tally_layers
from kvcalc.engines.releases import Rules
from kvcalc.errors import EngineError, UsageError
from kvcalc.units import ceil_div, round_up


def hparams_of(model: Model, release: Release) -> Hparams:
    """The engine's view of a model whose architecture it has. Raises EngineError where it refuses the file."""
    name, metadata = metadata_of(model, latents=release.latents)
    if not release.latents and metadata.get(f"{name}.attention.key_length_mla"):
        raise EngineError(
            f"llama.cpp {release.name} can't load the file: it was converted for builds that store a latent, b5135 or later",
            model.source,
            "name a later -o release",
        )
    return release.read(metadata, name, model.source)


def lacking(name: str, release: Release, where: str) -> Serving:
    """Whether a release has an architecture."""
    if name in UNUSABLE:
        return Serving(f"llama.cpp can't make a context for {name}: {UNUSABLE[name]}", where=where, fix="")
    if name not in ARCHES:
        what = f"the architecture {name[:60]!r} is not among those of llama.cpp {release.name} that are modelled"
        return Serving(what, where=where, fix="use --engine exact, or a newer kvcalc")
    if name not in release.arches:
        since = next(later.name for later in BY_NAME.values() if name in later.arches)
        what = f"llama.cpp {release.name} doesn't know the architecture {name!r}; {since} does"
        return Serving(what, where=where, fix=f"-o release={since}, or a later one")
    return SERVED


def check(settings: Settings, hparams: Hparams, release: Release) -> None:
    """The engine's own refusals, in its order. Raises EngineError."""
    if settings.batch_size == 0 and settings.ubatch_size == 0:
        raise EngineError("llama.cpp refuses: batch-size and ubatch-size are both 0", fix="give one of them")
    _check_types(settings, hparams, release)
    if settings.mtp and not _predicts(hparams, release):
        raise EngineError(
            "llama.cpp refuses an MTP context: the file has no blocks that predict further tokens, or it no graph for them",
            hparams.name,
            "leave -o context-type out",
        )
    if settings.parallel > release.max_sequences:
        raise EngineError(
            f"llama.cpp refuses {settings.parallel:,} sequences: {release.max_sequences} is the most", fix="lower parallel"
        )
    _check_draft(hparams, settings)
    _check_reuse(hparams)


def _check_types(settings: Settings, hparams: Hparams, release: Release) -> None:
    single = hparams.mla or hparams.arch.memory == "compressed"
    if release.same_types and single and settings.type_k != settings.type_v:
        raise EngineError(
            f"llama.cpp refuses K ({settings.type_k}) and V ({settings.type_v}) of different types for {hparams.name}",
            fix="its keys and values are one array: give both the same type",
        )
    if settings.type_v.block_elements > 1 and settings.flash_attn == "off":
        raise EngineError(
            f"llama.cpp refuses a quantised V cache ({settings.type_v}) without flash attention",
            fix="-o flash-attn=auto, or a V type without blocks",
        )
    if settings.flash_attn == "off" or not release.checks_heads:
        return
    for side, dtype, width in (("K", settings.type_k, hparams.head_k), ("V", settings.type_v, hparams.head_v)):
        for layer in range(hparams.trunk):
            if width(layer) % dtype.block_elements:
                raise EngineError(
                    f"llama.cpp refuses {dtype} for {side}: blocks of {dtype.block_elements} don't fill heads of {width(layer)}",
                    f"{hparams.name}, layer {layer}",
                    "take a type without blocks (f16, bf16)",
                )


def _check_draft(hparams: Hparams, settings: Settings) -> None:
    if not hparams.alone and not settings.beside_target:
        reads = "it reads the cache" if hparams.arch.beside == "always" else "it takes the embeddings"
        raise EngineError(
            f"llama.cpp makes no context for this {hparams.name} file alone: {reads} of the model that it drafts for",
            fix="-o beside-target counts what it adds beside that model",
        )


def _check_reuse(hparams: Hparams) -> None:
    """Layers without a cache read the last dense or the last sliding one before them, which must be of that kind."""
    first = hparams.kv_layers
    if first is None or not any(hparams.slides) or first >= hparams.layers:
        return
    broken = first < 2 or not hparams.slides[first - 2] or hparams.slides[first - 1]
    readers = {hparams.slides[layer] for layer in range(first, hparams.layers)}
    if broken and ((True in readers and not hparams.slides[first - 2]) or (False in readers and hparams.slides[first - 1])):
        raise EngineError(
            f"llama.cpp aborts on this file: layers from {first} on would read caches that layers {first - 2}, {first - 1} lack",
            hparams.name,
        )


def _memory(hparams: Hparams, settings: Settings, release: Release, draft: bool) -> Memory:
    """The context's caches; with ``draft`` those of the second context as well, which drafts with the last blocks."""
    layout = _layout(settings, release)
    main = memory_of(hparams, layout)
    if not draft or settings.mtp or not _predicts(hparams, release):
        return main
    second = memory_of(hparams, replace(layout, mtp=True))
    drafts = tuple(replace(cache, name=f"mtp {cache.name}") for cache in second.caches)
    return Memory((*main.caches, *drafts), main.states, main.compressors)


def _predicts(hparams: Hparams, release: Release) -> bool:
    """Whether a second context can be made, for the blocks that predict further tokens."""
    if release.nextn_arches is not None or hparams.nextn == 0 or hparams.arch.router:
        return False
    return hparams.name in MTP_GRAPHS or hparams.arch.memory not in SPLIT_BY_BLOCK


def _layout(settings: Settings, release: Release) -> Layout:
    widened = settings.flash_attn == "off" and release.widest_values
    return Layout(transposed=widened, mtp=settings.mtp, latent_values=release.latent_values)


def context_of(settings: Settings, hparams: Hparams, release: Release) -> Context:
    """n_ctx rounded and divided as the release does."""
    raw = settings.ctx_size
    pad = release.pad_without_flash if settings.flash_attn == "off" else 256
    batch = min(raw, settings.batch_size) if hparams.causal else settings.batch_size
    batch = max(batch, release.smallest_batch)
    ubatch = min(batch, settings.ubatch_size)
    beyond = batch if release.window_batch else ubatch
    cells = _cells(raw, pad, settings, hparams, release)
    snapshots = settings.snapshots if hparams.arch.rollback else 0
    return Context(
        cells, settings.parallel, settings.unified, ubatch, beyond, settings.swa_full, pad, snapshots, release.window_rounded_last
    )


def _cells(raw: int, pad: int, settings: Settings, hparams: Hparams, release: Release) -> int:
    """n_ctx_seq: the cells of each stream."""
    whole = round_up(raw, pad)
    if settings.unified:
        return whole
    hybrid = release.hybrid_undivided and hparams.arch.memory == "hybrid"
    if release.divides == "rounded up":
        return whole if hybrid else round_up(ceil_div(raw, settings.parallel), pad)
    each = round_up(whole // settings.parallel, pad)
    return each * settings.parallel if hybrid else each


def _warnings(settings: Settings, context: Context, hparams: Hparams) -> list[str]:
    found = []
    given = context.cells * (1 if context.unified else context.sequences)
    if given > max(2 * settings.ctx_size, settings.ctx_size + 4096):
        found.append(
            f"each of {context.sequences} sequences is rounded up to {context.cells:,} cells: {given:,} for {settings.ctx_size:,}"
        )
    if settings.snapshots and not hparams.arch.rollback:
        found.append(f"{hparams.name} keeps no snapshots: n-rs-seq is ignored")
    if hparams.arch.beside == "without embeddings" and hparams.alone and not settings.beside_target:
        found.append("a draft model: where its file lacks embeddings the engine makes this context only beside its target's")
    return found


def _converted(model: Model) -> tuple[str, ...]:
    if model.format == "gguf":
        return ()
    return ("the GGUF keys are those that llama.cpp's converter would write for this model",)


def _shrinks(settings: Settings, release: Release) -> tuple[str, ...]:
    if not settings.origins["ctx-size"].startswith("default of llama-server:") or release.nextn_arches is not None:
        return ()
    return ("llama-server fits a context that is not asked for to the free device memory: this is the most that it takes",)


def _notes(settings: Settings, hparams: Hparams, memory: Memory) -> tuple[str, ...]:
    if hparams.arch.memory == "none":
        why = "it reads its target's" if hparams.arch.beside else "it sees the whole text at each step"
        return (f"llama.cpp keeps no cache for this architecture: {why}",)
    widest = max((row.values or 0 for cache in memory.caches for row in cache.rows), default=0)
    if settings.flash_attn == "off" and any(hparams.row_v(row.layer) < widest for cache in memory.caches for row in cache.rows):
        return (f"without flash attention every layer's values are stored as wide as the widest layer's ({widest} elements)",)
    return ()


def _resolved(settings: Settings, context: Context) -> dict[str, tuple[object, str]]:
    origins = settings.origins
    return {
        "batch_size": (context.sequences, origins["parallel"]),
        "tokens": (context.cells, f"{origins['ctx-size']}, rounded by the engine"),
        "k_dtype": (settings.type_k.name, origins["cache-type-k"]),
        "v_dtype": (settings.type_v.name, origins["cache-type-v"]),
        "ctx-size": (settings.ctx_size, origins["ctx-size"]),
        "batch-size": (settings.batch_size, origins["batch-size"]),
        "kv-unified": (settings.unified, origins.get("kv-unified", "this release shares one cache")),
        "swa-full": (settings.swa_full, origins["swa-full"]),
        "ubatch-size": (context.ubatch, f"{origins['ubatch-size']}, at most the batch and the context"),
        "flash-attn": (settings.flash_attn, origins["flash-attn"]),
    }


def _report(settings: Settings, context: Context, hparams: Hparams, memory: Memory, release: Release) -> dict[str, object]:
    return {
        "release": release.name,
        "architecture": hparams.name,
        "n_ctx": context.cells * (1 if context.unified else context.sequences),
        "n_ctx_seq": context.cells,
        "n_seq_max": context.sequences,
        "n_batch": min(settings.ctx_size, settings.batch_size) if hparams.causal else settings.batch_size,
        "n_ubatch": context.ubatch,
        "n_rs_seq": context.snapshots,
        "context_type": "mtp" if settings.mtp else "default",
        "kv_unified": context.unified,
        "swa_full": context.swa_full,
        "flash_attn": settings.flash_attn,
        "type_k": settings.type_k.name,
        "type_v": settings.type_v.name,
        "caches": caches_report(memory, context, settings.type_k, settings.type_v),
    }


class LlamaCppPlan(Counted):
    """One context: the file is read once, then a length costs a few products."""

    def __init__(self, engine: Engine, model: Model, request: Request, rules: Rules) -> None:
        super().__init__(engine, model, request, rules)
        self.release = release_of(rules)
        self.hparams = hparams_of(model, self.release)

    def allocate(self) -> Tally:
        """The engine's context memory. Raises EngineError where the engine refuses, UsageError."""
        hparams, release = self.hparams, self.release
        settings = settings_of(self.request, hparams, release)
        check(settings, hparams, release)
        context, memory = context_of(settings, hparams, release), _memory(hparams, settings, release, self.request.draft)
        return Tally(
            tally_layers(hparams, memory, context, settings.type_k, settings.type_v),
            request=_resolved(settings, context),
            report=_report(settings, context, hparams, memory, release),
            warnings=tuple(text for text in _warnings(settings, context, hparams) if text),
            notes=(*_converted(self.model), *_shrinks(settings, release), *_notes(settings, hparams, memory)),
        )

    def resized(self, request: Request) -> LlamaCppPlan:
        """The same context with other sequences: the file is not read again."""
        plan = copy(self)
        vars(plan).pop("tally", None)
        plan.request = request
        return plan

    def counter(self) -> Figure:
        """(batch_size, tokens) → bytes."""
        request, hparams, release = self.request, self.hparams, self.release
        if "ctx-size" in request.options:
            raise UsageError("a context size is given, and lengths besides", fix="leave -o ctx-size out: it follows from both")
        fixed = request.options.get("parallel")
        settings = settings_of(replace(request, tokens=256, batch_size=1, lengths=(), origins={}), hparams, release)
        check(settings, hparams, release)
        rows = cache_bytes(_memory(hparams, settings, release, request.draft), settings.type_k, settings.type_v)

        def figure(batch_size: int, tokens: int) -> int:
            sequences = batch_size if fixed is None else int(fixed)
            if batch_size != sequences or sequences > release.max_sequences or sequences * tokens > LARGEST:
                settings_of(replace(request, tokens=tokens, batch_size=batch_size), hparams, release)  # says what is wrong
                check(replace(settings, parallel=sequences), hparams, release)
            return rows(context_of(replace(settings, ctx_size=sequences * tokens, parallel=sequences), hparams, release))

        return figure

    @property
    def step(self) -> int:
        """Cells come by the 256; by the 32 in older releases without flash attention."""
        flash = self.request.options.get("flash-attn", "auto")
        off = flash == "off" or (flash == "auto" and not self.release.flash_by_default)
        return self.release.pad_without_flash if off else 256

    def longer(self, tokens: int) -> LlamaCppPlan:
        """The same context with so many cells more a sequence; where no length was given, ctx-size grows."""
        request, report = self.request, self.tally.report
        if request.tokens is not None:
            grown = request.at(request.tokens + tokens)
            kept = {name: value for name, value in request.options.items() if name != "ctx-size"}
            return self.resized(replace(grown, options=kept))
        streams = 1 if report["kv_unified"] else int(str(report["n_seq_max"]))
        size = int(str(report["n_ctx"])) + tokens * streams
        return self.resized(replace(request, options={**request.options, "ctx-size": size}))


class LlamaCpp(Engine):
    """llama.cpp's context memory."""

    name = "llama.cpp"
    source = "llama.cpp commit 0c1e5709 (2026-10-01): src/llama-model.cpp, src/llama-kv-cache*.cpp, src/llama-memory-*.cpp"
    evidence = "measured: every byte of each cache, on the engine itself"
    releases = RELEASES
    own_options = OPTIONS
    reads_file = True
    sequences_option = "parallel"
    excluded = (
        "weights",
        "compute and output buffers",
        "llama-server's prompt cache in main memory (--cache-ram, up to 8 GiB)",
    )

    def serves(self, model: Model, rules: Rules) -> Serving:
        """Architectures that the release has; of a config.json, those that the converter makes of its type."""
        try:
            name = gguf_name(model)
        except EngineError as problem:
            return Serving(problem.what, where=problem.where, fix=problem.fix)
        return lacking(name, release_of(rules), model.source)

    def plan_under(self, rules: Rules, model: Model, request: Request) -> LlamaCppPlan:
        """The context of a request."""
        return LlamaCppPlan(self, model, request, rules)


ENGINE = LlamaCpp()
