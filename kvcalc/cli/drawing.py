"""Pictures and pages: checked before the work, written whole after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.cli.options import Paging, Picturing
from kvcalc.cli.output import warn
from kvcalc.errors import UsageError
from kvcalc.reports.files import check_target, write_file

if TYPE_CHECKING:
    from kvcalc.reports.pictures import Chart


def check_targets(drawing: Paging | Picturing, force: bool) -> None:
    """Refuse a file that can't be written, or of another kind. Raises UsageError, OutputError."""
    plot = drawing.plot if isinstance(drawing, Picturing) else None
    html = drawing.html if isinstance(drawing, Paging) else None
    if plot is None and isinstance(drawing, Picturing) and drawing.dark:
        raise UsageError(
            "--dark is the ground of a picture, and no --plot asks for one", fix="add --plot FILE.png, or leave it out"
        )
    if plot is not None:
        from kvcalc.reports.plot import check_suffix

        check_suffix(plot)
    if html is not None and html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"a page ends in .html, not {str(html)[-40:]!r}", fix="write --html cache.html")
    for path in (plot, html):
        if path is not None:
            check_target(path, force=force)


def write_picture(chart: Chart, drawing: Picturing, force: bool) -> None:
    """Draw ``chart`` into the named file. Raises MissingExtraError, OutputError."""
    from kvcalc.reports.plot import check_suffix, draw

    if drawing.plot is not None:
        write_file(drawing.plot, draw(chart, check_suffix(drawing.plot), "dark" if drawing.dark else "light"), force=force)
        warn(f"picture written to {drawing.plot}")


def write_page(page: str, drawing: Paging, force: bool) -> None:
    """Write the named page. Raises OutputError."""
    if drawing.html is not None:
        write_file(drawing.html, page, force=force)
        warn(f"page written to {drawing.html}")
