"""The page of model types is what the tables say, and every type of the library is on it."""

from __future__ import annotations

import sys
from pathlib import Path

from kvcalc.architectures.class_defaults import CLASS_DEFAULTS

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "model-types.md").read_text()

sys.path.insert(0, str(ROOT / "tests" / "tools"))


def test_the_page_is_not_stale() -> None:
    from write_model_types import page  # type: ignore[import-not-found, unused-ignore]

    assert page() == PAGE, "run python tests/tools/write_model_types.py"


def test_every_type_of_the_library_is_on_it() -> None:
    inner = ("_encoder", "blt_", "moshi_depth")  # encoders, and parts that no file describes alone
    missing = [name for name in CLASS_DEFAULTS if f"| `{name}` |" not in PAGE and not any(word in name for word in inner)]
    assert missing == []
