"""Options declared once: a class is a group of them, and a verb takes groups.

``@takes_groups`` gives Typer a signature with every option of every group; the verb itself receives the groups, filled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, get_type_hints

Verb = Callable[..., Any]


class Group:
    """A set of options: each annotated class attribute is one, its value the default."""

    def __init__(self, **values: Any) -> None:
        for name in options_of(type(self)):
            setattr(self, name, values.get(name, getattr(type(self), name)))


def options_of(group: type[Group]) -> dict[str, Any]:
    """Option name → annotation, inherited ones first."""
    found: dict[str, Any] = {}
    for base in reversed(group.__mro__):
        found.update(inspect.get_annotations(base))
    return found


def takes_groups(verb: Verb) -> Verb:
    """The verb with its option groups spread out into single parameters."""
    hints = get_type_hints(verb, include_extras=True)
    hints.pop("return", None)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Group)}

    @wraps(verb)
    def spread(**values: Any) -> Any:
        built = {name: group(**{option: values.pop(option) for option in options_of(group)}) for name, group in groups.items()}
        return verb(**built, **values)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name in groups:
            parameters += [_parameter(option, groups[name], hint) for option, hint in options_of(groups[name]).items()]
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
    del spread.__wrapped__  # Typer would look through it
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread


def _parameter(option: str, group: type[Group], annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=getattr(group, option), annotation=annotation)
