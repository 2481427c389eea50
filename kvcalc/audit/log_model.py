"""What llama.cpp's own print-out of a model says: the file's keys, and ``print_info``, which has whole what the keys cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvcalc.audit.kept import Kept
from kvcalc.core.log_facts import Beginning, Load

# a key that the log may cut → the line of print_info that has it whole
_WHOLE: Mapping[str, str] = {
    "attention.head_count_kv": "n_head_kv",
    "attention.head_count": "n_head",
    "feed_forward_length": "n_ff",
}
_DECIDING = ("attention.", "feed_forward_length")
_LAYERS_MAX = 10_000
_WIDTH_MAX = 10**7


def file_keys(load: Load) -> dict[str, object] | None:
    """The file's keys, arrays completed; None where one that decides stays cut, or none was printed."""
    arch = load.metadata.get("general.architecture")
    if not isinstance(arch, str):
        return None
    found = dict(load.metadata)
    for key, beginning in load.clipped.items():
        name = key.removeprefix(f"{arch}.")
        if not name.startswith(_DECIDING):
            continue
        items = _completed(load, name, beginning)
        if items is None:
            return None
        found[key] = items
    return found


def _completed(load: Load, name: str, beginning: Beginning) -> list[object] | None:
    """From the same array of print_info; else layers whose widths are alike are alike in this too."""
    length = beginning.length
    if name in _WHOLE and (whole := numbers(load, _WHOLE[name], length)):
        return list(whole)
    widths = [numbers(load, side, length) for side in ("n_embd_k_gqa", "n_embd_v_gqa")]
    if not widths[0] or not widths[1] or not length:
        return None
    kinds = list(zip(widths[0], widths[1], strict=True))
    seen: dict[tuple[int, int], set[object]] = {}
    for kind, item in zip(kinds, beginning.items, strict=False):
        seen.setdefault(kind, set()).add(item)
    if any(len(seen.get(kind, ())) != 1 for kind in kinds):
        return None
    return [next(iter(seen[kind])) for kind in kinds]


def numbers(load: Load, name: str, length: int) -> Sequence[int]:
    """One number a layer, or one for all of them; empty where print_info doesn't say so many."""
    text = load.shape[name].value if name in load.shape else ""
    parts = text.strip().removeprefix("[").removesuffix("]").split(",")
    if not 0 < length <= _LAYERS_MAX or not all(part.strip().isdigit() and len(part) < 12 for part in parts):
        return ()
    found = [int(part) for part in parts]
    return found * length if len(found) == 1 else found if len(found) == length else ()


def printed_layers(load: Load) -> tuple[Kept, ...]:
    """What each layer keeps, by the log alone: its lines of layers, else the widths of print_info, else those of 2023."""
    if load.layer_widths:
        return tuple(Kept(layer, "full", keys, values) for layer, (keys, values) in sorted(load.layer_widths.items()))
    count = _number(load, "n_layer")
    keys, values = numbers(load, "n_embd_k_gqa", count), numbers(load, "n_embd_v_gqa", count)
    if not keys or not values:
        keys = values = [_old_width(load)] * count
    latent = _number(load, "n_embd_head_k_mla") > 0
    return tuple(
        Kept(layer, "full", width, values[layer], latent=latent)
        for layer, width in enumerate(keys)
        if 0 < width < _WIDTH_MAX and count <= _LAYERS_MAX
    )


def _old_width(load: Load) -> int:
    """n_embd, or the share of it that the KV heads have."""
    width, heads = _number(load, "n_embd"), _number(load, "n_head")
    kv_heads = _number(load, "n_head_kv") or heads // max(_number(load, "n_gqa"), 1)
    return width * kv_heads // heads if heads else width


def _number(load: Load, name: str) -> int:
    text = load.shape[name].value if name in load.shape else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
