"""The cards of this machine, as its own tools print them, else its main memory. Each tool is asked once, for a few seconds."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess

from kvcalc.core.gpus import Gpu, apple_chip, find_gpu
from kvcalc.errors import DeviceError, UsageError
from kvcalc.values import value

SECONDS = 5
_NVIDIA = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_AMD = ("rocm-smi", "--showproductname", "--showmeminfo", "vram")


@value
class Machine:
    """What is here: so many equal cards, or main memory alone."""

    count: int
    bytes: int  # of one card
    said: str  # for people
    name: str = ""  # of the card, empty for main memory
    whole_card: bool = True


def this_machine() -> Machine:
    """The machine's cards, the smallest counting for all, else its memory. Raises DeviceError where neither can be told."""
    lines = _lines(_NVIDIA)
    if lines:
        return _nvidia(lines)
    if platform.system() == "Darwin":
        return _apple()
    amd = _amd(_lines(_AMD))
    return amd if amd is not None else _main_memory()


def _lines(command: tuple[str, ...]) -> list[str]:
    """What a tool prints; nothing where it isn't there, fails or takes long."""
    program = shutil.which(command[0])
    if program is None:
        return []
    try:
        done = subprocess.run([program, *command[1:]], capture_output=True, text=True, timeout=SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []
    return done.stdout.splitlines()[:256] if done.returncode == 0 else []


def _nvidia(lines: list[str]) -> Machine:
    """``NVIDIA GeForce RTX 4090, 24564`` a line: the card's row of the table, else what the driver prints."""
    cards = [match for line in lines if (match := re.fullmatch(r"\s*(.{1,80}?),\s*(\d{1,9})\s*", line))]
    if not cards:
        raise DeviceError("nvidia-smi prints no memory", fix="give --gpu or --memory")
    name, mib = min(((match[1], int(match[2])) for match in cards), key=lambda card: card[1])
    known = _known(name)
    size, source = (known.bytes, "its reported total") if known is not None else (mib * 2**20, "as nvidia-smi prints it")
    many = f"{len(cards)} cards, the smallest: " if len(cards) > 1 else ""
    return Machine(len(cards), size, f"this machine: {many}{name} ({source})", known.name if known else name)


def _known(name: str) -> Gpu | None:
    try:
        return find_gpu(name)
    except UsageError:
        return None


def _apple() -> Machine:
    memory = _lines(("sysctl", "-n", "hw.memsize"))
    brand = (_lines(("sysctl", "-n", "machdep.cpu.brand_string")) or ["Apple"])[0].strip()
    if not memory or not memory[0].strip().isdigit():
        raise DeviceError("sysctl prints no memory", fix="give --gpu or --memory")
    found = apple_chip(f"{brand} {int(memory[0]) // 2**30}gb")
    if found is None:
        raise DeviceError(f"{brand[:40]} is no Apple chip that is known", fix="give --memory")
    return Machine(1, found.bytes, f"this machine: {found.title} ({found.source})", found.name)


def _amd(lines: list[str]) -> Machine | None:
    sizes = [int(match[1]) for line in lines if (match := re.search(r"Total Memory \(B\):\s*(\d{1,16})", line))]
    names = [match[1].strip() for line in lines if (match := re.search(r"Card [Ss]eries:\s*(.{1,80})", line))]
    if not sizes:
        return None
    name = names[0] if names else "AMD"
    return Machine(len(sizes), min(sizes), f"this machine: {name} (as rocm-smi prints it)", name)


def _main_memory() -> Machine:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        raise DeviceError("no card, and the system doesn't say how much memory it has", fix="give --gpu or --memory") from None
    return Machine(1, size, "this machine's main memory: no card was found", whole_card=False)
