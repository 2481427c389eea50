"""Cut tests/data/mlx.json from the measured figures: ``python tests/tools/sample_mlx.py FOLDER`` (mlx.jsonl and configs/).

Every case of a few models of each kind, and every refusal; a configuration's vocabulary, tokenizer and vision words are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parents[1] / "data" / "mlx.json"
MODELS = (
    "01-ai--Yi-6B-Chat",  # Llama's class makes its own caches
    "Qwen--Qwen3-0.6B",  # a class that takes the library's
    "google--gemma-2-2b",  # attention by hand
    "google--gemma-3-4b-it",  # rotating windows, in a composite
    "openai--gpt-oss-20b",
    "microsoft--phi-1_5",  # a class that reads other keys
    "openbmb--MiniCPM3-4B",  # expanded latent
    "moonshotai--Kimi-K2.5",  # latent
    "zai-org--GLM-5",  # lists of caches
    "Qwen--Qwen3.5-0.8B",  # states
)


def main(folder: Path) -> None:
    """Rows and the configurations that they name."""
    rows = [json.loads(line) for line in (folder / "mlx.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [row for row in rows if row["config"].removesuffix(".json") in MODELS or ("prompts" not in row and row.get("error"))]
    configs = {row["config"]: _read(folder / "configs" / row["config"]) for row in kept}
    TARGET.write_text(json.dumps({"configs": configs, "rows": kept}, separators=(",", ":")) + "\n", encoding="utf-8")
    print(len(kept), "rows", TARGET.stat().st_size, "bytes")


_LEFT_OUT = ("vision", "token", "vocab", "quantization", "auto_map", "id2label", "label2id", "audio")


def _read(path: Path) -> Any:
    config = json.loads(path.read_text(encoding="utf-8"))
    return {key: value for key, value in config.items() if not any(word in key for word in _LEFT_OUT) or key == "vocab_size"}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
