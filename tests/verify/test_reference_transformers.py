"""The reference against transformers' own eager modules with random weights: what they attend, mask and carry along."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kvcalc.verify.reference.attention import Sees, attention, latent_attention
from kvcalc.verify.reference.delta import Sizes, delta_rule
from kvcalc.verify.reference.recurrences import mamba, mamba2, rwkv4, short_conv

pytestmark = pytest.mark.engines
TOKENS = 21
SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "pad_token_id": 0,
}
CHUNKED = ["chunked_attention", "full_attention"]
SLIDING = ["sliding_attention", "full_attention"]
# model type → what its config takes beside the small sizes, and what each layer's queries see
MODELS: dict[str, tuple[dict[str, Any], list[Sees]]] = {
    "llama": ({}, [Sees(), Sees()]),
    "mistral": ({"sliding_window": 6}, [Sees(window=6)] * 2),
    "gemma3_text": ({"sliding_window": 6, "layer_types": SLIDING, "query_pre_attn_scalar": 8}, [Sees(window=6), Sees()]),
    "llama4_text": ({"attention_chunk_size": 6, "layer_types": CHUNKED, "num_local_experts": 2}, [Sees(chunk=6), Sees()]),
    "gpt_oss": ({"sliding_window": 6, "layer_types": SLIDING, "num_local_experts": 4}, [Sees(window=6), Sees()]),
}

Call = tuple[Any, ...]


@pytest.fixture
def transformers() -> Any:
    return pytest.importorskip("transformers", reason="transformers isn't installed")


def captured(name: str, config: Any, monkeypatch: pytest.MonkeyPatch, made: Callable[[Any], Any]) -> list[Call]:
    """Every call of a module's eager attention: (module, query, key, value, scaling, output)."""
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
    calls: list[Call] = []
    original = module.eager_attention_forward

    def watched(owner: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> Any:
        found = original(owner, query, key, value, *rest, **more)
        calls.append((owner, query[0], key[0], value[0], more.get("scaling"), found[0][0].transpose(0, 1)))
        return found

    monkeypatch.setattr(module, "eager_attention_forward", watched)
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    model = made(config).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.4)
    with torch.no_grad():
        model(torch.randint(1, 50, (1, TOKENS)), use_cache=False)
    return calls


