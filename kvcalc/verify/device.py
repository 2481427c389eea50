"""The device that is asked for: whether it is there, which types it can take, and how much memory is free on it."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from kvcalc.errors import DeviceError, DtypeError
from kvcalc.verify.codecs import CODECS, Codec

DEVICES = "auto, cpu, cuda, cuda:N, mps"


def pick_device(name: str) -> torch.device:
    """The device called ``name``; ``auto`` takes CUDA, then MPS, then the CPU. Raises DeviceError."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not (kind == "cuda" and index.isdigit())):
        raise DeviceError(f"there is no device called {name[:40]!r}", fix=f"one of {DEVICES}")
    if kind == "cuda":
        return _cuda(int(index or 0))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise DeviceError(f"torch {torch.__version__} finds no Apple GPU here", fix="take --device cpu")
    return torch.device(kind)


def _cuda(index: int) -> torch.device:
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}, finds no usable GPU" if torch.version.cuda else "is built without CUDA"
        fix = "take --device cpu, or install a build of torch for CUDA (pytorch.org/get-started)"
        raise DeviceError(f"torch {torch.__version__} {built}", fix=fix)
    if index >= torch.cuda.device_count():
        raise DeviceError(f"there is no cuda:{index}", fix=f"GPUs here: 0 to {torch.cuda.device_count() - 1}")
    return torch.device("cuda", index)


def wide(device: torch.device) -> torch.dtype:
    """The type that references are computed in: float64 wherever the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def describe(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"cpu ({torch.get_num_threads()} threads)" if device.type == "cpu" else str(device)


def check_types(device: torch.device, names: set[str]) -> None:
    """Raise DtypeError when the device can't make one of the types, with those that it can."""
    for name in sorted(names):
        if name not in CODECS or not _usable(CODECS[name], device):
            able = ", ".join(known for known, codec in CODECS.items() if _usable(codec, device))
            raise DtypeError(f"verify can't make a cache of {name} on {device}", fix=f"it can make {able}")


def usable_types(device: torch.device) -> set[str]:
    """The types that the device can make."""
    return {name for name, codec in CODECS.items() if _usable(codec, device)}


def _usable(codec: Codec, device: torch.device) -> bool:
    try:
        codec.decode(codec.encode(torch.zeros(1, 2, 64, device=device)), 1)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be allocated, or None where the system doesn't say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory()) - int(torch.mps.driver_allocated_memory())
    found = [size for size in (_available(), _group_limit()) if size is not None]
    return min(found, default=None)


def _available() -> int | None:
    """Linux's own estimate; elsewhere the whole memory, of which others use some."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _group_limit() -> int | None:
    """What a container's limit leaves."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        return None if limit == "max" else max(int(limit) - used, 0)
    except (OSError, ValueError):
        return None


def allocated(device: torch.device) -> int | None:
    """CUDA's allocator's own figure."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    return int(torch.cuda.memory_allocated(device))
