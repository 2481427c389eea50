"""The options of ``verify`` alone.

Annotations are evaluated here (no ``from __future__``), as in ``options``.
"""

from typing import Annotated, Any

from typer import Option

from kvcalc.cli import completion
from kvcalc.cli.grouping import Group
from kvcalc.cli.options import NONE_GIVEN, Described


def _running(*names: str, text: str, **more: Any) -> Any:
    return Option(*names, help=text, rich_help_panel="Run", show_default=False, **more)


class Counted(Described):
    """How a model is named, with ``--layers`` in its meaning here."""

    layers: Annotated[
        str | None,
        Option(
            "--layers",
            help="How many layers of each kind are run (all that memory allows); with --kv-heads alone, the equation's L.",
            rich_help_panel="Model",
            show_default=False,
        ),
    ] = None


class Running(Group):
    """How the proof is run."""

    device: Annotated[str, _running("--device", text="auto, cpu, cuda, cuda:N, mps.")] = "auto"
    cache: Annotated[
        str,
        _running("--cache", text="all, concat, static, paged, quantized, sliding, latent …", autocompletion=completion.caches),
    ] = "all"
    prompt: Annotated[str | None, _running("--prompt", text="Tokens that are prefilled; the rest are decoded.")] = None
    chunk: Annotated[str, _running("--chunk", text="New tokens a step, in turn: 1, or 1,1,4.")] = "1,1,4"
    seed: Annotated[int, _running("--seed", text="Of all numbers: equal seeds give equal runs.")] = 0
    no_controls: Annotated[bool, _running("--no-controls", text="Leave out the caches that are broken on purpose.")] = False
    encoder_tokens: Annotated[str | None, _running("--encoder-tokens", text="Encoder positions of cross-attention.")] = None
    draft: Annotated[bool, _running("--draft", text="Run the draft layers too.")] = False
    option: Annotated[
        list[str], _running("-o", "--option", text="capacity=4k, block-size=32; with --against, that engine's options.")
    ] = NONE_GIVEN
    against: Annotated[str | None, _running("--against", text="A library's own cache against its engine: transformers …")] = None
    tp: Annotated[str | None, _running("--tp", text="Run as so many tensor-parallel ranks, each a process of its own.")] = None
    timed: Annotated[
        bool,
        _running("--time", text="Time a decode step at growing lengths; one layer of each kind is checked, unless --layers."),
    ] = False
    all_presets: Annotated[
        bool, _running("--all-presets", text="One layer of each shape that any preset has, each shape once.")
    ] = False
