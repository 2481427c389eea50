"""``kvcalc check``: what a launch line, a script or a manifest sets, and what comes of it."""

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.options import Showing
from kvcalc.cli.output import show, write_json
from kvcalc.errors import ExitCode, UsageError
from kvcalc.launch.values import Launch, LaunchError

EXAMPLES = (
    "kvcalc check 'vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 32k' --settings",
    "kvcalc check compose.yaml --settings",
)
STDIN = "-"


@takes_groups
def command(
    what: Annotated[
        list[str],
        Argument(help="A launch line (quoted, or after --), a file, or - for a pipe.", show_default=False, metavar="WHAT…"),
    ],
    showing: Showing,
    settings: Annotated[bool, Option("--settings", help="Print only what was read.", rich_help_panel="Output")] = False,
    env: Annotated[
        bool, Option("--env", help="Fill in variables from this shell's environment too.", rich_help_panel="Request")
    ] = False,
) -> int:
    """What a launch line, a script or a manifest sets, and which of its flags count."""
    del settings  # nothing else is answered yet
    launches = read(what, env)
    if showing.json:
        from kvcalc.reports.check_json import settings_document

        write_json(settings_document(launches))
    else:
        from kvcalc.reports.check_tables import settings_view

        show(settings_view(launches))
    return ExitCode.OK


def read(what: list[str], env: bool) -> list[Launch]:
    """The launches in what was given: files, or words that make one line. Raises LaunchError, UsageError."""
    if not what:
        raise UsageError("nothing to check", fix="give a launch line, a file, or - for a pipe")
    from kvcalc.launch.forms import read_launches

    given = _environment() if env else {}
    paths = [text for text in what if text == STDIN or _is_file(text)]
    if len(paths) != len(what):
        text = what[0] if len(what) == 1 else " ".join(_quoted(word) for word in what)
        return _some(read_launches(text, "", {}, given), "the command line")
    texts = {path: _text(path) for path in paths}
    found = [launch for path, text in texts.items() for launch in read_launches(text, path, _beside(texts, path), given)]
    return _some(found, ", ".join(paths))


def _beside(texts: dict[str, str], path: str) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name != path}


def _some(found: list[Launch], where: str) -> list[Launch]:
    if not found:
        raise LaunchError(
            "no engine is started here",
            where,
            "give a line that starts vLLM, SGLang, llama.cpp, TensorRT-LLM, MLX-LM, Ollama or LMDeploy",
        )
    return found


def _is_file(text: str) -> bool:
    try:
        return len(text) < 4096 and "\n" not in text and Path(text).is_file()
    except (OSError, ValueError):
        return False


def _text(path: str) -> str:
    from kvcalc.launch.forms import MAX_BYTES
    from kvcalc.readers.files import read_text

    if path != STDIN:
        return read_text(Path(path), LaunchError, MAX_BYTES)
    if sys.stdin is None:
        raise LaunchError("standard input is closed", "stdin", "pipe the text into it, or name a file")
    return sys.stdin.buffer.read(MAX_BYTES + 1).decode("utf-8", "replace")


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def _quoted(word: str) -> str:
    import shlex

    return word if word and not set(word) & set(" \t\n\"'\\$`;&|<>(){}*?#") else shlex.quote(word)
