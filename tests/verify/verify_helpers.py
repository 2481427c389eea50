"""Small models of every layer kind, and a run of them."""

from __future__ import annotations

from typing import Any

from kvcalc.core.fields import Fields
from kvcalc.core.layers import (
    ChunkedAttention,
    CompressedAttention,
    Conv,
    CrossAttention,
    FullAttention,
    Indexer,
    LatentAttention,
    Layer,
    NoCache,
    Part,
    Recurrent,
    Shared,
    SlidingAttention,
    State,
)
from kvcalc.core.model import Model, Request
from kvcalc.dtypes import find_dtype
from kvcalc.verify.results import Settings, VerifyReport
from kvcalc.verify.run import verify


def buffers(ratio: int, width: int, halves: int) -> int:
    """DeepSeek V4's compressor: numbers and gates of ``halves`` groups, ``halves`` series each."""
    return 2 * halves * ratio * halves * width


RECURRENT: dict[str, Recurrent] = {
    "mamba": Recurrent("mamba", (Conv(24, 4),), (State((24, 8)),)),
    "mamba, state in the model's type": Recurrent("mamba", (Conv(24, 4),), (State((24, 8), None),)),
    "mamba2": Recurrent("mamba2", (Conv(4 * 16 + 2 * 2 * 8, 4),), (State((4, 16, 8)),), num_groups=2),
    "mamba2, bfloat16 state": Recurrent("mamba2", (Conv(4 * 16 + 2 * 2 * 8, 4),), (State((4, 16, 8), "bfloat16"),)),
    "gated_delta_net": Recurrent("gated_delta_net", (Conv(2 * 2 * 16 + 4 * 24, 4),), (State((4, 24, 16)),)),
    "kda": Recurrent("kda", (Conv(3 * 16, 4),) * 3, (State((3, 16, 16)),)),
    "lightning": Recurrent("lightning", (), (State((3, 16, 16)),)),
    "lightning, model's type": Recurrent("lightning", (), (State((3, 16, 16), None),)),
    "short_conv": Recurrent("short_conv", (Conv(32, 3),)),
    "rg_lru": Recurrent("rg_lru", (Conv(32, 4),), (State((32,)),)),
    "rwkv": Recurrent("rwkv", (), (State((2, 48), None), State((3, 16, 16)))),
    "rwkv4": Recurrent("rwkv", (), (State((2, 48), None), State((3, 48)))),
    "mlstm": Recurrent("mlstm", (), (State((3, 8, 16)), State((3, 8)), State((3,)))),
}
LAYERS: dict[str, Layer] = {
    "full": (FullAttention(2, 16, 16, 6),),
    "full, narrow values": (FullAttention(2, 24, 8, 2),),
    "full, one key head": (FullAttention(1, 16, 16, 8),),
    "sliding": (SlidingAttention(2, 16, 24, 13, 4),),
    "sliding, window of one": (SlidingAttention(1, 16, 16, 1, 2),),
    "chunked": (ChunkedAttention(2, 16, 16, 11, 4),),
    "mla": (LatentAttention(24, 8, 3, 16, 12),),
    "mla, sizes unknown": (LatentAttention(24, 8),),
    "mla, window": (LatentAttention(24, 8, 3, 16, 12, window=9),),
    "mla and indexer": (LatentAttention(24, 8, 3, 16, 12), Indexer(16)),
    "full and indexer": (FullAttention(2, 16, 16, 4), Indexer(16)),
    "full and cross": (FullAttention(2, 16, 16, 4), CrossAttention(2, 16, 16, 4)),
    "compressed, window alone": (CompressedAttention(32, 9),),
    "compressed": (CompressedAttention(32, 9, ratio=8, buffer_elements=buffers(8, 32, 1), num_heads=3),),
    "compressed, overlap and indexer": (
        CompressedAttention(32, 9, ratio=4, index_head_dim=16, buffer_elements=buffers(4, 48, 2), num_heads=3),
    ),
    "parallel hybrid": (FullAttention(2, 16, 16, 4), RECURRENT["mamba2"]),
    **{name: (part,) for name, part in RECURRENT.items()},
}
EVERYTHING: tuple[Layer, ...] = (
    *LAYERS.values(),
    (SlidingAttention(2, 16, 16, 13, 4),),
    (Shared(),),
    (NoCache(),),
    (Shared(source=0),),
)


def model_of(*layers: Layer | Part, dtype: str = "bfloat16", encoder_tokens: int = 10) -> Model:
    """A model of these layers."""
    made = tuple(layer if isinstance(layer, tuple) else (layer,) for layer in layers)
    return Model("toy", "toy", made, Fields({}), source="a test", dtype=dtype, encoder_tokens=encoder_tokens)


def run(*layers: Layer | Part, tokens: int = 40, dtype: str = "bfloat16", request: Any = None, **settings: Any) -> VerifyReport:
    """A run; ``dtype`` is the model's and the cache's."""
    given = dict(request or {})
    for side in ("k_dtype", "v_dtype"):
        if isinstance(given.get(side), str):
            given[side] = find_dtype(given[side])
    if "lengths" not in given:
        given.setdefault("tokens", tokens)
    return verify(model_of(*layers, dtype=dtype), Request(**given), Settings(device="cpu", **settings))


def explain(report: VerifyReport) -> list[object]:
    """What failed, for an assertion's message."""
    checks = [check for check in report.checks if not check.passed]
    controls = [control for control in report.controls if not control.caught]
    return [*checks, *[weighing for weighing in report.weighings if not weighing.passed], *controls]
