"""Everything that kvcalc raises on purpose, and the exit code each ends in.

    KvcalcError
    ├── UsageError            2   the command line contradicts itself
    ├── InputError            3   a file or value that can't be right
    │   ├── PresetError
    │   ├── ConfigError           config.json
    │   ├── GgufError
    │   └── LogError
    ├── UnsupportedError      4   understood, but not modelled, or refused by the engine's own rules
    │   ├── ArchitectureError
    │   ├── EngineError
    │   └── DtypeError
    └── UnavailableError      5   something outside is missing
        ├── MissingExtraError
        ├── HubError
        ├── DeviceError
        └── OutputError           a file that can't be written

A "no" (does not fit, differs) is a result with exit code 1, not an exception.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What the process ends with."""

    OK = 0
    NO = 1
    USAGE = 2
    INPUT = 3
    UNSUPPORTED = 4
    UNAVAILABLE = 5
    BUG = 70


class KvcalcError(Exception):
    """A problem that the user can act on: what is wrong, where, and how to fix it."""

    exit_code: ClassVar[ExitCode] = ExitCode.INPUT
    code: ClassVar[str] = "error"

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        return "\n".join(
            part for part in (self.what, self.where and f"  at: {self.where}", self.fix and f"  fix: {self.fix}") if part
        )


class UsageError(KvcalcError):
    """Options that contradict each other, or a value that an option can't take."""

    exit_code = ExitCode.USAGE
    code = "usage"


class InputError(KvcalcError):
    """A file or a value that can't be right."""

    code = "input"


class PresetError(InputError):
    """A preset file that breaks its schema."""

    code = "preset"


class ConfigError(InputError):
    """A config.json that lacks a field or has an impossible one."""

    code = "config"


class GgufError(InputError):
    """A file that is no GGUF, or a damaged one."""

    code = "gguf"


class LogError(InputError):
    """An engine log in which nothing can be read."""

    code = "log"


class UnsupportedError(KvcalcError):
    """Understood, but outside what kvcalc models, or refused by the engine's own rules."""

    exit_code = ExitCode.UNSUPPORTED
    code = "unsupported"


class ArchitectureError(UnsupportedError):
    """A model type that no rule is known for."""

    code = "architecture"


class EngineError(UnsupportedError):
    """The engine itself would refuse this, or its rule isn't modelled."""

    code = "engine"


class DtypeError(UnsupportedError):
    """An element type that doesn't exist or can't hold this row."""

    code = "dtype"


class UnavailableError(KvcalcError):
    """Something outside kvcalc is missing."""

    exit_code = ExitCode.UNAVAILABLE
    code = "unavailable"


class MissingExtraError(UnavailableError):
    """An optional package isn't installed."""

    code = "missing-extra"


class HubError(UnavailableError):
    """The hub can't be reached, or refuses."""

    code = "hub"


class DeviceError(UnavailableError):
    """The device that was asked for isn't there."""

    code = "device"


class OutputError(UnavailableError):
    """A file that the system won't let us write: a full disk, a missing folder, missing rights."""

    code = "output"
