"""A tiny Llama as a complete GGUF file, tensors and all: what the real engine loads."""

from __future__ import annotations

from pathlib import Path

from gguf_files import Value, header

WIDTH, HEADS, KV_HEADS, FEED, LAYERS, WORDS = 128, 4, 2, 256, 2, 64
KEYS: dict[str, Value] = {
    "general.architecture": ("string", "llama"),
    "llama.context_length": ("u32", 8192),
    "llama.embedding_length": ("u32", WIDTH),
    "llama.block_count": ("u32", LAYERS),
    "llama.feed_forward_length": ("u32", FEED),
    "llama.attention.head_count": ("u32", HEADS),
    "llama.attention.head_count_kv": ("u32", KV_HEADS),
    "llama.attention.layer_norm_rms_epsilon": ("f32", 1e-5),
    "llama.rope.dimension_count": ("u32", WIDTH // HEADS),
    "llama.vocab_size": ("u32", WORDS),
    "tokenizer.ggml.model": ("string", "test"),
    "tokenizer.ggml.tokens": ("[string]", [f"tok_{index}" for index in range(WORDS)]),
    "tokenizer.ggml.scores": ("[f32]", [0.0] * WORDS),
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Each tensor's shape, the row's length first."""
    kv = WIDTH // HEADS * KV_HEADS
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (WIDTH, WORDS),
        "output_norm.weight": (WIDTH,),
        "output.weight": (WIDTH, WORDS),
    }
    for layer in range(LAYERS):
        found |= {
            f"blk.{layer}.attn_norm.weight": (WIDTH,),
            f"blk.{layer}.attn_q.weight": (WIDTH, WIDTH),
            f"blk.{layer}.attn_k.weight": (WIDTH, kv),
            f"blk.{layer}.attn_v.weight": (WIDTH, kv),
            f"blk.{layer}.attn_output.weight": (WIDTH, WIDTH),
            f"blk.{layer}.ffn_norm.weight": (WIDTH,),
            f"blk.{layer}.ffn_gate.weight": (WIDTH, FEED),
            f"blk.{layer}.ffn_up.weight": (WIDTH, FEED),
            f"blk.{layer}.ffn_down.weight": (FEED, WIDTH),
        }
    return found


def write_tiny_llama(path: Path) -> None:
    """Float32 zeros: enough for an engine to load, and to make a context."""
    tensors, offset = [], 0
    for name, shape in shapes().items():
        tensors.append((name, shape, 0, offset))
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        offset += size + -size % 32
    path.write_bytes(header(KEYS, tensors) + bytes(offset))
