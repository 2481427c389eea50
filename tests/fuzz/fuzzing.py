"""Fuzzing: every reader as a function of bytes, seeds, and a mutator that knows JSON, GGUF, text and raw bytes.

A target returns, or raises one of our own errors, which counts as an answer; anything else is a finding, and so is an
input that takes over a second or a process that grows beyond 200 MB. The tests run a sample of each target under
Hypothesis. The whole count, and the coverage-guided fuzzer, run from the command line::

    python tests/fuzz/fuzzing.py --inputs 100000            # every target, a process each, one seed
    python tests/fuzz/fuzzing.py --guided log --runs 100000 # coverage-guided (pip install atheris)

A finding is written to ``finding-TARGET`` in the working folder, and printed with the seed that makes it again.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SLOW_SECONDS = 1.0
MOST_MEBIBYTES = 200
LONGEST = 1 << 16

Target = Callable[[bytes, Path], None]


# What is fuzzed. ``scratch`` is a file that readers of paths may use.


def _counted(model: Any, size: int) -> None:
    """A model that was read must be counted, or refused, under the equation and one other engine, in turn; on ranks, too."""
    from kvcalc.core.model import Request
    from kvcalc.engines import ENGINES, find_engine
    from kvcalc.engines.estimate import estimate
    from kvcalc.errors import KvcalcError
    from kvcalc.reports.to_json import estimate_document

    others = [name for name in ENGINES if name != "exact"]
    turn, name = divmod(size, len(others))
    asked = Request(tokens=300, batch_size=1 + turn % 3, tp_size=1 + turn % 2, pp_size=1 + turn // 2 % 2, draft=turn % 5 == 0)
    for engine, request in (("exact", Request(tokens=300)), (others[name], asked)):
        try:
            json.dumps(estimate_document(estimate(model, request, find_engine(engine))), allow_nan=False)
        except KvcalcError:
            continue


def config(data: bytes, scratch: Path) -> None:
    """A config.json."""
    from kvcalc.readers.hf_config import read_config

    scratch.write_bytes(data)
    _counted(read_config(scratch), len(data))


def gguf(data: bytes, scratch: Path) -> None:
    """A GGUF header, or its metadata as JSON."""
    from kvcalc.readers.gguf import read_stream
    from kvcalc.readers.gguf_model import model_of_gguf

    del scratch
    _counted(model_of_gguf(read_stream(io.BytesIO(data), "fuzz", len(data)), {}), len(data))


def preset(data: bytes, scratch: Path) -> None:
    """A preset of the user's own."""
    from kvcalc.readers.hf_config import model_of
    from kvcalc.readers.presets import read_preset

    scratch.write_bytes(data)
    found = read_preset(scratch)
    _counted(model_of(found.config, "preset", "fuzz", {}, "", "preset"), len(data))


def index(data: bytes, scratch: Path) -> None:
    """A safetensors index, and the header of a safetensors file."""
    from kvcalc.errors import KvcalcError
    from kvcalc.readers.weights import weights_of_folder, weights_of_index

    scratch.write_bytes(data)
    try:
        weights_of_index(scratch)
    except KvcalcError:
        folder = scratch.with_name("weights")
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_bytes(data)
        weights_of_folder(folder)


def log(data: bytes, scratch: Path) -> None:
    """An engine's log, audited against a model."""
    from kvcalc.audit.audit import audit
    from kvcalc.audit.settings import Given
    from kvcalc.readers.engine_log import read_log

    del scratch
    for load in read_log(io.BytesIO(data)).loads:
        for model in (None, _toy()):
            for finding in audit(load, model, Given()).findings:
                assert finding.verdict in ("exact", "agrees", "differs", "unchecked")
                assert (finding.difference == 0) == (finding.verdict in ("exact", "agrees"))


_TOY: list[Any] = []


