"""The baseline of the start-up benchmark: a Typer app with two commands, one pydantic model, one rich table."""

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

app = typer.Typer()


class Row(BaseModel):
    """One row."""

    name: str
    size: int


@app.command()
def show(size: int = 1) -> None:
    """Print a table."""
    table = Table("name", "size")
    row = Row(name="row", size=size)
    table.add_row(row.name, str(row.size))
    Console().print(table)


@app.command()
def nothing() -> None:
    """Do nothing."""


app()
