"""Time commands as whole processes, in turn, and print medians and the ratio pair by pair."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Sequence


def seconds(command: Sequence[str]) -> tuple[float, int]:
    """Wall time and peak memory (KiB) of one run; its output is thrown away."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)[:80]} ended with {process.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss


def compare(name: str, command: Sequence[str], other_name: str, other: Sequence[str], runs: int = 15) -> float:
    """Run both in turn (A B A B …) after a warm-up each; print medians; return the median ratio."""
    seconds(command)
    seconds(other)
    pairs = [(seconds(command), seconds(other)) for _ in range(runs)]
    ratio = statistics.median(first[0] / second[0] for first, second in pairs)
    for label, results in ((name, [first for first, _ in pairs]), (other_name, [second for _, second in pairs])):
        times = [elapsed * 1000 for elapsed, _ in results]
        peak = max(memory for _, memory in results) // 1024
        print(
            f"{label:44} median {statistics.median(times):8.1f} ms  min {min(times):8.1f}  max {max(times):8.1f}  peak {peak} MiB"
        )
    print(f"{'ratio, median of pairs':44} {ratio:.2f}\n")
    return ratio
