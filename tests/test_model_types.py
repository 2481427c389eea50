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


def test_no_rule_stands_for_a_type_that_the_library_lacks_and_no_source_names() -> None:
    assert all(f"| `{name}` |" in PAGE for name in ("llama", "gemma3_text", "deepseek_v4", "whisper", "mamba2"))
    assert len(CLASS_DEFAULTS) > 300
