"""Faults of latent attention, indexers, compressed rows, stored types, states and shared layers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from kvcalc.verify import ggml_blocks
from kvcalc.verify.attention import Visibility
from kvcalc.verify.caches.base import HeldRows
from kvcalc.verify.codecs import Fp8Codec, IntegerCodec, PlainCodec
from kvcalc.verify.parts import compressed, indexer
from kvcalc.verify.parts.compressed import OpenCompressed
from kvcalc.verify.parts.key_value import OpenKeyValue
from kvcalc.verify.parts.latent import LatentProof, OpenLatent
from kvcalc.verify.parts.recurrent import OpenRecurrent
from kvcalc.verify.recurrences import base as recurrences
from kvcalc.verify.recurrences import delta, linear, mamba, rwkv
from verify.fault_tools import Patch, fault, wrapped

# Latent attention, indexers, compressed rows


@fault("latent attention's scale is one per cent too large", "mla")
def latent_scale_percent(patch: Patch) -> None:
    latent_scale(patch, 1.01)


@fault("latent attention's scale is a thousandth too small", "mla")
def latent_scale_thousandth(patch: Patch) -> None:
    latent_scale(patch, 0.999)


def latent_scale(patch: Patch, factor: float) -> None:
    """Change every step's scale."""
    original = LatentProof.__init__

    def made(self: LatentProof, *arguments: Any) -> None:
        original(self, *arguments)
        self.scale *= factor

    patch.setattr(LatentProof, "__init__", made)


@fault("latent attention's queries are kept in fp8", "mla")
def latent_fp8(patch: Patch) -> None:
    wrapped(patch, OpenLatent, "_absorbed", lambda f, self, q, rows, seen: f(self, q.to(torch.float8_e4m3fn).float(), rows, seen))


@fault("latent attention is computed in bfloat16", "mla")
def latent_bf16(patch: Patch) -> None:
    def absorbed(original: Any, self: OpenLatent, q: Tensor, rows: Tensor, seen: Tensor | None) -> Tensor:
        found: Tensor = original(self, q.bfloat16().float(), rows, seen)
        return found.bfloat16().float()

    wrapped(patch, OpenLatent, "_absorbed", absorbed)


@fault("the latent's rope part is left out of the scores", "mla")
def no_rope(patch: Patch) -> None:
    def absorbed(original: Any, self: OpenLatent, q: Tensor, rows: Tensor, seen: Tensor | None) -> Tensor:
        cut = q.clone()
        cut[..., self.proof.part.kv_lora_rank :] = 0
        found: Tensor = original(self, cut, rows, seen)
        return found

    wrapped(patch, OpenLatent, "_absorbed", absorbed)


@fault("a latent's window is one too long", "mla, window")
def latent_window(patch: Patch) -> None:
    wrapped(patch, Visibility, "mask", lambda original, self, q, k: original(Visibility(window=(self.window or 0) + 1), q, k))
    patch.setattr(Visibility, "mask_or_none", lambda self, q, k, alone: self.mask(q, k))


@fault("the indexer forgets that negative products count nothing", "mla and indexer")
def no_relu(patch: Patch) -> None:
    patch.setattr(indexer, "_score", lambda query, weight, keys: weight @ (query @ keys.T))


@fault("the indexer's keys are kept in fp8", "mla and indexer")
def index_fp8(patch: Patch) -> None:
    wrapped(patch, indexer, "_score", lambda f, query, weight, keys: f(query, weight, keys.to(torch.float8_e4m3fn).float()))


@fault("the compressor's gates are left out", "compressed")
def no_gates(patch: Patch) -> None:
    def compress(original: Any, self: OpenCompressed, sequence: int, position: int, given: Tensor) -> None:
        original(self, sequence, position, torch.stack((given[0], torch.zeros_like(given[1]))))

    wrapped(patch, OpenCompressed, "compress", compress)


