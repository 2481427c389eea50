"""Every option, declared once, in the groups that verbs take.

Annotations are evaluated here (no ``from __future__``): Typer needs them, and evaluating them later costs start-up time.
"""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from kvcalc.cli import completion
from kvcalc.cli.grouping import Group

MODEL, REQUEST, OUTPUT = "Model", "Request", "Output"


def _option(*names: str, text: str, panel: str, **more: Any) -> Any:
    return Option(*names, help=text, rich_help_panel=panel, show_default=False, **more)


def _model(*names: str, text: str, **more: Any) -> Any:
    return _option(*names, text=text, panel=MODEL, **more)


def _request(*names: str, text: str, **more: Any) -> Any:
    return _option(*names, text=text, panel=REQUEST, **more)


def _output(*names: str, text: str, **more: Any) -> Any:
    return _option(*names, text=text, panel=OUTPUT, **more)


Text = str | None
NONE_GIVEN: list[str] = []


class Described(Group):
    """How a model is named, and the fields that stand instead of its own."""

    preset: Annotated[
        Text, _model("--preset", "-p", metavar="NAME", text="A model that ships with kvcalc.", autocompletion=completion.presets)
    ] = None
    config: Annotated[
        Path | None, _model("--config", "-c", metavar="PATH", text="A config.json, or the folder that holds one.")
    ] = None
    gguf: Annotated[
        Text, _model("--gguf", metavar="FILE|URL", text="A GGUF file (its header is enough), its metadata as JSON, or a URL.")
    ] = None
    hub: Annotated[
        Text, _model("--hub", metavar="ORG/NAME", text="A repository of the hub: config.json only, never weights.")
    ] = None
    file: Annotated[Text, _model("--file", metavar="FILE", text="With --hub: the GGUF file of that repository.")] = None
    revision: Annotated[Text, _model("--revision", metavar="NAME", text="With --hub: a branch, tag or commit.")] = None
    kv_heads: Annotated[Text, _model("--kv-heads", metavar="N", text="H_kv: key/value heads of a layer.")] = None
    head_dim: Annotated[Text, _model("--head-dim", metavar="N", text="D_h: the head dimension.")] = None
    v_head_dim: Annotated[Text, _model("--v-head-dim", metavar="N", text="Features of a value head, where they differ.")] = None
    heads: Annotated[Text, _model("--heads", metavar="N", text="Query heads.")] = None
    hidden_size: Annotated[Text, _model("--hidden-size", metavar="N", text="Width of the model.")] = None
    sliding_window: Annotated[Text, _model("--sliding-window", metavar="N", text="Window of sliding layers.")] = None
    set_: Annotated[
        list[str],
        _model("--set", metavar="KEY=VALUE", text="Any other field of the file, as JSON: index_head_dim=128."),
    ] = NONE_GIVEN
    assume: Annotated[
        Text, _model("--assume", metavar="TYPE", text="Count an unknown model type like this one; marked as assumed.")
    ] = None
    presets_dir: Annotated[Path | None, _model("--presets-dir", metavar="FOLDER", text="A folder of your own presets.")] = None


class Naming(Described):
    """The same with the equation's own L, which ``inspect`` spells otherwise."""

    layers: Annotated[Text, _model("--layers", metavar="N", text="L: layers.")] = None


