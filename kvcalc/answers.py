"""What a verb of the command line answers, from Python: the same words in, the same JSON out, held by the same tests.

A function's keywords are the verb's options (``tp=2`` is ``--tp 2``, ``options={"block-size": 32}`` is ``-o block-size=32``).
A model is whatever the command line takes: a preset, a file or folder, ORG/NAME, or the object that a config.json holds.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

Named = str | Path | Mapping[str, Any]
Options = Mapping[str, object]


class Answer(Mapping[str, Any]):
    """A verb's answer: its JSON as a mapping and as attributes, its table as text.

    ``found["fits"]`` and ``found.fits`` are the same; ``exit_code`` is the command line's (0 yes, 1 no).
    """

    def __init__(self, document: Mapping[str, Any], exit_code: int, text: str) -> None:
        self._document, self.exit_code, self.text = dict(document), exit_code, text

    def to_dict(self) -> dict[str, Any]:
        """The JSON that the command line prints with ``--json``."""
        return json.loads(json.dumps(self._document))  # type: ignore[no-any-return]

    def __getitem__(self, name: str) -> Any:
        return self._document[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._document:
            raise AttributeError(f"this answer has no {name!r}: it has {', '.join(self._document)}")
        return self._document[name]

    def __repr__(self) -> str:
        return self.text.rstrip()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


def fit(model: Named, **keywords: object) -> Answer:
    """What fits: ``fit("qwen3-32b", gpu="4090", weights="auto")``. Keywords of ``kvcalc fit``. Raises KvcalcError."""
    return _one("fit", model, keywords)


def inspect(model: Named, **keywords: object) -> Answer:
    """What each layer caches: ``inspect("deepseek-v3")``. Keywords of ``kvcalc inspect``. Raises KvcalcError."""
    return _one("inspect", model, keywords)


def sweep(*models: Named, **keywords: object) -> Answer:
    """A table over lengths: ``sweep("llama-8b", tokens="1k..32k")``. Keywords of ``kvcalc sweep``. Raises KvcalcError."""
    return _many("sweep", models, keywords)


def compare(*models: Named, **keywords: object) -> Answer:
    """Models side by side: ``compare("llama-8b", "qwen3-8b", tokens="32k")``. Raises KvcalcError."""
    return _many("compare", models, keywords)


def audit(log: str | Path, model: Named | None = None, **keywords: object) -> Answer:
    """An engine's log held against the prediction: the path of a log, or its text. Raises KvcalcError."""
    with contextlib.ExitStack() as stack:
        path = log if isinstance(log, Path) or "\n" not in log else _file(stack, "engine.log", log)
        words = [str(path), *([_named(model, stack)] if model is not None else [])]
        return ask("audit", words, keywords)


def check(what: str | Path, **keywords: object) -> Answer:
    """A launch line, a script or a manifest: its text or its path. Keywords of ``kvcalc check``. Raises KvcalcError."""
    return ask("check", [str(what)], keywords)


def presets(word: str | None = None) -> Answer:
    """The models that ship with kvcalc, or those that ``word`` names. Raises KvcalcError."""
    return ask("presets", [] if word is None else [word], {})


def engines(name: str | None = None) -> Answer:
    """The engines, their releases and options, or one of them. Raises KvcalcError."""
    return ask("engines", [] if name is None else [name], {})


def gpus(name: str | None = None) -> Answer:
    """The cards, or one of them. Raises KvcalcError."""
    return ask("gpus", [] if name is None else [name], {})


def _one(verb: str, model: Named, keywords: Options) -> Answer:
    with contextlib.ExitStack() as stack:
        return ask(verb, [_named(model, stack)], keywords)


def _many(verb: str, models: tuple[Named, ...], keywords: Options) -> Answer:
    with contextlib.ExitStack() as stack:
        return ask(verb, [_named(model, stack) for model in models], keywords)


def _named(model: Named, stack: contextlib.ExitStack) -> str:
    return _file(stack, "config.json", json.dumps(model)) if isinstance(model, Mapping) else str(model)


def _file(stack: contextlib.ExitStack, name: str, text: str) -> str:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kvcalc-"))
    path = Path(folder) / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def ask(verb: str, words: list[str], keywords: Options) -> Answer:
    """A verb's answer to words and keywords. Raises KvcalcError, UsageError for a keyword that is no option of the verb."""
    flags = [flag for name, held in keywords.items() for flag in _flags(name, held)]
    document, code = _run(verb, ["--json", *flags, "--", *words])
    text, _ = _run(verb, [*flags, "--", *words])
    return Answer(json.loads(document), code, text)


def _flags(name: str, held: object) -> list[str]:
    """``tp=2`` as ``--tp=2``; True as the bare flag; a list as the flag again and again."""
    if name == "options" and isinstance(held, Mapping):
        return [f"--option={option.replace('_', '-')}={_word(value)}" for option, value in held.items()]
    flag = f"--{name.replace('_', '-')}"
    if held is None or held is False:
        return []
    if held is True:
        return [flag]
    if isinstance(held, list | tuple):
        return [f"{flag}={_word(each)}" for each in held]
    return [f"{flag}={_word(held)}"]


def _word(held: object) -> str:
    return str(held).lower() if isinstance(held, bool) else str(held)


def _run(verb: str, words: list[str]) -> tuple[str, int]:
    from kvcalc.cli.app import answer_of

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = answer_of(verb, words)
    return out.getvalue(), code