@fault("the compressor loses the group before its own", "compressed, overlap and indexer")
def no_overlap(patch: Patch) -> None:
    def compress(original: Any, self: OpenCompressed, sequence: int, position: int, given: Tensor) -> None:
        self.buffer[sequence, 1, : self.proof.part.ratio] = -torch.inf
        original(self, sequence, position, given)

    wrapped(patch, OpenCompressed, "compress", compress)


@fault("all sequences share one open group", "compressed")
def one_buffer(patch: Patch) -> None:
    original = OpenCompressed.__init__

    def made(self: OpenCompressed, *arguments: Any) -> None:
        original(self, *arguments)
        self.buffer = self.buffer[:1].expand_as(self.buffer)

    patch.setattr(OpenCompressed, "__init__", made)


@fault("a compressed row is seen before its group is whole", "compressed")
def early_group(patch: Patch) -> None:
    patch.setattr(compressed.CompressedProof, "groups", lambda self, position: max(position - 1, 0) // self.part.ratio)


@fault("the sink takes no weight", "compressed")
def no_sink(patch: Patch) -> None:
    original = OpenCompressed.__init__

    def made(self: OpenCompressed, *arguments: Any) -> None:
        original(self, *arguments)
        self.sinks = torch.full_like(self.sinks, -torch.inf)

    patch.setattr(OpenCompressed, "__init__", made)


# Stored types


def quantised(patch: Patch, owner: Any, name: str, factor: float) -> None:
    wrapped(patch, owner, name, lambda original, *arguments: tuple(part * factor for part in original(*arguments)))


@fault("ggml's scales are twice too large", "full")
def ggml_scales(patch: Patch) -> None:
    quantised(patch, ggml_blocks, "_scales", 2.0)


@fault("ggml's scales are one per cent too large", "full")
def ggml_scales_percent(patch: Patch) -> None:
    wrapped(patch, ggml_blocks, "dequantize", lambda original, name, rows: original(name, rows) * 1.01)


@fault("ggml's low and high halves are exchanged in both directions", "full")
def ggml_halves(patch: Patch) -> None:
    def nibbles(original: Any, name: str, rows: Tensor) -> Tensor:
        turned = rows.clone()
        turned[:, -16:] = turned[:, -16:] >> 4 | turned[:, -16:] << 4
        return turned

    def quantize(original: Any, name: str, rows: Tensor) -> Tensor:
        found: Tensor = original(name, rows)
        return nibbles(original, name, found) if name != "q8_0" else found

    def dequantize(original: Any, name: str, rows: Tensor) -> Tensor:
        found: Tensor = original(name, nibbles(original, name, rows) if name != "q8_0" else rows)
        return found

    wrapped(patch, ggml_blocks, "quantize", quantize)
    wrapped(patch, ggml_blocks, "dequantize", dequantize)


@fault("int8's and int4's steps are twice as large", "full")
def integer_steps(patch: Patch) -> None:
    original = IntegerCodec.step.fget  # type: ignore[attr-defined]
    patch.setattr(IntegerCodec, "step", property(lambda self: 2 * original(self)))


@fault("int4 rounds down", "full")
def int4_floor(patch: Patch) -> None:
    def encode(original: Any, self: IntegerCodec, values: Tensor) -> Tensor:
        found: Tensor = original(self, values - self.step / 2 if self.name == "int4" else values)
        return found

    wrapped(patch, IntegerCodec, "encode", encode)


@fault("fp8 loses a bit of its fraction", "full")
def fp8_bit(patch: Patch) -> None:
    wrapped(patch, Fp8Codec, "encode", lambda original, self, values: original(self, values) & 0xFE)


@fault("a bfloat16 cache is written by cutting, not rounding", "full")
def rows_cut(patch: Patch) -> None:
    wrapped(patch, PlainCodec, "encode", lambda original, self, values: original(self, values * (1 - 2.0**-8)))


# States


@fault("one token in twenty never enters the state", "mamba2")
def state_skipped(patch: Patch) -> None:
    original = OpenRecurrent.__init__

    def made(self: OpenRecurrent, proof: Any) -> None:
        original(self, proof)
        self.skip_state = (0, 20)

    patch.setattr(OpenRecurrent, "__init__", made)


@fault("a convolution's window moves the wrong way", "gated_delta_net")
def conv_backwards(patch: Patch) -> None:
    def step(windows: list[Tensor], column: Tensor, weight: Tensor) -> Tensor:
        found = original(windows, column, weight)
        for window in windows:
            window.copy_(window.flip(1))
        return found

    original = recurrences.convolve_step
    for module in (delta, mamba, linear):
        patch.setattr(module, "convolve_step", step)


@fault("a short convolution forgets its oldest column", "short_conv")
def conv_short(patch: Patch) -> None:
    def step(original: Any, windows: list[Tensor], column: Tensor, weight: Tensor) -> Tensor:
        for window in windows:
            window[:, 0] = 0
        found: Tensor = original(windows, column, weight)
        return found

    wrapped(patch, linear, "convolve_step", step)


@fault("all sequences share one state", "lightning")
def one_state(patch: Patch) -> None:
    original = OpenRecurrent.__init__

    def made(self: OpenRecurrent, proof: Any) -> None:
        original(self, proof)
        self.states = [state[:1].expand_as(state) for state in self.states]

    patch.setattr(OpenRecurrent, "__init__", made)


def scaled_step(patch: Patch, rule: Any, factor: float) -> None:
    """Every output of a rule's step times a factor."""
    wrapped(patch, rule, "step", lambda original, *arguments: original(*arguments) * factor)


for _name, _rule in (
    ("mamba", mamba.Mamba),
    ("mamba2", mamba.Mamba2),
    ("rg_lru", mamba.RgLru),
    ("gated_delta_net", delta.GatedDeltaNet),
    ("kda", delta.KimiDelta),
    ("lightning", linear.Lightning),
    ("mlstm", linear.MatrixMemory),
    ("short_conv", linear.ShortConv),
    ("rwkv", rwkv.RwkvMatrix),
    ("rwkv4", rwkv.Rwkv4),
):
    fault("a state's output is a thousandth too large", _name)(partial(scaled_step, rule=_rule, factor=1.001))


@fault("a state is rounded to bfloat16 after every token", "mamba2")
def state_bf16(patch: Patch) -> None:
    def step(original: Any, self: Any, x: Any, convs: list[Tensor], states: list[Tensor]) -> Tensor:
        found: Tensor = original(self, x, convs, states)
        states[0].copy_(states[0].bfloat16())
        return found

    wrapped(patch, mamba.Mamba2, "step", step)


@fault("the delta rule decays after it writes", "gated_delta_net")
def decay_late(patch: Patch) -> None:
    wrapped(patch, delta.GatedDeltaNet, "step", late)


def late(original: Any, self: Any, x: Any, convs: list[Tensor], states: list[Tensor]) -> Tensor:
    """The step without decay, then the decay."""
    found: Tensor = original(self, {**x, "log_decay": x["log_decay"] * 0}, convs, states)
    states[0].mul_(torch.exp(x["log_decay"]).view(-1, 1, 1))
    return found


# Shared layers


@fault("a layer that reads another's cache reads the rows before the last step's", "full", "shared")
def shared_late(patch: Patch) -> None:
    def check(original: Any, self: OpenKeyValue, sequence: int, inside: slice, alone: bool, keys: Any, values: Any) -> None:
        own, kept = self.proof.queriers, self.proof.queriers[:1]
        self.proof.queriers = kept
        original(self, sequence, inside, alone, keys, values)
        self.proof.queriers = own[1:]
        late = HeldRows(keys.rows.roll(1, 1), keys.positions)
        original(self, sequence, inside, alone, late, values)
        self.proof.queriers = own

    wrapped(patch, OpenKeyValue, "_check", check)
