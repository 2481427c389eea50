"""The command line: ``app`` wires, one file a verb, options declared once, one output sink."""

from kvcalc.cli.app import main, run

__all__ = ["main", "run"]
