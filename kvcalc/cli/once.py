"""An option that takes one value, given two: the parser would let the last win, and nobody would know.

A release of Typer whose parser keeps its options elsewhere is left alone.
"""

from __future__ import annotations

from typing import Any

from kvcalc.errors import UsageError


def refuse_two_values(command: Any) -> None:
    """Make ``command`` raise UsageError where two values contradict each other; the same one twice is harmless."""
    make = command.make_parser

    def make_parser(ctx: Any) -> Any:
        parser = make(ctx)
        if not ctx.resilient_parsing:  # a shell asking for completions
            tables = (getattr(parser, "_short_opt", {}), getattr(parser, "_long_opt", {}))
            for option in {id(each): each for table in tables for each in table.values()}.values():
                if option.action == "store":
                    _watch(option)
        return parser

    command.make_parser = make_parser


_NAMES_A_MODEL = ("--preset", "--config", "--gguf", "--hub")


def _watch(option: Any) -> None:
    process = option.process

    def once(value: Any, state: Any) -> None:
        before = state.opts.get(option.dest, value)
        if before != value:
            name = max(option.obj.opts, key=len)
            fix = f"give it once; where it takes several values, {name} {str(before)[:60]},{str(value)[:60]}"
            if name in _NAMES_A_MODEL:
                fix = "give it once; sweep and compare take several models as bare words"
            raise UsageError(f"{name} is given twice: {str(before)[:60]!r} and {str(value)[:60]!r}", fix=fix)
        process(value, state)

    option.process = once
