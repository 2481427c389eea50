"""Which caches llama.cpp makes for a model, and how many cells each has.

A ``Cache`` is one allocated llama_kv_cache: some layers, a row of keys and one of values each, and a rule for its
cells. Source: llama.cpp 0.5.0-dev, ``src/llama-model.cpp: create_memory``, ``src/llama-kv-cache*.cpp``,
``src/llama-memory-*.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvcalc.engines.llamacpp.hparams import Hparams
from kvcalc.units import ceil_div, round_up

CSA_RATIO = 4  # DeepSeek V4: sparse layers, one compressed row every 4 tokens
HCA_RATIO = 128  # and heavily compressed layers, one every 128
F32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Context:
    """A context's sizes after the engine's own rounding."""

    cells: int  # n_ctx_seq: of each stream
    sequences: int  # n_seq_max
    unified: bool
    ubatch: int
    beyond_window: int  # positions that a sliding cache has room for besides its windows
    swa_full: bool
    pad: int  # cells come in multiples of it
    snapshots: int = 0  # n_rs_seq
    window_rounded_last: bool = False  # older releases round the window up and cut at the context, not the other way


@dataclass(frozen=True, slots=True)
class Row:
    """One layer's part of a cache: elements of a position's keys and values (None: no values are kept)."""

    layer: int
    heads: int
    keys: int
    values: int | None


@dataclass(frozen=True, slots=True)
class Cache:
    """One allocation. ``reach`` is full, window, csa or hca; ``split`` keeps streams apart even in unified mode."""

    name: str
    rows: tuple[Row, ...]
    reach: str = "full"
    window: int = 0
    split: bool = False
    component: str = "kv"

    def streams(self, context: Context) -> int:
        """Copies: one for each sequence unless they share."""
        return 1 if context.unified and not self.split else context.sequences

    def cells(self, context: Context) -> int:
        """Positions of one stream."""
        if self.reach == "csa":
            return round_up(ceil_div(context.cells, CSA_RATIO), 256)
        if self.reach == "hca":
            return round_up(ceil_div(context.cells, HCA_RATIO), 256)
        if self.reach == "full" or context.swa_full:
            return context.cells
        wanted = self.window * (context.sequences if context.unified and not self.split else 1) + context.beyond_window
        if context.window_rounded_last:
            return min(context.cells, round_up(wanted, context.pad))
        return round_up(min(context.cells, wanted), 256)


@dataclass(frozen=True, slots=True)
class StateRow:
    """One recurrent layer: float32 elements of R (shifted tokens, convolutions), S (states) and P (qwen4exp)."""

    layer: int
    conv: int
    state: int
    history: int = 0


@dataclass(frozen=True, slots=True)
class Compressor:
    """DeepSeek V4: float32 keys and scores of the open groups, ``elements`` of each."""

    layer: int
    elements: int


@dataclass(frozen=True, slots=True)
class Memory:
    """All that a context keeps of the past."""

    caches: tuple[Cache, ...] = ()
    states: tuple[StateRow, ...] | None = None  # None: no recurrent memory at all
    compressors: tuple[Compressor, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """What of a context decides the caches' shape, not their length."""

    transposed: bool = False  # flash attention off: values are stored transposed
    mtp: bool = False  # a context for the multi-token-prediction blocks
    latent_values: bool = False  # older releases keep the latent's values apart


Chosen = Callable[[int], bool]


def memory_of(hparams: Hparams, layout: Layout) -> Memory:
    """The caches of one context."""
    return _MEMORIES[hparams.arch.memory](hparams, layout)


def _cache(hparams: Hparams, layout: Layout, name: str, chosen: Chosen, k_only: bool = False, reach: str = "full") -> Cache:
    """A plain cache over the layers ``chosen``.

    Transposed values can't differ in width, so each layer gets the widest of all layers, cached or not.
    """
    layers = [layer for layer in range(hparams.layers) if _has_kv(hparams, layer) and chosen(layer)]
    widest = max(hparams.row_v(layer) for layer in range(hparams.layers))
    no_values = k_only or (hparams.mla and not layout.latent_values)
    rows = tuple(
        Row(
            layer,
            hparams.kv_heads[layer],
            hparams.row_k(layer),
            None if no_values else widest if layout.transposed else hparams.row_v(layer),
        )
        for layer in layers
    )
    return Cache(name, rows, reach, hparams.window or 0)


def _index_cache(hparams: Hparams, chosen: Chosen, width: int, values: Callable[[int], int] | None = None) -> Cache:
    """Index keys of one head a layer."""
    layers = [layer for layer in range(hparams.layers) if _has_kv(hparams, layer) and chosen(layer)]
    rows = tuple(
        Row(layer, 1, hparams.k_width_swa if hparams.slides[layer] else width, values(layer) if values else None)
        for layer in layers
    )
    return Cache("indexer", rows, component="index")