class OneModel(Group):
    """The positional model."""

    model: Annotated[
        Text,
        Argument(
            help="A preset, a config.json or its folder, a GGUF file, or ORG/NAME on the hub.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None


class ManyModels(Group):
    """Several positional models."""

    models: Annotated[
        list[str],
        Argument(
            help="Presets, config.json files or their folders, GGUF files, ORG/NAME on the hub.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = NONE_GIVEN


class Types(Group):
    """Element types of the cache."""

    dtype: Annotated[
        Text, _request("--dtype", "-d", metavar="TYPE", text="Element type of keys and values.", autocompletion=completion.dtypes)
    ] = None
    k_dtype: Annotated[
        Text, _request("--k-dtype", metavar="TYPE", text="Element type of keys alone.", autocompletion=completion.dtypes)
    ] = None
    v_dtype: Annotated[
        Text, _request("--v-dtype", metavar="TYPE", text="Element type of values alone.", autocompletion=completion.dtypes)
    ] = None


class Rules(Group):
    """Whose rules count, on how many ranks."""

    encoder_tokens: Annotated[
        Text, _request("--encoder-tokens", metavar="N", text="Encoder (or image) positions of cross-attention.")
    ] = None
    draft: Annotated[bool, _request("--draft", text="Count the draft (multi-token prediction) layers too.")] = False
    tp: Annotated[Text, _request("--tp", metavar="N", text="Tensor-parallel ranks.")] = None
    pp: Annotated[Text, _request("--pp", metavar="N", text="Pipeline-parallel ranks.")] = None
    dp: Annotated[Text, _request("--dp", metavar="N", text="Data-parallel ranks.")] = None
    engine: Annotated[
        str,
        _request(
            "--engine",
            "-e",
            metavar="NAME",
            text="Whose rules: exact, transformers, llama.cpp, vllm …",
            autocompletion=completion.engines,
        ),
    ] = "exact"
    option: Annotated[
        list[str],
        _request(
            "-o",
            "--option",
            metavar="NAME=VALUE",
            text="An engine's own option (see kvcalc engines).",
            autocompletion=completion.options,
        ),
    ] = NONE_GIVEN


class Adding(Group):
    """What an engine's log doesn't say."""

    dtype: Annotated[
        Text, _request("--dtype", "-d", metavar="TYPE", text="Element type of the cache.", autocompletion=completion.dtypes)
    ] = None
    tp: Annotated[Text, _request("--tp", metavar="N", text="Tensor-parallel ranks.")] = None
    pp: Annotated[Text, _request("--pp", metavar="N", text="Pipeline-parallel ranks.")] = None
    draft: Annotated[bool, _request("--draft", text="Count the draft layers too.")] = False
    option: Annotated[
        list[str], _request("-o", "--option", metavar="NAME=VALUE", text="NAME=VALUE: an option of the log's engine.")
    ] = NONE_GIVEN


class OneSize(Group):
    """One length and one batch."""

    tokens: Annotated[Text, _request("--tokens", "-t", metavar="N", text="T: positions of a sequence (4096, 32k).")] = None
    batch: Annotated[Text, _request("--batch", "-b", metavar="N", text="B: sequences.")] = None
    lengths: Annotated[
        Text,
        _request("--lengths", metavar="LIST|FILE", text="Sequences of different lengths: 512,8k,32k, or a file with one a line."),
    ] = None


class Room(Group):
    """The memory there is, and what else lives in it."""

    memory: Annotated[Text, _request("--memory", "-m", text="Memory of one device: 24GiB, 24GB.")] = None
    gpu: Annotated[
        Text,
        _request(
            "--gpu", text="A card by name, with its usable memory (a wrong name lists them).", autocompletion=completion.gpus
        ),
    ] = None
    log: Annotated[
        Text,
        _request(
            "--log", metavar="FILE", text="An engine's own log: its engine, release, settings, and the memory its cache had."
        ),
    ] = None
    device: Annotated[Text, _request("--device", text="Ask a device of this machine what is free: cuda:0 (needs torch).")] = None
    weights: Annotated[
        Text,
        _request(
            "--weights",
            text="The whole model's weights: 16GB, auto to read it, or a format (q4_k_m, awq, fp8 …). Ranks share them.",
        ),
    ] = None
    overhead: Annotated[Text, _request("--overhead", text="What else a device holds: activations, graphs, other programs.")] = (
        None
    )
    utilization: Annotated[
        Text, _request("--utilization", text="The share of the device that may be used: 0.92. A whole card: the engine's own.")
    ] = None


class Showing(Group):
    """How the answer is written."""

    json: Annotated[bool, _output("--json", text="JSON on stdout, under a versioned schema.")] = False
    debug: Annotated[bool, _output("--debug", text="Show the traceback of an error.")] = False


class Paging(Group):
    """A page beside the answer."""

    html: Annotated[
        Path | None, _output("--html", metavar="FILE", text="Write a page with tables, charts and sliders: FILE.html.")
    ] = None


class Picturing(Group):
    """A picture beside the answer."""

    plot: Annotated[Path | None, _output("--plot", metavar="FILE", text="Draw it too: FILE.png or FILE.svg.")] = None
    dark: Annotated[bool, _output("--dark", text="With --plot: on a dark ground.")] = False


class Drawing(Picturing, Paging):
    """Both."""


class Forcing(Group):
    """Whether files may be replaced."""

    force: Annotated[bool, _output("--force", text="Overwrite files that are there.")] = False


class Writing(Forcing):
    """Where a table goes."""

    output: Annotated[Path | None, _output("--output", metavar="FILE", text="Write to this file instead of stdout.")] = None
