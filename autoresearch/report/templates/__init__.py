"""The Jinja templates of the report, and the environment that renders them.

Only `autoresearch.report` uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from common import markdown


def render(template: str, **values: Any) -> str:
    """A template of this folder with its values; what is not `Markup` is escaped."""
    text = _ENVIRONMENT.get_template(template).render(**values)
    if template.endswith(".md.j2"):  # quotes mean nothing in Markdown, and people read its source
        text = text.replace("&#39;", "'").replace("&#34;", '"')
    return text


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A Markdown table whose cells show their text as it is, whatever it looks like."""
    cells = [[str(escape(cell)) for cell in row] for row in rows]
    return Markup(markdown.table([str(escape(cell)) for cell in header], cells))


def markdown_code(text: str) -> Markup:
    """Text as Markdown code, which needs no escapes as long as it has no backtick."""
    return Markup("`" + text.replace("`", "'").replace("\n", " ") + "`")


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=False,
)
_ENVIRONMENT.globals.update(
    table=markdown_table, code=markdown_code, number=lambda value: markdown.number(value)
)
