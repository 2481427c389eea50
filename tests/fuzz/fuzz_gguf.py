"""Coverage-guided fuzzing of the GGUF header reader, with atheris (not a dependency: ``pip install atheris``).

    python tests/fuzz/fuzz_gguf.py -max_total_time=600 [a folder for the corpus]

Whatever the bytes, the reader returns or raises GgufError. Anything else, a second's thought or 200 MB is a finding.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import atheris

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS / "readers")]

with atheris.instrument_imports(include=["kvcalc"]):
    from kvcalc.core.fields import Fields
    from kvcalc.errors import KvcalcError
    from kvcalc.readers.gguf import read_stream
    from kvcalc.readers.gguf_model import model_of_gguf

from gguf_files import HOSTILE, LLAMA, header  # noqa: E402 - found by the lines above


def one_input(data: bytes) -> None:
    """A header, and what becomes of it: only errors of our own may come out."""
    try:
        found = read_stream(io.BytesIO(data), "fuzz", len(data))
        model = model_of_gguf(found, {})
        assert isinstance(model.fields, Fields)
    except KvcalcError:
        pass


def main() -> None:
    """Start from good headers and known damage."""
    corpus = next((Path(word) for word in sys.argv[1:] if not word.startswith("-")), None)
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
        seeds = {name: raw for name, (raw, _) in HOSTILE.items() if len(raw) < 4096}
        for name, raw in {**seeds, "good": header(), "big-endian": header(order=">"), "v2": header(LLAMA, version=2)}.items():
            (corpus / name).write_bytes(raw)
    atheris.Setup(["fuzz_gguf", "-timeout=2", "-rss_limit_mb=600", "-max_len=4096", *sys.argv[1:]], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
