"""Update rules of recurrent layers, by the variant's name: the first whose shapes fit is taken."""

from __future__ import annotations

from kvcalc.verify.recurrences.base import Rule
from kvcalc.verify.recurrences.delta import GatedDeltaNet, KimiDelta
from kvcalc.verify.recurrences.linear import Lightning, MatrixMemory, ShortConv
from kvcalc.verify.recurrences.mamba import Mamba, Mamba2, RgLru
from kvcalc.verify.recurrences.rwkv import Rwkv4, RwkvMatrix

RULES: dict[str, tuple[type[Rule], ...]] = {
    "mamba": (Mamba,),
    "mamba2": (Mamba2,),
    "gated_delta_net": (GatedDeltaNet,),
    "kda": (KimiDelta,),
    "lightning": (Lightning,),
    "short_conv": (ShortConv,),
    "rg_lru": (RgLru,),
    "rwkv": (RwkvMatrix, Rwkv4),
    "mlstm": (MatrixMemory,),
}
