"""What is free on a device of this machine."""

from __future__ import annotations

from kvcalc.errors import DeviceError, MissingExtraError


def free_bytes(name: str) -> tuple[int, int]:
    """(free, total) bytes of a CUDA (or ROCm) device. Raises DeviceError, MissingExtraError."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("asking a device needs torch", fix='pip install "kvcalc[verify]", or --memory') from None
    try:
        device = torch.device(name)
    except (RuntimeError, ValueError):
        raise DeviceError(f"{name[:40]!r} is no device", fix="write cuda:0") from None
    if device.type != "cuda":
        raise DeviceError(f"the memory of {device.type} devices can't be asked for", fix="give it with --memory")
    if not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise DeviceError(f"this machine has no device {name[:40]}: {count} CUDA devices are there", fix="give --memory or --gpu")
    free, total = torch.cuda.mem_get_info(device)
    return int(free), int(total)
