"""Words of the command line taken as they are.

Typer builds a pydantic adapter for every option that isn't a flag, whether it is given or not; for ours, which are text
that kvcalc reads itself, that is half of the start-up time. A release of Typer that keeps its parameters otherwise is
left alone, and merely slower.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class PlainText:
    """Stands where Typer would put an adapter: text stays text, a path becomes one, a list is one."""

    def __init__(self, is_path: bool) -> None:
        self.is_path = is_path

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of one parameter."""
        del ctx
        if param.multiple or param.nargs == -1:
            return list(value or ())
        return Path(value) if self.is_path and value is not None else value


def take_plain(command: Any) -> None:
    """Make ``command`` take its flags, text and paths as they are, ``--help`` among them."""
    everything = command.get_params

    def get_params(ctx: Any) -> Any:
        params = everything(ctx)
        for param in params:
            annotation = getattr(getattr(param, "type_descriptor", None), "annotation", None)
            if annotation in (str, bool, Path, list[str]) and getattr(param, "_runtime_param", ...) is None:
                param._runtime_param = PlainText(annotation is Path)  # noqa: SLF001 - see the module's docstring
        return params

    command.get_params = get_params
