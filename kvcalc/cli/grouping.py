"""Options declared once: a dataclass is a group of them, and a verb takes groups.

``@takes_groups`` gives Typer a signature with every option of every group; the verb itself receives the groups, filled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

Verb = Callable[..., Any]


def takes_groups(verb: Verb) -> Verb:
    """The verb with its option groups spread out into single parameters."""
    hints = get_type_hints(verb, include_extras=True)
    hints.pop("return", None)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}

    @wraps(verb)
    def spread(**values: Any) -> Any:
        built = {name: group(**{field.name: values.pop(field.name) for field in fields(group)}) for name, group in groups.items()}
        return verb(**built, **values)

    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(verb).parameters.items():
        if name in groups:
            own = get_type_hints(groups[name], include_extras=True)
            parameters += [_parameter(field, own[field.name]) for field in fields(groups[name])]
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
    del spread.__wrapped__  # Typer would look through it
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread


def _parameter(field: Field[Any], annotation: Any) -> inspect.Parameter:
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
