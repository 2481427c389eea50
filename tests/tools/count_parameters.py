"""How many parameters a published config.json describes: transformers' own class, built without memory, ties counted once.

    python tests/tools/count_parameters.py config.json …

A preset's ``parameters`` are counted so. Needs torch and transformers; no weights are read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def count(config: dict[str, object]) -> int:
    """Distinct parameters of the class that the file names."""
    import torch
    import transformers

    name = config["architectures"][0]  # type: ignore[index]
    rest = {key: value for key, value in config.items() if key not in ("model_type", "quantization_config")}
    made = transformers.AutoConfig.for_model(config["model_type"], **rest)
    with torch.device("meta"):
        model = getattr(transformers, name)(made)
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(f"{count(json.loads(Path(path).read_text())):,}  {path}")
