"""The text of `--help`: every setting with its default, its type and a sentence, in 80 columns.

The sentences come from the `Attributes:` sections of the classes (see `common.schema`).
"""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from common.files import to_plain
from common.keys import accepts_none, arms, field_docs, field_types, join, limits, plain_type

WIDTH = 80


def command_help(
    about: str,
    schema: type,
    values: Mapping[str, Any],
    groups: Mapping[str, Sequence[str]],
    chosen: Mapping[str, str | None],
) -> str:
    """Help of a command with configuration groups.

    Args:
        about: what the command does.
        schema: its configuration class.
        values: its composed configuration, as plain data.
        groups: the options of each group.
        chosen: the option of each group that is in use.
    """
    lines = ["Groups (group=option); the option in brackets is used if you name none:"]
    for name, options in groups.items():
        marked = [f"[{one}]" if one == chosen.get(name) else one for one in options]
        lines += _wrapped(", ".join(marked), f"  {name}: ", " " * 6)
    parts = [inspect.cleandoc(about), "\n".join(lines), describe(schema, values)]
    return "\n\n".join(parts)


def describe(schema: type, values: Mapping[str, Any] | None = None) -> str:
    """Every setting of `schema`, one group after another.

    A setting shows its value in `values`, or else its default.
    """
    sections = ["Settings (name=value), with their defaults:"]
    for prefix, group in _groups(schema):
        heading = [] if not prefix else [f"{prefix}: {_first_sentence(group.__doc__ or '')}"]
        lines = [line for text in heading for line in _wrapped(text, "", "    ")]
        for name, hint, field in _settings(group):
            key = join(prefix, name)
            lines += _wrapped(f"{key}={_value_at(key, values, field)}", "  ", "      ")
            text = _first_sentence(field_docs(group).get(name, ""))
            lines += _wrapped(f"{text} [{type_name(hint)}]".strip(), "      ", "      ")
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def type_name(hint: Any) -> str:
    """What a setting of type `hint` may be, such as `whole number, 1 to 16` or `ccw | cw`."""
    if get_origin(plain_type(hint)) is None and dataclasses.is_dataclass(plain_type(hint)):
        return "a group of keys"
    names = [_arm_name(arm) for arm in arms(hint) if plain_type(arm) is not NoneType]
    names += ["null"] * (accepts_none(hint) and plain_type(hint) is not Any)
    return " | ".join(dict.fromkeys(names))


def _arm_name(hint: Any) -> str:
    plain = plain_type(hint)
    if get_origin(plain) is Literal:
        return " | ".join(map(str, get_args(plain)))
    words = {bool: "true | false", int: "whole number", float: "number", str: "text", Path: "path",
             Any: "anything"}  # fmt: skip
    kind = get_origin(plain) or plain
    if kind in (list, tuple):
        inner = [arm for arm in get_args(plain) if arm is not Ellipsis]
        return f"list of {type_name(inner[0])}" if inner else "list"
    if kind is dict:
        return f"mapping to {type_name(get_args(plain)[1])}" if get_args(plain) else "mapping"
    name = words.get(kind, getattr(kind, "__name__", str(kind)))
    return ", ".join(filter(None, [name, limits(hint)]))


def _groups(schema: type, prefix: str = "") -> Iterator[tuple[str, type]]:
    """Prefix and class of `schema` itself and of every group below it."""
    yield prefix, schema
    for name, hint in field_types(schema).items():
        if dataclasses.is_dataclass(plain_type(hint)):
            yield from _groups(plain_type(hint), join(prefix, name))


def _settings(schema: type) -> Iterator[tuple[str, Any, dataclasses.Field]]:
    hints = field_types(schema)
    for field in dataclasses.fields(schema):
        if field.init and not dataclasses.is_dataclass(plain_type(hints[field.name])):
            yield field.name, hints[field.name], field


def _value_at(key: str, values: Mapping[str, Any] | None, field: dataclasses.Field) -> str:
    node: Any = values
    for part in key.split(".") if values is not None else ():
        if not isinstance(node, Mapping) or part not in node:
            node = None
            break
        node = node[part]
    if node is None:
        if field.default_factory is not dataclasses.MISSING:
            node = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            node = field.default
        else:
            return "<required>"
    match node:
        case None:
            return "null"
        case bool():
            return str(node).lower()
        case Path() | str():
            return str(node) or "''"
    return repr(to_plain(node))


def _first_sentence(text: str) -> str:
    text = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s+(?=[A-Z0-9])", text)[0]


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
