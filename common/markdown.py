"""Writes numbers, estimates and tables for the generated documents."""

from collections.abc import Mapping
from typing import Any


def number(value: float) -> str:
    """Four significant digits, with commas between thousands."""
    if abs(value) >= 9_999.5:  # four significant digits would give 1e+04
        return f"{value:,.0f}"
    return f"{value:.4g}"


def estimate(value: Any) -> str:
    """A mean with its 95% interval; both values if there are only two; or a plain number."""
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return number(value)
    if value.get("values"):
        return " and ".join(map(number, value["values"]))
    if value.get("low") is None:
        return number(value["mean"])
    return f"{number(value['mean'])} [{number(value['low'])}, {number(value['high'])}]"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [_line(header), "|" + "---|" * len(header)]
    return "\n".join([*lines, *map(_line, rows)])


def _line(cells: list[str]) -> str:
    plain = [cell.replace("|", "\\|").replace("\n", " ") for cell in cells]
    return "| " + " | ".join(plain) + " |"


UNCOMMITTED = "†"
"""Mark behind the commit of a record that was made from code with uncommitted changes."""


def mark(record: Mapping[str, Any]) -> str:
    """UNCOMMITTED for a record made from code with uncommitted changes, else nothing."""
    return UNCOMMITTED if record["code"]["clean"] is False else ""


def provenance(record: Mapping[str, Any]) -> str:
    """What made a record: command, day, code, machine."""
    code = record["code"]
    commit = (code["commit"] or code["sha256"])[:10]
    return (
        f"`{record['command']}`, {record['created'][:10]}, code {commit}{mark(record)}, "
        f"{record['machine']['cpu']}, {cores(record)}"
    )


def cores(record: Mapping[str, Any]) -> str:
    """The cores that the command used, such as "1 of 2 cores", if the record says so."""
    machine = record["machine"]
    available, threads = machine["cores_available"], machine["threads"].get("torch")
    used = f"{threads} of " if threads and threads < available else ""
    return f"{used}{available} cores"


def tables(details: Mapping[str, Any], title: str = "") -> list[str]:
    """Markdown of every table in `details`: rows by name, of numbers or of columns by name.

    Longer things (curves, single rounds) stay in the record.
    """
    blocks = []
    values = list(details.values())
    if values and all(_is_cell(value) for value in values):
        if title:
            rows = [[name, _cell(value)] for name, value in details.items()]
            blocks.append(table([title, ""], rows))
    elif values and all(_is_row(value) for value in values):
        columns = list(dict.fromkeys(name for row in values for name in row))
        rows = [[name, *(_cell(row.get(c)) for c in columns)] for name, row in details.items()]
        blocks.append(table([title, *columns], rows))
    else:
        for name, value in details.items():
            if isinstance(value, Mapping):
                blocks += tables(value, f"{title}: {name}" if title else name)
    return blocks


def _is_cell(value: Any) -> bool:
    return value is None or isinstance(value, int | float | str)


def _is_row(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(map(_is_cell, value.values()))


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else estimate(value)