def _has_kv(hparams: Hparams, layer: int) -> bool:
    return hparams.kv_layers is None or layer < hparams.kv_layers


def _pair(hparams: Hparams, layout: Layout, chosen: Chosen, k_only: bool = False) -> tuple[Cache, ...]:
    """Two caches: the dense layers, and the sliding ones."""
    dense = _cache(hparams, layout, "base", lambda layer: chosen(layer) and not hparams.slides[layer], k_only)
    sliding = _cache(hparams, layout, "swa", lambda layer: chosen(layer) and hparams.slides[layer], k_only, "window")
    return dense, sliding


def _attention(hparams: Hparams, layout: Layout, chosen: Chosen) -> tuple[Cache, ...]:
    if hparams.window is not None:
        return _pair(hparams, layout, chosen)
    return (_cache(hparams, layout, "attn", chosen),)


def _everything(_layer: int) -> bool:
    return True


def _blocks(hparams: Hparams, layout: Layout) -> Chosen:
    """The predicting blocks for an MTP context, else those before them."""
    trunk = hparams.trunk
    return (lambda layer: layer >= trunk) if layout.mtp else (lambda layer: layer < trunk)


def _plain(hparams: Hparams, layout: Layout) -> Memory:
    filtered = hparams.nextn > 0 and hparams.trunk > 0 and not hparams.arch.router
    chosen = _blocks(hparams, layout) if filtered else _everything
    return Memory(_attention(hparams, layout, chosen))


def _none(_hparams: Hparams, _layout: Layout) -> Memory:
    return Memory()


def _states(hparams: Hparams, chosen: Iterable[int]) -> tuple[StateRow, ...]:
    return tuple(
        StateRow(layer, hparams.conv_state, hparams.state, hparams.ple_state if layer == hparams.ple_layer else 0)
        for layer in chosen
    )


def _recurrent(hparams: Hparams, _layout: Layout) -> Memory:
    return Memory(states=_states(hparams, range(hparams.trunk)))


def _hybrid(hparams: Hparams, layout: Layout) -> Memory:
    if layout.mtp and hparams.arch.mtp_plain:
        return Memory(_attention(hparams, layout, _blocks(hparams, layout)))
    attends, keeps = _hybrid_layers(hparams)
    states = _states(hparams, [layer for layer in range(hparams.trunk) if keeps(layer)])
    return Memory(_attention(hparams, layout, attends), states)


def _hybrid_layers(hparams: Hparams) -> tuple[Chosen, Chosen]:
    """Which layers attend, and which keep a state."""
    recurrent, trunk = hparams.recurrent, hparams.trunk
    match hparams.arch.recurrent:
        case "both":
            return _everything, _everything
        case "blocks":
            idle = [width > 0 for width in hparams.feed_forward]
            return (lambda layer: not recurrent[layer] and not idle[layer]), (lambda layer: recurrent[layer] and not idle[layer])
        case "interval":
            return (lambda layer: layer < trunk and not recurrent[layer]), (lambda layer: recurrent[layer])
        case _:
            return (lambda layer: not recurrent[layer]), (lambda layer: recurrent[layer])


def _hybrid_indexed(hparams: Hparams, layout: Layout) -> Memory:
    """qwen4exp: index keys on the attention layers."""
    plain = _hybrid(hparams, layout)
    attends, _ = _hybrid_layers(hparams)
    if not hparams.index_width:
        return plain
    return Memory((*plain.caches, _index_cache(hparams, attends, hparams.index_width)), plain.states)


def _hybrid_pooled(hparams: Hparams, layout: Layout) -> Memory:
    """glm5-next: key, gate and pooled key of every position; its MTP context is one such layer."""
    trunk, recurrent = hparams.trunk, hparams.recurrent
    width = 3 * hparams.index_width
    if layout.mtp:
        chosen = _blocks(hparams, layout)
        return Memory((_cache(hparams, layout, "attn", chosen), _index_cache(hparams, chosen, width)), ())

    def attends(layer: int) -> bool:
        return layer < trunk and not recurrent[layer]

    index = _index_cache(hparams, lambda layer: attends(layer) and hparams.indexed[layer], width)
    states = _states(hparams, [layer for layer in range(trunk) if recurrent[layer]])
    return Memory((_cache(hparams, layout, "attn", attends), index), states)


