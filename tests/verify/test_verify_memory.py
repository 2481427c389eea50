"""Peak memory of a whole process at 32k tokens: under 1.3 times the predicted cache plus 600 MB."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CHILD = """
import json, resource, sys
from kvcalc.cli import main
code = main(sys.argv[1:])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"code": code, "peak": peak}), file=sys.stderr)
"""


@pytest.mark.parametrize("cache", ["concat", "static", "paged"])
@pytest.mark.parametrize("layers", ["1", "4"])
def test_peak_memory_stays_near_the_cache(cache: str, layers: str) -> None:
    pytest.importorskip("resource", reason="no getrusage on this system")
    argv = [
        "verify",
        "llama-8b",
        "--layers",
        layers,
        "--tokens",
        "32k",
        "--dtype",
        "bf16",
        "--cache",
        cache,
        "--no-controls",
        "--json",
    ]
    ran = subprocess.run([sys.executable, "-c", CHILD, *argv], capture_output=True, text=True, check=False)
    told = json.loads(ran.stderr.strip().splitlines()[-1])
    report = json.loads(ran.stdout)
    assert told["code"] == 0, report
    predicted = max(total["predicted_bytes"] for total in report["totals"])
    assert told["peak"] < 1.3 * predicted + 600e6
