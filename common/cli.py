"""The command line of scripts/: `name=value` in, a checked dataclass out, one last line of results.

A script's settings are a configuration class (see `common.schema`). Training commands with
configuration groups use `common.config` instead.
"""

import dataclasses
import inspect
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table

from common.errors import ConfigError, reported
from common.files import to_plain
from common.help import describe
from common.keys import accepts_none, accepts_text, type_at
from common.schema import build

if TYPE_CHECKING:
    from common.runs import Run

T = TypeVar("T")

_PLACES = ("run_root=", "records=", "out=")


def parse(schema: type[T], description: str, argv: Sequence[str] | None = None) -> T:
    """An instance of the dataclass `schema` from `name=value` arguments (default: `sys.argv`).

    Values are YAML (`true`, `0.5`, `[1,2]`, `null`); a dot separates a nested field from its
    parent. A text field takes the text unchanged. `--help` prints `description` and every field,
    and exits with 0. Raises `ConfigError` for anything that does not fit, and names the nearest
    real field.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if {"--help", "-h"} & set(arguments):
        print(inspect.cleandoc(description), describe(schema), sep="\n\n")
        sys.exit(0)
    settings: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or not name.strip("-"):
            raise ConfigError(f"'{argument}': write name=value (--help lists the names)")
        if name.startswith("-"):
            raise ConfigError(f"'{argument}': write {argument.lstrip('-')}, without dashes")
        value = _value(type_at(schema, name), text, argument)
        *groups, last = name.split(".")
        node = settings
        for group in groups:
            node = node.setdefault(group, {})
            if not isinstance(node, dict):
                raise ConfigError(f"'{argument}': {group} was given another value before")
        node[last] = value
    return build(schema, settings)


def check_ranges(settings: Any, **ranges: tuple[float, float]) -> None:
    """Raise `ValueError` unless each named field of `settings` is a number in [low, high]."""
    for name, (low, high) in ranges.items():
        if not low <= getattr(settings, name) <= high:
            raise ValueError(f"{name} is {low} to {high}, not {getattr(settings, name)}")


def command(script: str) -> str:
    """The command line of `script`, for a record, without the arguments for output folders."""
    words = [shlex.quote(word) for word in sys.argv[1:] if not word.startswith(_PLACES)]
    return " ".join(["python", script, *words])


def run_main(main: Callable[[], Any]) -> None:
    """Call a script's `main` and exit: 0 after success, 2 after a `UserError`.

    For an error that the user can correct it prints `error: ...` instead of a traceback. Ctrl-C
    exits with 130. A bug keeps its traceback and exits with 1.
    """
    with reported():
        sys.exit(main())


def finish(metrics: Mapping[str, Any], run: "Run | None" = None, name: str = "result") -> None:
    """Report a script's results: `<name>.json` in the run directory, and the last printed line.

    The line has space-separated `name=value` pairs: floats to six digits, booleans in lower case,
    None as null, an `Estimate` by its mean, text quoted for a shell where needed.
    """
    if run is not None:
        run.write_json(f"{name}.json", metrics)
    print(*(f"{key}={_printed(value)}" for key, value in metrics.items()), flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print `rows` under `columns`, the first column left-aligned, floats to four digits.

    Nothing is ever cut off. Where the terminal is too narrow for a table, each row is printed as a
    list of `column: value` lines.
    """
    texts = [[f"{v:.4g}" if isinstance(v, float) else str(v) for v in row] for row in rows]
    grid = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        grid.add_column(column, justify="right" if index else "left", no_wrap=True)
    for row in texts:
        grid.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console.width = 1_000  # a file or pipe has no width to fit into
    anywhere = console.options.update(max_width=10_000)
    if console.measure(grid, options=anywhere).maximum <= console.width:
        console.print(grid)
        return
    if title:
        print(title)
    width = max(map(len, columns))
    for first, *others in texts:
        print(f"{columns[0]} {first}")
        for column, value in zip(columns[1:], others, strict=True):
            print(f"  {column:<{width}}  {value}")


def _value(hint: Any, text: str, argument: str) -> Any:
    if accepts_text(hint):
        if text == "null" and accepts_none(hint):
            return None
        return text
    try:
        return OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))["value"]
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"cannot read '{argument}': {error}") from None


def _printed(value: Any) -> str:
    estimate = dataclasses.is_dataclass(value)  # common.statistics would take long to import
    plain = to_plain(value.mean if estimate else value, finite=False)
    match plain:
        case None:
            return "null"
        case bool():
            return str(plain).lower()
        case float():
            return f"{plain:.6g}"
    return shlex.quote(str(plain))