def _indexed_pair(hparams: Hparams, layout: Layout, chosen: Chosen, indexed: Chosen) -> tuple[Cache, ...]:
    """The latent (or full) rows, and the index keys; index values only where the model is no latent one."""
    widest = max(hparams.head_v(layer) for layer in range(hparams.layers))
    values = None if hparams.mla else (lambda layer: widest if layout.transposed else hparams.head_v(layer))
    index = _index_cache(hparams, indexed, hparams.index_width, values)
    return _cache(hparams, layout, "mla", chosen), index


def _dsa(hparams: Hparams, layout: Layout) -> Memory:
    if layout.mtp:
        return Memory((_cache(hparams, layout, "attn", _blocks(hparams, layout)),))
    trunk = hparams.trunk
    return Memory(
        _indexed_pair(hparams, layout, lambda layer: layer < trunk, lambda layer: layer < trunk and hparams.indexed[layer])
    )


def _dsa_unfiltered(hparams: Hparams, layout: Layout) -> Memory:
    """hy_v4: every block, in both kinds of context; without an indexer a plain cache."""
    if not hparams.index_width:
        return Memory((_cache(hparams, layout, "attn", _everything),))
    return Memory(_indexed_pair(hparams, layout, _everything, lambda layer: hparams.indexed[layer]))


def _dsa_window(hparams: Hparams, layout: Layout) -> Memory:
    """dots3note: the dense layers with an indexer, the sliding ones in a cache of their own."""
    if layout.mtp:
        return Memory((_cache(hparams, layout, "attn", _blocks(hparams, layout)),))
    trunk, slides = hparams.trunk, hparams.slides
    dense, index = _indexed_pair(
        hparams,
        layout,
        lambda layer: layer < trunk and not slides[layer],
        lambda layer: layer < trunk and hparams.indexed[layer],
    )
    return Memory((dense, index, _cache(hparams, layout, "swa", lambda layer: layer < trunk and slides[layer], reach="window")))


def _msa(hparams: Hparams, layout: Layout) -> Memory:
    """minimax-m3: index keys from the first sparse layer on, and values beside them that nothing reads."""
    widest = max(hparams.head_v(layer) for layer in range(hparams.layers))
    index = _index_cache(
        hparams,
        lambda layer: layer >= hparams.dense_lead,
        hparams.index_width,
        lambda layer: widest if layout.transposed else hparams.head_v(layer),
    )
    return Memory((_cache(hparams, layout, "base", _everything), index))


def _compressed(hparams: Hparams, layout: Layout) -> Memory:
    """deepseek4: raw rows in a window, compressed rows by ratio, index rows, and the open groups in float32."""
    if layout.mtp:
        return Memory(_pair(hparams, layout, _blocks(hparams, layout)))
    ratio = hparams.compress
    raw = _pair(hparams, layout, _everything, k_only=True)
    sparse = _cache(hparams, layout, "csa", lambda layer: ratio[layer] == CSA_RATIO, k_only=True, reach="csa")
    heavy = _cache(hparams, layout, "hca", lambda layer: ratio[layer] == HCA_RATIO, k_only=True, reach="hca")
    index = Cache("indexer", tuple(Row(row.layer, 1, hparams.index_width, None) for row in sparse.rows), "csa", component="index")
    found = [("raw_base", raw[0]), ("raw_swa", raw[1]), ("csa", sparse), ("hca", heavy), ("indexer", index)]
    caches = tuple(Cache(name, one.rows, one.reach, one.window, True, one.component) for name, one in found)
    return Memory(caches, compressors=_compressors(hparams))


def _compressors(hparams: Hparams) -> tuple[Compressor, ...]:
    """Keys and scores: 2 · 4 rows of 2 heads for a ratio of 4 (and as many of 2 index rows), 128 rows for 128."""
    head = hparams.head_k(0)
    sizes = {
        CSA_RATIO: 2 * (2 * CSA_RATIO) * (2 * head + 2 * hparams.index_width),
        HCA_RATIO: 2 * HCA_RATIO * head,
    }
    return tuple(
        Compressor(layer, sizes[hparams.compress[layer]]) for layer in range(hparams.trunk) if hparams.compress[layer] in sizes
    )


def _draft_flash(hparams: Hparams, layout: Layout) -> Memory:
    if hparams.hyper_connections:
        return Memory(_pair(hparams, layout, _everything))
    return _plain(hparams, layout)


_MEMORIES: dict[str, Callable[[Hparams, Layout], Memory]] = {
    "kv": _plain,
    "none": _none,
    "recurrent": _recurrent,
    "hybrid": _hybrid,
    "hybrid_indexed": _hybrid_indexed,
    "hybrid_pooled": _hybrid_pooled,
    "dsa": _dsa,
    "dsa_unfiltered": _dsa_unfiltered,
    "dsa_window": _dsa_window,
    "msa": _msa,
    "compressed": _compressed,
    "draft_flash": _draft_flash,
}
