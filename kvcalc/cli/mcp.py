"""``kvcalc mcp``: the verbs as tools of an agent, on standard input and output (Model Context Protocol)."""

import inspect
from typing import Annotated, Any

from typer import Option

from kvcalc import __version__
from kvcalc.cli.grouping import takes_groups
from kvcalc.cli.mcp_tools import TOOLS
from kvcalc.cli.options import Showing
from kvcalc.cli.output import show, write_json
from kvcalc.errors import ExitCode, MissingExtraError

EXAMPLES = ("kvcalc mcp --tools", "kvcalc mcp --tools --json")
INSTRUCTIONS = (
    "Memory of language models' KV caches, to the byte, under each engine's own allocation rules. "
    "Give check a launch line or manifest as it stands; give fit a model and a card; give audit an engine's log."
)


@takes_groups
def command(
    showing: Showing,
    tools: Annotated[bool, Option("--tools", help="Print the tools instead of serving them.", rich_help_panel="Output")] = False,
) -> int:
    """Serve estimate, fit, check and audit to an agent, on standard input and output."""
    if tools or showing.json:
        _show(showing.json)
        return ExitCode.OK
    server().run("stdio")
    return ExitCode.OK


def server() -> Any:
    """The server with its four tools. Raises MissingExtraError."""
    try:
        from mcp.server import MCPServer
    except ImportError:
        raise MissingExtraError("serving an agent needs the mcp package, 2.0 or newer", fix="pip install 'kvcalc[mcp]'") from None
    made = MCPServer("kvcalc", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in TOOLS:
        made.add_tool(tool, name=tool.__name__, description=inspect.cleandoc(tool.__doc__ or ""), structured_output=False)
    return made


def _show(as_json: bool) -> None:
    if as_json:
        from kvcalc.reports.to_json import document

        described = [
            {
                "name": tool.__name__,
                "description": inspect.cleandoc(tool.__doc__ or ""),
                "parameters": list(inspect.signature(tool).parameters),
            }
            for tool in TOOLS
        ]
        write_json(document("mcp", tools=described))
        return
    from rich.text import Text

    for tool in TOOLS:
        show(Text.assemble((tool.__name__, "bold"), f"({', '.join(inspect.signature(tool).parameters)})"))
        show(Text(f"  {inspect.cleandoc(tool.__doc__ or '').splitlines()[0]}"))
