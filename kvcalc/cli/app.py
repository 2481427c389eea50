"""Wiring: which verb lives where. Only the verb that is asked for is imported.

Exit codes: 0 done or yes; 1 the answer is no; 2 usage; 3 bad input; 4 unsupported, or refused by the engine's rules;
5 something unavailable; 70 a bug in kvcalc, traceback shown; 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from kvcalc import __version__
from kvcalc.cli import streams
from kvcalc.cli.once import refuse_two_values
from kvcalc.cli.plain import take_plain
from kvcalc.errors import ExitCode, KvcalcError, OutputError, UsageError

VERBS: dict[str, str] = {
    "estimate": "kvcalc.cli.estimate",
    "sweep": "kvcalc.cli.sweep",
    "compare": "kvcalc.cli.compare",
    "fit": "kvcalc.cli.fit",
    "inspect": "kvcalc.cli.inspect",
    "audit": "kvcalc.cli.audit",
    "check": "kvcalc.cli.check",
    "presets": "kvcalc.cli.presets",
    "engines": "kvcalc.cli.engines",
    "gpus": "kvcalc.cli.gpus",
    "schema": "kvcalc.cli.schema",
    "verify": "kvcalc.cli.verify",
    "mcp": "kvcalc.cli.mcp",
}
# The first line of each verb's own help: the overview, and completion of a verb, import none of them.
ABOUT: dict[str, str] = {
    "estimate": "How big is this cache, term by term.",
    "sweep": "A table over lengths, and batches, types and models.",
    "compare": "Which model is cheap to serve at my lengths.",
    "fit": "What fits beside the weights: the largest length for a batch, or the largest batch for a length.",
    "inspect": "What each layer caches, and which field of the file said so.",
    "audit": "Hold an engine's own log lines against the prediction, and explain the difference.",
    "check": "Whether a launch line, a script or a manifest fits its card, and what to change in it.",
    "presets": "The models that ship with kvcalc, and your own: list, filter, show.",
    "engines": "Whose rules there are: version, source, options and their defaults.",
    "schema": "Print the JSON Schema of a verb's --json.",
    "gpus": "List the cards that --gpu knows, and how much of each a program can use.",
    "verify": "Run the real cache against full attention, and weigh it.",
    "mcp": "Serve estimate, fit, check and audit to an agent, on standard input and output.",
}
INTERRUPTED = 130
_COMPLETING = "_KVCALC_COMPLETE"  # set by the shell that asks what to offer

EPILOG = """Examples:

kvcalc estimate --preset llama-8b

kvcalc sweep --tokens 1k..32k

kvcalc compare llama-8b qwen3-8b gemma-3-27b --tokens 32k
"""

GREETING = """kvcalc: how much memory a language model's KV cache takes

How big is the cache?           kvcalc estimate --preset llama-8b --tokens 32k
What fits on my card?           kvcalc fit qwen3-8b --gpu rtx-4090 --weights auto
Will this launch line work?     kvcalc check 'vllm serve Qwen/Qwen3-8B --max-model-len 32768'

kvcalc --help lists all commands; kvcalc help VERB explains one.
"""


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kvcalc {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """How many bytes a language model's cache takes, under whose rules, and why."""
    del version


@cache
def _command(verb: str | None) -> Any:
    """The command line with one verb in it, or the names of all (the overview, completion of a verb, a misspelt one)."""
    app = typer.Typer(
        name="kvcalc",
        no_args_is_help=True,
        epilog=EPILOG,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        add_completion=verb is None or _COMPLETING in os.environ,
    )
    app.callback()(_root)
    for name, module in VERBS.items():
        if verb == name:
            found = import_module(module)
            app.command(name, epilog=examples(found.EXAMPLES), no_args_is_help=False)(found.command)
        elif verb is None:
            app.command(name, help=ABOUT[name])(_only_named)
    group = typer.main.get_command(app)
    for command in (group, *group.commands.values()):  # type: ignore[attr-defined]
        take_plain(command)
        refuse_two_values(command)
    return group


def _plain_words(words: list[str]) -> list[str]:
    """``help VERB`` and ``version`` as people type them."""
    if words[:1] == ["help"]:
        return [*words[1:2], "--help"]
    return ["--version"] if words == ["version"] else words


def _only_named() -> None:
    """Stands for a verb in the overview. A line that names a verb gets that verb."""


def _verb_of(words: list[str]) -> str | None:
    """The verb that a command line names, or that the line to be completed names."""
    if not words and _COMPLETING in os.environ:
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
        words = line.split()[1:]
    return words[0] if words and words[0] in VERBS else None