@pytest.mark.parametrize("kind", MODELS)
def test_grouped_attention(kind: str, transformers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, sees = MODELS[kind]
    config = transformers.AutoConfig.for_model(kind, **SMALL, **extra)
    folder = kind.removesuffix("_text")
    calls = captured(folder, config, monkeypatch, transformers.AutoModel.from_config)
    assert len(calls) == 2
    for (owner, query, key, value, scaling, output), seen in zip(calls, sees, strict=True):
        sinks = owner.sinks.double() if kind == "gpt_oss" else None
        rows = list(zip(key, value, strict=True))
        found = attention(query.double(), range(TOKENS), rows.__getitem__, len(key), scaling, seen, sinks)
        torch.testing.assert_close(found.outputs.float(), output, rtol=1e-4, atol=1e-5)


def test_cross_attention(transformers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.AutoConfig.for_model(
        "bart",
        vocab_size=50,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    )
    calls = captured("bart", config, monkeypatch, transformers.AutoModel.from_config)
    assert [call[0].is_decoder for call in calls] == [False, True, True]
    for (_, query, key, value, scaling, output), sees in zip(
        calls, (Sees(causal=False), Sees(), Sees(causal=False)), strict=True
    ):
        rows = list(zip(key, value, strict=True))
        found = attention(query.double(), range(TOKENS), rows.__getitem__, 4, scaling, sees)
        torch.testing.assert_close(found.outputs.float(), output, rtol=1e-4, atol=1e-5)


def test_latent_attention(transformers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"kv_lora_rank": 24, "q_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6}
    small = {name: value for name, value in SMALL.items() if name not in ("head_dim", "num_key_value_heads")}
    config = transformers.AutoConfig.for_model(
        "deepseek_v3",
        **small,
        num_key_value_heads=4,
        **sizes,
        first_k_dense_replace=2,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
    )
    latents: list[Tensor] = []

    def made(given: Any) -> Any:
        model = transformers.AutoModel.from_config(given)
        for layer in model.layers:
            layer.self_attn.kv_a_layernorm.register_forward_hook(lambda module, args, output: latents.append(output[0]))
        return model

    calls = captured("deepseek_v3", config, monkeypatch, made)
    assert len(calls) == len(latents) == 2
    for (owner, query, key, value, scaling, output), latent in zip(calls, latents, strict=True):
        weight = owner.kv_b_proj.weight.view(4, 8 + 6, 24).double()
        rows = torch.cat((latent, key[0, :, 8:]), dim=1).double()
        found = latent_attention(query.double(), range(TOKENS), rows, weight[:, :8], weight[:, 8:], scaling, Sees())
        torch.testing.assert_close(found.outputs.float(), output, rtol=1e-4, atol=1e-4)
        assert value.shape[2] == 6


def numbers(seed: int, *shape: int, low: float = -1.0, high: float = 1.0) -> Tensor:
    return torch.empty(shape, dtype=torch.float64).uniform_(low, high, generator=torch.Generator().manual_seed(seed))


def test_the_gated_delta_rule(transformers: Any) -> None:
    theirs = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next").torch_recurrent_gated_delta_rule
    heads, k_width, v_width = 2, 8, 6
    x = numbers(1, TOKENS, heads * (2 * k_width + v_width))
    given = {"x": x, "conv": torch.ones(x.shape[1], dtype=torch.float64)}
    given |= {"beta": numbers(2, TOKENS, heads, low=0.1), "log_decay": numbers(3, TOKENS, heads, low=-0.5, high=-0.01)}
    found = delta_rule(given, range(heads), Sizes(heads, v_width, k_width, heads, 1), 0.0)
    u = torch.nn.functional.silu(x)
    q, k, v = torch.split(u, [heads * k_width, heads * k_width, heads * v_width], dim=1)
    q, k, v = (part.view(1, TOKENS, heads, -1) for part in (q, k, v))
    log_decay, beta = given["log_decay"][None], given["beta"][None]
    output, _ = theirs(q, k, v, log_decay, beta, None, False, use_qk_l2norm_in_kernel=True)
    torch.testing.assert_close(found.outputs, output[0].flatten(1).double(), rtol=1e-4, atol=1e-5)


def test_rwkv(transformers: Any) -> None:
    theirs = importlib.import_module("transformers.models.rwkv.modeling_rwkv").rwkv_linear_attention_cpu
    x, ones = numbers(1, TOKENS, 6), torch.ones(6, dtype=torch.float64)
    decay, bonus = numbers(2, 6), numbers(3, 6)
    mixes = {f"mix_{name}": ones for name in ("r", "k", "v", "channel")}
    given = {"x": x, "z": x, "u": bonus, "log_decay": -torch.exp(decay), **mixes}
    average, _ = theirs(decay, bonus, x[None], x[None])
    outputs, channel = rwkv4(given, 0.0)
    torch.testing.assert_close(outputs.outputs, (average[0] * torch.sigmoid(x)).double(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(channel.outputs, x)


def hooked(module: Any, found: dict[str, Tensor], name: str, given: bool = False) -> None:
    """Keep a module's output, or what it is given."""
    module.register_forward_hook(
        lambda owner, args, output: found.__setitem__(name, (args[0] if given else output).detach()[0].double())
    )


def test_the_short_convolution(transformers: Any) -> None:
    models = importlib.import_module("transformers.models.lfm2.modeling_lfm2")
    config = transformers.AutoConfig.for_model("lfm2", hidden_size=8, conv_L_cache=3, conv_bias=False, num_hidden_layers=1)
    torch.manual_seed(1)
    made, found = models.Lfm2ShortConv(config, 0), dict[str, Tensor]()
    hooked(made.in_proj, found, "in")
    hooked(made.out_proj, found, "out", given=True)
    with torch.no_grad():
        made(torch.randn(1, TOKENS, 8))
    b, c, x = found["in"].chunk(3, dim=1)
    wanted = short_conv({"x": b * x, "c": c, "conv": made.conv.weight.double().flatten()}, range(8), 3)
    torch.testing.assert_close(wanted.outputs, found["out"], rtol=1e-4, atol=1e-6)


def test_mamba(transformers: Any) -> None:
    models = importlib.import_module("transformers.models.mamba.modeling_mamba")
    config = transformers.AutoConfig.for_model(
        "mamba", hidden_size=8, state_size=4, expand=2, time_step_rank=3, num_hidden_layers=1
    )
    torch.manual_seed(1)
    made, found = models.MambaMixer(config, 0), dict[str, Tensor]()
    made.D.data.zero_()
    made.conv1d.bias.data.zero_()
    for name, module, given in (("in", made.in_proj, False), ("x", made.x_proj, False), ("out", made.out_proj, True)):
        hooked(module, found, name, given)
    with torch.no_grad():
        made(torch.randn(1, TOKENS, 8))
        x, gate = found["in"].chunk(2, dim=1)
        step, b, c = torch.split(found["x"], [3, 4, 4], dim=1)
        delta = torch.nn.functional.softplus(made.dt_proj(step.float())).double()
        given_ = {"x": x, "delta": delta, "B": b, "C": c, "A": -torch.exp(made.A_log.double()).flatten()}
        wanted = mamba(given_ | {"conv": made.conv1d.weight.double().flatten()}, range(16), 4, 4, 0.0)
    torch.testing.assert_close(wanted.outputs * torch.nn.functional.silu(gate), found["out"], rtol=1e-4, atol=1e-5)


def test_mamba_2(transformers: Any) -> None:
    models = importlib.import_module("transformers.models.mamba2.modeling_mamba2")
    sizes = {"num_heads": 4, "head_dim": 6, "state_size": 5, "n_groups": 2, "expand": 3, "chunk_size": 8}
    config = transformers.AutoConfig.for_model("mamba2", hidden_size=8, num_hidden_layers=1, **sizes)
    torch.manual_seed(1)
    made, found = models.Mamba2Mixer(config, 0), dict[str, Tensor]()
    made.D.data.zero_()
    made.conv1d.bias.data.zero_()
    hooked(made.in_proj, found, "in")
    hooked(made.norm, found, "out", given=True)
    with torch.no_grad():
        made(torch.randn(1, TOKENS, 8))
        _, x, step = torch.split(found["in"], [24, 24 + 2 * 2 * 5, 4], dim=1)
        delta = torch.nn.functional.softplus(step + made.dt_bias.double())
        given = {"x": x, "delta": delta, "a": -torch.exp(made.A_log.double()), "conv": made.conv1d.weight.double().flatten()}
        wanted = mamba2(given, range(4), (4, 6, 5, 2), 4, 0.0)
    torch.testing.assert_close(wanted.outputs, found["out"], rtol=1e-3, atol=1e-4)
