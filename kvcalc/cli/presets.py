"""``kvcalc presets``: the models that ship with it, and your own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from kvcalc.cli import completion
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.options import Showing
from kvcalc.cli.output import show, warn, write_json
from kvcalc.errors import PresetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvcalc.core.model import Model
    from kvcalc.readers.preset_schema import Preset

EXAMPLES = (
    "kvcalc presets",
    "kvcalc presets qwen3",
    "kvcalc presets llama-8b",
    "kvcalc presets llama-8b --yaml",
)


@takes_groups
def command(
    showing: Showing,
    name: Annotated[
        str | None,
        Argument(help="A preset to show, or a word to filter by.", show_default=False, autocompletion=completion.presets),
    ] = None,
    presets_dir: Annotated[
        Path | None, Option("--presets-dir", help="A folder of your own presets.", rich_help_panel="Model", show_default=False)
    ] = None,
    yaml: Annotated[
        bool, Option("--yaml", help="The preset's file as it stands: a pattern for your own.", rich_help_panel="Output")
    ] = False,
) -> int:
    """The models that ship with kvcalc, and your own: list, filter, show."""
    if yaml:
        return _print_file(name, presets_dir, showing)
    from kvcalc.reports import preset_tables

    exact = _exact(name, presets_dir)
    chosen = [preset.model_dump() for preset in ([exact] if exact else _filtered(name, presets_dir))]
    if showing.json:
        write_json(preset_tables.presets_document(chosen))
    elif exact:
        show(preset_tables.preset_view(chosen[0]))
    else:
        show(preset_tables.presets_view(chosen, [_model(each) for each in chosen]))
    return 0


def _model(preset: Mapping[str, Any]) -> Model:
    from kvcalc.readers.hf_config import model_of

    return model_of(preset["config"], f"preset {preset['name']}", preset["name"], source_format="preset")


def _print_file(name: str | None, folder: Path | None, showing: Showing) -> int:
    """A broken file too: it is shown, not read."""
    from kvcalc.readers.files import read_text
    from kvcalc.readers.presets import MAX_PRESET_BYTES, find_preset

    if name is None or showing.json:
        raise UsageError("--yaml prints the file of one preset, and nothing else", fix="kvcalc presets llama-8b --yaml")
    text = read_text(find_preset(name, folder), PresetError, MAX_PRESET_BYTES)
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    return 0


def _exact(name: str | None, folder: Path | None) -> Preset | None:
    from kvcalc.readers.presets import find_preset, read_preset

    if name is None:
        return None
    try:
        return read_preset(find_preset(name, folder))
    except PresetError as problem:
        if "there is no preset" in problem.what:
            return None
        raise


def _filtered(word: str | None, folder: Path | None) -> list[Preset]:
    from kvcalc.readers.presets import find_preset

    everything = list(_readable(folder))
    if word is None:
        return everything
    key = word.lower()
    found = [
        each for each in everything if any(key in text.lower() for text in (each.name, each.title, each.family, *each.aliases))
    ]
    if not found:
        find_preset(word, folder)  # raises, with the nearest names
    return found


def _readable(folder: Path | None) -> Iterator[Preset]:
    """All but the broken ones, which are named: one mistake of a user's must not hide the rest."""
    from kvcalc.readers.presets import preset_paths, read_preset

    for path in preset_paths(folder):
        try:
            yield read_preset(path)
        except PresetError as problem:
            warn(f"left out: {problem.where}: {problem.what}")
