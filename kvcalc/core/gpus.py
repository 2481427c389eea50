"""Cards by name, and how much of each a program can use: less than the name says.

The driver, error correction and page tables keep some of a card; what PyTorch reports as its total capacity is what is
left. Sizes are as printed there, to 0.01 GiB, so they are good to 5 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction

from kvcalc.errors import UsageError

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card."""

    name: str
    gib: str  # as printed
    source: str  # a public report of that card that shows PyTorch's total capacity

    @property
    def bytes(self) -> int:
        """Usable memory, cut to whole bytes."""
        return int(Fraction(self.gib) * _GIB)


GPUS: tuple[Gpu, ...] = (
    Gpu("mi355", "287.98", "ROCm/ATOM#1164"),
    Gpu("b200", "178.35", "pytorch/ao#4002"),
    Gpu("h20-3e", "139.72", "vllm-project/vllm#13074"),
    Gpu("h100", "79.11", "vllm-project/vllm#27508"),
    Gpu("a100-80gb", "79.25", "HiDream-ai/VAREdit#6, levihsu/OOTDiffusion#235"),
    Gpu("a100-40gb", "39.50", "TianheWu/CoSeR#10"),
    Gpu("rtx-8000", "47.45", "SkyworkAI/SkyReels-V1#78"),
    Gpu("l20", "44.53", "Tencent-Hunyuan/HunyuanCustom#36"),
    Gpu("rtx-6000-ada", "44.43", "DINGYANB/MTVCrafter#21"),
    Gpu("l40s", "44.42", "stepfun-ai/Step-Video-T2V#8"),
    Gpu("l40", "44.40", "QwenLM/Qwen3-VL#2097"),
    Gpu("rtx-5090", "31.36", "TrajectoryCrafter/TrajectoryCrafter#20, Wan-Video/Wan2.1#465"),
    Gpu("v100-32gb", "31.74", "liucongg/ChatGLM-Finetuning#73"),
    Gpu("rtx-3090", "23.70", "GaoLii/DSP#10"),
    Gpu("rtx-4090", "23.64", "deepseek-ai/DeepSeek-V3#205, 3DTopia/Phidias-Diffusion#8"),
    Gpu("a30", "23.53", "google/RB-Modulation#5"),
    Gpu("a10", "21.99", "zai-org/CogVLM#236"),
    Gpu("v100-16gb", "15.77", "meta-llama/llama#918"),
    Gpu("rtx-a4000", "15.61", "DengKaiCQ/VGGT-Long#6"),
    Gpu("rtx-5080", "15.48", "vllm-project/vllm#14452"),
    Gpu("t4", "14.75", "hpcaitech/Open-Sora#697"),
    Gpu("rtx-a2000-12gb", "11.53", "vllm-project/vllm#12030"),
    Gpu("rtx-3080", "9.78", "zai-org/CogVideo#34"),
    Gpu("rtx-3070", "7.78", "akshitac8/OW-DETR#46"),
)


def find_gpu(name: str) -> Gpu:
    """The card called ``name``, however it is spelt. Raises UsageError."""
    known = {_plain(gpu.name): gpu for gpu in GPUS}
    key = _plain(name)
    found = next((known[word] for word in (key, f"{key}gb", f"rtx{key}", key.removesuffix("80gb")) if word in known), None)
    if found is not None:
        return found
    near = [known[match].name for match in get_close_matches(key[:40], known, n=3, cutoff=0.6)]
    near += [gpu.name for gpu in GPUS if key and _plain(gpu.name).startswith(key) and gpu.name not in near]
    hint = f"did you mean {', '.join(near)}?" if near else f"it knows {', '.join(gpu.name for gpu in GPUS)}"
    raise UsageError(f"the table has no card {name[:40]!r}", fix=f"{hint}; --memory takes any size")


def _plain(name: str) -> str:
    text = "".join(letter for letter in name.lower() if letter.isalnum())
    for word in ("nvidia", "geforce", "tesla"):
        text = text.removeprefix(word)
    return text