def examples(lines: tuple[str, ...]) -> str:
    """The examples under a verb's help: each runs as written."""
    return "Examples:\n\n" + "\n\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run a command line in this process and return its exit code; never exits the interpreter."""
    words = _plain_words(list(sys.argv[1:] if argv is None else argv))
    verb = _verb_of(words)
    try:
        if not words and _COMPLETING not in os.environ:
            sys.stdout.write(GREETING)
            sys.stdout.flush()
            return ExitCode.OK
        result = _command(verb).main(args=words, prog_name="kvcalc", standalone_mode=False)
        sys.stdout.flush()
        if result == INTERRUPTED:
            return _interrupted()  # Typer makes this code of Ctrl-C, and says nothing
        return int(result or ExitCode.OK)
    except KvcalcError as problem:
        return _known(problem, words)
    except OSError as problem:
        return _unwritten(problem, words)
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # the parser turns it into an exit of its own
            return _unwritten(stop.__context__, words)
        return stop.code if isinstance(stop.code, int) else ExitCode.OK
    except Exception as problem:  # noqa: BLE001 - the last resort: usage errors of Typer's, or a bug of ours
        return _unknown(problem, words)


def answer_of(verb: str, words: list[str]) -> int:
    """Run one verb in this process and return its exit code; what it refuses is raised. Raises KvcalcError."""
    try:
        return int(_command(verb).main(args=[verb, *words], prog_name="kvcalc", standalone_mode=False) or ExitCode.OK)
    except KvcalcError:
        raise
    except Exception as problem:
        message = getattr(problem, "format_message", None)
        if message is None:
            raise
        raise _usage(str(message()), [verb, *words]) from None


def _known(problem: KvcalcError, words: list[str]) -> int:
    from kvcalc.cli.output import show_error

    if "--debug" in words:
        import traceback

        traceback.print_exception(problem)
    return show_error(problem, "--json" in words)


def _unknown(problem: Exception, words: list[str]) -> int:
    """Typer's usage errors carry ``format_message``; its Abort is Ctrl-C; the rest are bugs."""
    message = getattr(problem, "format_message", None)
    if message is not None:
        text = str(message())  # empty where no verb was given: the help is on the screen already
        return _known(_usage(text, words), words) if text else ExitCode.USAGE
    if type(problem).__name__ == "Abort":
        return _interrupted()
    import traceback

    with suppress(OSError):
        traceback.print_exception(problem)
        sys.stderr.write(f"this is a bug in kvcalc {__version__}: please report it with the lines above\n")
    return ExitCode.BUG


FORMATS = ("csv", "markdown")  # of kvcalc sweep, which people write as flags


def _usage(text: str, words: list[str]) -> UsageError:
    for name in FORMATS:
        if f"--{name}" in words and text.startswith(f"No such option: --{name}"):
            return UsageError(f"No such option: --{name}", fix=f"kvcalc sweep writes it: --format {name}")
    foreign = next((name for name in FOREIGN if text.startswith(f"No such option: {name}") and name in _names(words)), "")
    if foreign:
        return UsageError(f"No such option: {foreign}", fix=f"write {FOREIGN[foreign]}")
    return UsageError(text, fix=f"see {_help_of(words)}")


def _names(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words}


# What people write by an engine's own habit → what it is here.
FOREIGN = {
    "--ctx-size": "--tokens, or -o ctx-size=N beside --engine llama.cpp",
    "--n-ctx": "--tokens, or -o ctx-size=N beside --engine llama.cpp",
    "--num-ctx": "--tokens, or -o num-ctx=N beside --engine ollama",
    "--max-model-len": "--tokens, or -o max-model-len=N beside --engine vllm",
    "--context-length": "--tokens",
    "--max-tokens": "--tokens",
    "--seq-len": "--tokens",
    "--batch-size": "--batch",
    "--tensor-parallel-size": "--tp",
    "--tp-size": "--tp",
    "--pipeline-parallel-size": "--pp",
    "--data-parallel-size": "--dp",
    "--kv-cache-dtype": "--dtype, or -o kv-cache-dtype=NAME beside --engine vllm or sglang",
    "--cache-type-k": "--k-dtype",
    "--cache-type-v": "--v-dtype",
    "--gpu-memory-utilization": "kvcalc fit MODEL --gpu NAME --utilization 0.9",
    "--utilization": "kvcalc fit MODEL --gpu NAME --utilization 0.9",
    "--mem-fraction-static": "kvcalc fit MODEL --gpu NAME --engine sglang",
    "--gpu": "kvcalc fit MODEL --gpu NAME",
    "--memory": "kvcalc fit MODEL --memory SIZE",
    "--weights": "kvcalc fit MODEL --weights SIZE",
    "--model": "the model by itself: kvcalc estimate MODEL",
}


def _help_of(words: list[str]) -> str:
    return f"kvcalc {words[0]} --help" if words and words[0] in VERBS else "kvcalc --help"


def _interrupted() -> int:
    with suppress(OSError):
        sys.stderr.write("\ninterrupted\n")
    return INTERRUPTED


_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def _unwritten(problem: OSError, words: list[str]) -> int:
    """The answer could not be written. A reader that has gone (``| head``) is no error; a full disk is."""
    if not isinstance(problem, BrokenPipeError) and problem.errno not in _DISK_ERRORS:
        return _unknown(problem, words)
    streams.silence()  # what is still in the buffer must not fail again at exit
    if isinstance(problem, BrokenPipeError):
        return ExitCode.OK
    return _known(
        OutputError(f"the answer can't be written: {problem.strerror}", fix="free some space, or write elsewhere"), words
    )
