"""Placeholder."""

EXAMPLES = ()


def command() -> int:
    """X"""
    return 0
