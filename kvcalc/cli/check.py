"""``kvcalc check``: what a launch line, a script or a manifest sets, whether it fits, and what to change in it."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from kvcalc.cli import completion
from kvcalc.cli.grouping import Group, takes_groups
from kvcalc.cli.options import NONE_GIVEN, Showing, Text
from kvcalc.cli.output import show, write_json
from kvcalc.errors import ExitCode, UsageError
from kvcalc.launch.values import Launch, LaunchError

EXAMPLES = (
    "kvcalc check 'vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 32k' --gpu rtx-4090",
    "kvcalc check 'llama-server -m Qwen3-8B-Q4_K_M.gguf -c 128k' --settings",
    "kvcalc check compose.yaml --gpu h100",
)
STDIN = "-"
_WORST = (ExitCode.OK, ExitCode.NO, ExitCode.USAGE, ExitCode.UNSUPPORTED)


class Beside(Group):
    """What the launch line itself doesn't say."""

    gpu: Annotated[
        Text,
        Option("--gpu", metavar="NAME", help="The card it runs on.", rich_help_panel="Request", autocompletion=completion.gpus),
    ] = None
    memory: Annotated[
        Text, Option("--memory", "-m", metavar="SIZE", help="Memory of one device: 24GiB, 24GB.", rich_help_panel="Request")
    ] = None
    model: Annotated[
        Text,
        Option("--model", metavar="MODEL", help="A preset, config.json or GGUF file, where the line's own name is not known."),
    ] = None
    hub: Annotated[bool, Option("--hub", help="Look the line's model up on the hub.")] = False
    weights: Annotated[
        Text,
        Option(
            "--weights", metavar="SIZE", help="The whole model's weights: 16GB, or a format: q4_k_m.", rich_help_panel="Request"
        ),
    ] = None
    overhead: Annotated[
        Text,
        Option("--overhead", metavar="SIZE", help="What else a device holds: activations, graphs.", rich_help_panel="Request"),
    ] = None
    var: Annotated[
        list[str], Option("--var", metavar="NAME=VALUE", help="A variable that the text leaves open.", rich_help_panel="Request")
    ] = NONE_GIVEN
    env: Annotated[
        bool, Option("--env", help="Fill in variables from this shell's environment too.", rich_help_panel="Request")
    ] = False


@takes_groups
def command(
    what: Annotated[
        list[str],
        Argument(help="A launch line (quoted, or after --), files, or - for a pipe.", show_default=False, metavar="WHAT…"),
    ],
    beside: Beside,
    showing: Showing,
    settings: Annotated[bool, Option("--settings", help="Print only what was read.", rich_help_panel="Output")] = False,
    allow_none: Annotated[
        bool, Option("--allow-none", help="End with 0 where the files start no engine.", rich_help_panel="Output")
    ] = False,
) -> int:
    """Whether a launch line, a script or a manifest fits its card, and what to change in it."""
    launches = read(what, _variables(beside), allow_none)
    if settings or not launches:
        _show_settings(launches, showing)
        return ExitCode.OK
    return _answer(launches, beside, showing)


def _show_settings(launches: list[Launch], showing: Showing) -> None:
    if showing.json:
        from kvcalc.reports.check_json import settings_document

        write_json(settings_document(launches))
    else:
        from kvcalc.reports.check_tables import settings_view

        show(settings_view(launches))


def _answer(launches: list[Launch], beside: Beside, showing: Showing) -> int:
    from kvcalc.check.answer import CODES, OPEN, answer
    from kvcalc.check.question import Room
    from kvcalc.cli.launch_models import known_model

    if beside.gpu and beside.memory:
        raise UsageError("the memory is named twice", fix="give --gpu or --memory")
    room = Room(gpu=beside.gpu or "", memory=beside.memory or "", overhead=beside.overhead or "")
    answers = [
        answer(launch, lambda asked: known_model(asked, beside.model or "", beside.hub, beside.weights or ""), room)
        for launch in launches
    ]
    if all(each.verdict == OPEN and each.problem is not None for each in answers) and answers[0].problem is not None:
        raise answers[0].problem  # nothing could be answered, and the first reason says why
    if showing.json:
        from kvcalc.reports.check_json import answers_document

        write_json(answers_document(answers))
    else:
        from kvcalc.reports.check_tables import answers_view

        show(answers_view(answers))
    return max((CODES[each.verdict] for each in answers), key=_WORST.index)


def read(what: list[str], given: Mapping[str, str], allow_none: bool = False) -> list[Launch]:
    """The launches in what was given: files, or words that make one line. Raises LaunchError, UsageError."""
    from kvcalc.launch.forms import read_launches

    paths = [text for text in what if text == STDIN or _is_file(text)]
    if len(paths) != len(what):
        text = what[0] if len(what) == 1 else " ".join(_quoted(word) for word in what)
        _not_a_path(text)
        return _some(read_launches(text, "", {}, given), "the command line")
    texts = {path: _text(path) for path in paths}
    found = []
    for path, text in texts.items():
        launches = read_launches(text, path, _beside(texts, path), given)
        found += [replace(each, place=f"{path}: {each.place}") if len(texts) > 1 else each for each in launches]
    return found if allow_none else _some(found, ", ".join(paths))


def _not_a_path(text: str) -> None:
    """One word that looks like a file, and is none. Raises LaunchError."""
    if " " not in text.strip() and text.endswith((".yaml", ".yml", ".sh", ".service", ".py", ".env", ".toml", ".json")):
        raise LaunchError("there is no such file", text[:200], "check the path")


def _beside(texts: Mapping[str, str], path: str) -> dict[str, str]:
    return {name: text for name, text in texts.items() if name != path}


def _some(found: list[Launch], where: str) -> list[Launch]:
    if not found:
        engines = "vLLM, SGLang, llama.cpp, TensorRT-LLM, MLX-LM, Ollama or LMDeploy"
        raise LaunchError("no engine is started here", where, f"give a line that starts {engines}")
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


def _variables(beside: Beside) -> dict[str, str]:
    """Variables from the flags, and from the environment where that is asked for. Raises UsageError."""
    import os

    found = dict(os.environ) if beside.env else {}
    for text in beside.var:
        name, equals, held = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--var {text[:40]!r} is not NAME=VALUE", fix="write --var TP=4")
        found[name] = held
    return found


def _quoted(word: str) -> str:
    import shlex

    return word if word and not set(word) & set(" \t\n\"'\\$`;&|<>(){}*?#") else shlex.quote(word)
