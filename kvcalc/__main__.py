"""``python -m kvcalc``."""

from kvcalc.cli import run

if __name__ == "__main__":
    run()
