"""How near a decode step's reading of K and V comes to a plain read of the same tensors.

    python benchmarks/decode_step.py [--tokens 32768] [--device cpu|cuda] [--dtype float32 bfloat16]

One layer of 8 key heads of 128 under 32 query heads, batch 1. Every way of attending is shown as its share of the
bandwidth that a plain read (a sum) of the same K and V reaches in the same run: ratios, since machines and their load
differ. ``static`` is the whole step of verify's cache: write one row, then attend over all; ``concat`` copies first.
The static step should reach 45% on a CPU in float32 and 70% on CUDA.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from kvcalc.core.counting import ALL
from kvcalc.verify.attention import fold
from kvcalc.verify.caches.base import RowCache, RowShape
from kvcalc.verify.codecs import PLAIN
from kvcalc.verify.layouts import ConcatLayout, PagedLayout, StaticLayout
from kvcalc.verify.timing import Workspace, decode_attention, synchronize

KV_HEADS, HEADS, WIDTH = 8, 32, 128
ROUNDS = 31
# These copy K and V, or read them once a query head: apart from the rest, whose caches and pages they would upset.
HEAVY = frozenset(("paged", "concat", "fused, groups expanded"))
HEAVY_ROUNDS = 9
READ = "plain read"


def two_products(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Folded columns, and the library's matrix product twice, the keys on the left."""
    columns = fold(queries[:, None], KV_HEADS).transpose(1, 2) * WIDTH**-0.5
    return (keys @ columns).transpose(1, 2).softmax(-1) @ values


def fused(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Folded rows, and the library's fused call."""
    rows = fold(queries[:, None], KV_HEADS)
    return torch.nn.functional.scaled_dot_product_attention(rows[None], keys[None], values[None])


def expanded(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The library is asked to expand the groups."""
    found = torch.nn.functional.scaled_dot_product_attention(queries[None, :, None], keys[None], values[None], enable_gqa=True)
    return found[0, :, 0]


def measure(ways: dict[str, Callable[[], object]], device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds of every way in every round: all ways in turn, so that load hits them alike."""
    for work in ways.values():
        work()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            synchronize(device)
            began = time.perf_counter()
            work()
            synchronize(device)
            seconds[name].append(time.perf_counter() - began)
    return seconds


def ways_of(tokens: int, dtype: torch.dtype, device: torch.device, compiled: bool) -> tuple[dict[str, Callable[[], object]], int]:
    """The ways, and the bytes of K and V."""
    keys, values = (torch.rand(KV_HEADS, tokens, WIDTH, device=device).sub_(0.5).to(dtype) for _ in range(2))
    queries = torch.rand(HEADS, WIDTH, device=device).to(dtype)
    row = torch.rand(KV_HEADS, 1, WIDTH, device=device).to(dtype)
    lengths = (tokens + ROUNDS + HEAVY_ROUNDS + 2,)

    def step(layout: ConcatLayout | StaticLayout | PagedLayout) -> Callable[[], object]:
        shape = RowShape(KV_HEADS, WIDTH, dtype)
        caches: tuple[RowCache, RowCache] = (layout.cache(shape, ALL), layout.cache(shape, ALL))
        for cache, rows in zip(caches, (keys, values), strict=True):
            cache.append(0, rows)
        room = Workspace()
        return lambda: decode_attention(queries, caches[0].extend(0, row).rows, caches[1].extend(0, row).rows, room)

    ways: dict[str, Callable[[], object]] = {
        READ: lambda: (keys.sum(), values.sum()),
        "static": step(StaticLayout(lengths, device, lengths[0])),
        "paged": step(PagedLayout(lengths, device, 16, 0)),
        "concat": step(ConcatLayout(lengths, device)),
        "fused, folded": lambda: fused(queries, keys, values),
        "two products, folded": lambda: two_products(queries, keys, values),
        "fused, groups expanded": lambda: expanded(queries, keys, values),
    }
    if compiled:
        fast = torch.compile(two_products)
        ways["two products, compiled"] = lambda: fast(queries, keys, values)
    return ways, keys.nbytes + values.nbytes


def report(name: str, ways: dict[str, list[float]], size: int) -> None:
    """A line a way: the best time of all rounds and the median, in GB/s and against the plain read's own."""
    best = {way: min(seconds) for way, seconds in ways.items()}
    middle = {way: statistics.median(seconds) for way, seconds in ways.items()}
    print(f"\n{name}: {size / 2**20:.0f} MiB of K and V")
    print(f"  {'':24}{'best ms':>9}{'GB/s':>8}{'of read':>9}{'median ms':>11}{'of read':>9}")
    for way in ways:
        share, usual = best[READ] / best[way], middle[READ] / middle[way]
        print(f"  {way:24}{best[way] * 1e3:9.2f}{size / best[way] / 1e9:8.2f}{share:9.0%}{middle[way] * 1e3:11.2f}{usual:9.0%}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=PLAIN)
    parser.add_argument("--threads", type=int, default=0, help="of torch; 0 leaves its own choice")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, which takes a C++ compiler and a minute")
    args = parser.parse_args()
    device = torch.device(args.device)
    if args.threads:
        torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {device}, {torch.get_num_threads()} threads, {args.tokens:,} tokens")
    with torch.inference_mode():
        for name in args.dtype:
            ways, size = ways_of(args.tokens, PLAIN[name], device, args.compile)
            light = {way: work for way, work in ways.items() if way not in HEAVY}
            heavy = {way: work for way, work in ways.items() if way in HEAVY or way == READ}
            report(name, measure(light, device, ROUNDS), size)
            report(f"{name}, copying", measure(heavy, device, HEAVY_ROUNDS), size)


if __name__ == "__main__":
    main()
