"""kvcalc: how many bytes a language model's cache takes, under whose rules, and why."""

__version__ = "0.1.0"
