"""The command line: ``app`` wires, one file a verb, options declared once, one output sink.

Nothing is imported here: what a signal interrupts while the program is still being loaded must end as it does later.
"""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run a command line in this process and return its exit code; never exits the interpreter."""
    from kvcalc.cli.app import main as start

    return start(argv)


def run() -> None:
    """The console script."""
    try:
        from kvcalc.cli import signals, streams

        signals.end_tidily()
        streams.prepare()
        sys.exit(main())
    except KeyboardInterrupt:  # while it was being loaded, or at its end
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)