def _toy() -> Any:
    if not _TOY:
        from kvcalc.readers.hf_config import model_of

        config = {"model_type": "gemma3_text", "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4}
        _TOY.append(model_of({**config, "head_dim": 64, "sliding_window": 512, "sliding_window_pattern": 6}, "toy", "toy"))
    return _TOY[0]


def ranges(data: bytes, scratch: Path) -> None:
    """``--tokens`` of a sweep."""
    from kvcalc.units import MAX_COUNT, parse_counts

    del scratch
    for _, value in zip(range(2000), parse_counts(data.decode("utf-8", "replace")), strict=False):
        assert 0 < value <= MAX_COUNT


def sizes(data: bytes, scratch: Path) -> None:
    """Memory sizes and counts, and their way back."""
    from kvcalc.errors import UsageError
    from kvcalc.units import MAX_COUNT, format_bytes, format_count, parse_bytes, parse_count

    del scratch
    text = data.decode("utf-8", "replace")
    try:
        value = parse_bytes(text)
    except UsageError:
        value = parse_count(text)
    assert 0 < value <= MAX_COUNT
    assert format_bytes(value)
    assert format_count(value)


def lengths(data: bytes, scratch: Path) -> None:
    """A file of sequence lengths."""
    from kvcalc.readers.lengths import read_lengths

    scratch.write_bytes(data)
    assert all(value > 0 for value in read_lengths(scratch, 1000))


TARGETS: dict[str, Target] = {
    "config": config,
    "gguf": gguf,
    "preset": preset,
    "index": index,
    "log": log,
    "ranges": ranges,
    "sizes": sizes,
    "lengths": lengths,
}


def answer(target: str, data: bytes, scratch: Path) -> bool:
    """Run one input; whether it was accepted. Anything but our own errors comes out."""
    from kvcalc.errors import KvcalcError

    try:
        TARGETS[target](data, scratch)
    except KvcalcError as problem:
        if not str(problem):
            raise AssertionError("an error says nothing") from problem
        return False
    return True


# Seeds: small good inputs


_LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
_KINDS = ["sliding_attention", "full_attention"]
_BLOCKS = [{"attention": {"n_heads_in_group": 4}}, {"attention": {"no_op": True}}]
_CONFIGS: tuple[dict[str, Any], ...] = (
    {**_LLAMA, "torch_dtype": "bfloat16", "max_position_embeddings": 8192},
    {
        **_LLAMA,
        "model_type": "gemma3_text",
        "head_dim": 16,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    {**_LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
    {**_LLAMA, "model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 4, "mamba_d_conv": 4},
    {
        **_LLAMA,
        "model_type": "qwen3_next",
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 2,
    },
    {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": _LLAMA, "vision_config": {}},
    {**_LLAMA, "quantization_config": {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}},
    {
        **_LLAMA,
        "model_type": "nemotron-nas",
        "block_configs": [{"attention": {"n_heads_in_group": 4}}, {"attention": {"no_op": True}}],
    },
)
_KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": [2, 2],
    "llama.rope.freq_base": 10000.5,
}
_SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.time_step_rank": 8, "ssm.group_count": 2}


def _family(arch: str, **more: Any) -> dict[str, Any]:
    keys = {
        "general.architecture": arch,
        **{key.replace("llama.", f"{arch}."): value for key, value in _KEYS.items() if "llama." in key},
    }
    return keys | {f"{arch}.{key.replace('__', '.')}": value for key, value in more.items()}


_FAMILIES: tuple[dict[str, Any], ...] = (
    _KEYS,
    _family("gemma3", attention__key_length=16, attention__value_length=16, attention__sliding_window=16),
    _family(
        "deepseek2",
        attention__head_count_kv=1,
        attention__kv_lora_rank=32,
        attention__key_length=40,
        attention__value_length=32,
        attention__key_length_mla=16,
        attention__value_length_mla=8,
        rope__dimension_count=8,
    ),
    _family("mamba2", attention__head_count=0, attention__head_count_kv=0, **_SSM),
    _family("qwen3next", attention__key_length=16, attention__value_length=16, **_SSM),
    _family("lfm2", attention__head_count_kv=[0, 2], shortconv__l_cache=3),
)
_LOG_LINES = (
    "(EngineCore pid=9) INFO Initializing a V1 LLM engine (v0.11.0) with config: max_seq_len=4096, tensor_parallel_size=2",
    "INFO Available KV cache memory: 2.89 GiB",
    "INFO GPU KV cache size: 23,648 tokens, Maximum concurrency for 29,000 tokens per request: 0.82x",
    "INFO # GPU blocks: 378, # CPU blocks: 1638",
    "max seq len (4096), (0.58 GiB KV cache is needed, which is larger than the available KV cache memory (0.47 GiB). Based on",
    "llama_model_loader: loaded meta data with 2",
    "llama_model_loader: - kv 0: general.architecture str = llama",
    "llama_model_loader: - kv 1: llama.attention.head_count_kv arr[i32,2] = [2, 2]",
    "llama_context: constructing llama_context",
    "llama_context: n_ctx         = 4096",
    "llama_context: n_seq_max     = 2",
    "llama_kv_cache: size =  512.00 MiB (  4096 cells,  6 layers,  2/2 seqs), K (f16):  256.00 MiB, V (q8_0):  256.00 MiB",
    "llama_memory_recurrent: size = 1.00 MiB ( 1 cells, 6 layers, 1 seqs 2 rs_seq), R (f32): 0.50 MiB, S (f32): 0.50 MiB",
    "llama_kv_cache: CUDA0 KV buffer size = 128.00 MiB",
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB",
    "SWAKVPool mem usage: 3.18 GB, swa size: 29664, full size: 37081",
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).",
    'msg=offload layers.model=62 memory.required.kv="9.5 GiB"',
    'msg="kv cache" device=CUDA0 size="448.0 MiB"',
    'msg=load request="{Operation:commit Parallel:1 BatchSize:512 KvSize:4096 KvCacheType:q8_0"',
)
_TEXTS: dict[str, tuple[str, ...]] = {
    "ranges": ("1k..32k", "1k..32k:4k", "1k,3000,32k", "1..9", "1_000"),
    "sizes": ("24GiB", "24GB", "1.5gib", "4096", "32k", "1m", "0.1KiB"),
    "lengths": ("512\n8k\n# a comment\n32k\n", "length,count\n4096,1\n8192,2\n", '"1k"\r\n"2k"\r\n'),
}


def _gguf_string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_bytes(keys: dict[str, Any]) -> bytes:
    """A little-endian version 3 header without tensors."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    for key, value in keys.items():
        out += _gguf_string(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + _gguf_string(value)
        elif isinstance(value, list):
            out += struct.pack("<IIQ", 9, 4, len(value)) + b"".join(struct.pack("<I", item & 0xFFFFFFFF) for item in value)
        elif isinstance(value, float):
            out += struct.pack("<If", 6, value)
        else:
            out += struct.pack("<II", 4, value & 0xFFFFFFFF)
    return out


@cache
def _preset_configs() -> tuple[dict[str, Any], ...]:
    """The config of every preset: each kind of layer that there is."""
    import yaml

    files = sorted((ROOT / "presets").glob("*.yaml"))
    return tuple(yaml.safe_load(file.read_text(encoding="utf-8"))["config"] for file in files)


@cache
def seeds(target: str) -> list[bytes]:
    """Good inputs of one target."""
    if target == "config":
        return [json.dumps(each).encode() for each in (*_CONFIGS, *_preset_configs())]
    if target == "gguf":
        return [*map(gguf_bytes, _FAMILIES), json.dumps({"metadata": _KEYS}).encode(), json.dumps(_KEYS).encode()]
    if target == "preset":
        heads = (
            "name: input\ntitle: T\nfamily: t\nsource:\n  repo: a test\nparameters: 8000000\nweights_dtype: bfloat16\nconfig:\n"
        )
        return [
            (heads + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in each.items())).encode() for each in _CONFIGS[:4]
        ]
    if target == "index":
        header = json.dumps({"w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}).encode()
        return [
            b'{"metadata": {"total_size": 16060522496}, "weight_map": {}}',
            struct.pack("<Q", len(header)) + header + b"\0" * 12,
        ]
    if target == "log":
        return [
            ("\n".join(_LOG_LINES) + "\n").encode(),
            *(line.encode() for line in _LOG_LINES if "cells" in line or " GB" in line),
        ]
    return [text.encode() for text in _TEXTS[target]]


# Mutations


ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**400, 0.5, 128.0, 1e308, float("nan"), float("inf"),
    "", "8", "auto", "float16", "q8_0", "\0", "é" * 50, "x" * 3000, [], [0], [8, 0, 8], [[1]], ["full_attention"], {}, {"a": 1},
    [None] * 20, ["sliding_attention", "mamba"], "llama", "gemma3", "mamba2", "whisper",
)  # fmt: skip
ODD_BYTES: tuple[bytes, ...] = (
    b"", b"\0", b"\xff" * 8, b"\x7f" * 8, b"\n", b"\r\n", b"{", b"[" * 200, b'"', b",", b":", b"..", b"-", b"NaN", b"1e999", b"k",
    b"9" * 400,
    b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"\x1b[31m", b"999,999,999", b"0", b" " * 70, b"&a *a", b"GGUF", b"GiB",
    b"\xed\xa0\x80",
)  # fmt: skip


def mutate(target: str, rng: random.Random) -> bytes:
    """An input made from the seeds: edited as what it is (JSON, keys, lines), as bytes, or both."""
    chosen = rng.choice(seeds(target))
    if rng.random() < 0.6:
        chosen = _structured(target, chosen, rng)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4, 16))):
        chosen = _bytewise(chosen, rng, target)
    return chosen[:LONGEST]


def _structured(target: str, chosen: bytes, rng: random.Random) -> bytes:
    if target == "log":
        lines = [rng.choice(_LOG_LINES) for _ in range(rng.randint(1, 12))]
        return ("\n".join(_line(line, rng) for line in lines)).encode("utf-8", "replace")
    if target == "gguf" and rng.random() < 0.6:
        return _keys(rng)
    try:
        value = json.loads(chosen)
    except ValueError:
        return chosen
    for _ in range(rng.randint(1, 4)):
        _edit(value, rng)
    return json.dumps(value).encode()


def _line(line: str, rng: random.Random) -> str:
    """A line with another number in it, behind a prefix."""
    digits = [index for index, letter in enumerate(line) if letter.isdigit()]
    for _ in range(rng.randint(0, 3) if digits else 0):
        at = rng.choice(digits)
        line = line[:at] + rng.choice(("0", "9", "1" * rng.randint(1, 25), "-", ",", ".", "")) + line[at + 1 :]
        digits = [index for index, letter in enumerate(line) if letter.isdigit()] or [0]
    return rng.choice(("", "", "\x1b[32m", "(Worker_TP1 pid=3) ", '{"log": "', "\0", "2026-01-01T00:00:00Z ", " " * 80)) + line


def _keys(rng: random.Random) -> bytes:
    keys = dict(rng.choice(_FAMILIES))
    for _ in range(rng.randint(1, 3)):
        own = keys.get("general.architecture", "llama")
        key = rng.choice([*keys, f"{own}.attention.sliding_window", f"{own}.attention.key_length", "general.file_type"])
        keys[key] = rng.choice(
            [0, 1, 2**32 - 1, rng.randrange(2**32), 1.5, "mamba2", "gemma3", "", [0] * rng.randint(0, 40), "x" * 300]
        )
    if rng.random() < 0.5:
        own, arch = (
            keys.get("general.architecture", "llama"),
            rng.choice(("mamba2", "deepseek2", "lfm2", "bert", "t5", "falcon-h1")),
        )
        keys = {key.replace(f"{own}.", f"{arch}."): value for key, value in keys.items()} | {"general.architecture": arch}
    return gguf_bytes(keys)


def _edit(value: Any, rng: random.Random) -> None:
    """Change, remove or add one thing somewhere in a JSON value."""
    places: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        at = stack.pop()
        items = at.items() if isinstance(at, dict) else enumerate(at) if isinstance(at, list) else ()
        for key, child in items:
            places.append((at, key))
            stack.append(child)
    if not places:
        return
    holder, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.2 and isinstance(holder, dict):
        del holder[key]
    elif kind < 0.4 and isinstance(holder, dict):
        holder[
            rng.choice(
                ("head_dim", "layer_types", "sliding_window", "num_kv_shared_layers", "text_config", "torch_dtype", "n_head")
            )
        ] = deepcopy(rng.choice(ODD_VALUES))
    elif kind < 0.5:
        holder[key] = [holder[key]] * rng.randint(0, 5)
    elif kind < 0.6 and isinstance(holder, dict):
        holder["model_type"] = rng.choice(_types())
    else:
        holder[key] = deepcopy(rng.choice((rng.choice(ODD_VALUES), rng.randint(-3, 300))))


@cache
def _types() -> list[str]:
    from kvcalc.architectures.table import ARCHITECTURES

    return sorted(ARCHITECTURES)


def _bytewise(data: bytes, rng: random.Random, target: str) -> bytes:
    at = rng.randint(0, len(data))
    kind = rng.randrange(6)
    if kind == 0 and data:
        flipped = bytearray(data)
        flipped[at % len(data)] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if kind == 1:
        return data[:at] + rng.choice(ODD_BYTES) + data[at:]
    if kind == 2:
        return data[:at] + data[at + rng.randint(1, 40) :]
    if kind == 3:
        return data[:at] + data[at : at + rng.randint(1, 60)] * rng.randint(2, 9) + data[at:]
    if kind == 4:
        return data[:at]
    other = rng.choice(seeds(target))
    return data[:at] + other[rng.randint(0, len(other)) :]


# From the command line


@dataclass(frozen=True)
class Count:
    """What one target's run came to."""

    target: str
    inputs: int
    accepted: int
    slowest: float


def run(target: str, inputs: int, seed: int) -> Count:
    """``inputs`` mutated inputs of one target. Raises AssertionError on a finding."""
    accepted, slowest = 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "input.json"
        for seed_input in seeds(target):  # imports are not the inputs' time
            answer(target, seed_input, scratch)
        for number in range(inputs):
            data = mutate(target, random.Random(f"{seed}/{number}"))
            began = time.process_time()
            try:
                accepted += answer(target, data, scratch)
            except BaseException:
                Path(f"finding-{target}").write_bytes(data)
                sys.stderr.write(f"{target}: input {number} of seed {seed} is a finding: finding-{target}\n")
                raise
            took = time.process_time() - began
            slowest = max(slowest, took)
            if took > SLOW_SECONDS:
                Path(f"finding-{target}").write_bytes(data)
                raise AssertionError(f"{target}: input {number} of seed {seed} took {took:.2f} s: finding-{target}")
    return Count(target, inputs, accepted, slowest)


def guided(target: str, runs: int, rest: list[str]) -> None:
    """The same target under atheris, which looks for new branches."""
    import atheris

    with atheris.instrument_imports(include=["kvcalc"]):
        import kvcalc.audit.audit
        import kvcalc.engines.llamacpp.engine
        import kvcalc.readers.engine_log
        import kvcalc.readers.gguf_model
        import kvcalc.readers.hf_config
        import kvcalc.readers.lengths
        import kvcalc.readers.presets
        import kvcalc.readers.weights  # noqa: F401 - instrumented by being imported

    folder = Path(tempfile.mkdtemp())
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds(target)):
        (corpus / str(number)).write_bytes(seed)

    def custom(data: bytes, most: int, seed: int) -> bytes:
        if seed % 3:
            return bytes(atheris.Mutate(data, most))
        return mutate(target, random.Random(seed))[:most]

    def one(data: bytes) -> None:
        answer(target, data, folder / "input.json")

    limits = [f"-runs={runs}", "-timeout=2", "-rss_limit_mb=600", f"-max_len={LONGEST // 8}", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits, *rest, str(corpus)], one, custom_mutator=custom)
    atheris.Fuzz()


def main() -> None:
    """See the module's docstring."""
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guided", choices=list(TARGETS))
    parser.add_argument("--runs", type=int, default=100_000)
    args, rest = parser.parse_known_args()
    if args.guided:
        guided(args.guided, args.runs, rest)
        return
    if args.target == "all":
        same = [sys.executable, __file__, "--inputs", str(args.inputs), "--seed", str(args.seed), "--target"]
        failed = [name for name in TARGETS if subprocess.run([*same, name], check=False).returncode]
        sys.exit(f"findings in {', '.join(failed)}" if failed else 0)
    found = run(args.target, args.inputs, args.seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{found.target:8} {found.inputs:>9,} inputs {found.accepted:>9,} accepted, slowest {found.slowest:.3f} s, {peak} MiB")
    if peak > MOST_MEBIBYTES:
        sys.exit(f"{found.target}: the process grew beyond {MOST_MEBIBYTES} MiB")


if __name__ == "__main__":
    main()
