"""The keys of a configuration class: types, limits, docs, and the nearest key to a typo."""

import dataclasses
import inspect
import re
import types
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from common.errors import ConfigError

_SUGGESTIONS = 3
_CLOSE = 0.7  # difflib's ratio


@cache
def field_types(schema: type) -> dict[str, Any]:
    """Name and resolved type of every field of the dataclass `schema` that `__init__` takes."""
    hints = get_type_hints(schema, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(schema) if field.init}


@cache
def field_docs(schema: type) -> dict[str, str]:
    """What the `Attributes:` sections of `schema` and its bases say about each field."""
    docs: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for entry in re.split(r"\n(?= {4}\S)", "\n" + section.split("\n\n")[0]):
            names, colon, text = entry.partition(": ")
            if colon:
                docs |= dict.fromkeys(re.findall(r"\w+", names), " ".join(text.split()))
    return docs


def type_at(schema: type, key: str) -> Any:
    """The type that the dotted `key` has under `schema`; `ConfigError` if there is no such key."""
    hint = hint_at(schema, key.split("."))
    if hint is None:
        raise unknown_key(schema, key)
    return hint


def limits(hint: Any) -> str:
    """The range that a number of type `hint` may have, in words; empty if any will do."""
    limit = dict(bounds(hint))
    low, high = limit.get("ge", limit.get("gt")), limit.get("le", limit.get("lt"))
    if "ge" in limit and "le" in limit:
        return f"{_number(low)} to {_number(high)}"
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    return " and ".join(f"{words[name]} {_number(limit[name])}" for name in words if name in limit)


def plain_type(hint: Any) -> Any:
    """The type `hint` without its annotations."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def arms(hint: Any) -> Iterator[Any]:
    """`hint` or, of a union, each of its types."""
    if is_union(plain_type(hint)):
        for arm in get_args(plain_type(hint)):
            yield from arms(arm)
    else:
        yield hint


def is_union(hint: Any) -> bool:
    """Whether `hint` is one type or another."""
    return get_origin(hint) in (Union, types.UnionType)


def accepts_text(hint: Any) -> bool:
    """Whether a field of type `hint` can hold free text."""
    hint = plain_type(hint)
    return hint in (str, Path) or (is_union(hint) and any(map(accepts_text, get_args(hint))))


def accepts_none(hint: Any) -> bool:
    """Whether a field of type `hint` can hold None."""
    hint = plain_type(hint)
    return hint in (Any, types.NoneType) or (is_union(hint) and types.NoneType in get_args(hint))


def hint_at(schema: Any, path: Sequence[str]) -> Any:
    """Type of the field at `path`, or None if `schema` has no such field."""
    hint = schema
    for part in path:
        hint = child_type(hint, part)
        if hint is None:
            return None
    return hint


def child_type(hint: Any, part: str) -> Any:
    """Type of the member `part` of a value of type `hint`, or None if there is no such member."""
    hint = plain_type(hint)
    if hint is Any:
        return Any
    if dataclasses.is_dataclass(hint):
        return field_types(hint).get(part)
    arguments = get_args(hint)
    if is_union(hint):
        return next((child for arm in arguments if (child := child_type(arm, part))), None)
    kind = get_origin(hint) or hint
    if kind is dict:
        return arguments[1] if arguments else Any
    if kind in (list, tuple) and part.isdecimal():
        if not arguments or arguments[-1] is Ellipsis or kind is list:
            return arguments[0] if arguments else Any
        return arguments[int(part)] if int(part) < len(arguments) else None
    return None


def bounds(hint: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the limits of type `hint`, such as ("ge", 1)."""
    for arm in (hint, *arms(hint)):
        for item in getattr(arm, "__metadata__", ()):
            for rule in getattr(item, "metadata", [item]):
                for name in ("gt", "ge", "lt", "le", "min_length", "max_length"):
                    if hasattr(rule, name):
                        yield name, getattr(rule, name)


def join(parent: str, name: str) -> str:
    """The dotted key of `name` in the group `parent`."""
    return f"{parent}.{name}" if parent else name


def unknown_key(schema: type, key: str) -> ConfigError:
    """The error for a dotted `key` that `schema` lacks; it names the nearest existing keys."""
    near = _nearest_keys(schema, key)
    if near:
        return ConfigError(f"unknown key '{key}'; did you mean {alternatives(near)}?")
    parent, known = _deepest_node(schema, key)
    place = f"keys of '{parent}'" if parent else "known keys"
    return ConfigError(f"unknown key '{key}'; {place}: {', '.join(known)}")


def unknown_choice(key: str, value: Any, choices: Sequence[Any]) -> ConfigError:
    """The error for a `value` of `key` that is none of `choices`; it lists the choices."""
    texts = [str(choice) for choice in choices]
    near = get_close_matches(str(value), texts, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return ConfigError(f"{key}: {shown(value)} is not one of {', '.join(texts)}{hint}")


def alternatives(names: Sequence[str]) -> str:
    """`'a'`, `'a' or 'b'`, `'a', 'b' or 'c'`."""
    quoted = [f"'{name}'" for name in names]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))


def shown(value: Any) -> str:
    """`value` as an error shows it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _keys(hint: Any, prefix: str = "") -> Iterator[str]:
    for arm in map(plain_type, arms(hint)):
        if dataclasses.is_dataclass(arm):
            for name, child in field_types(arm).items():
                yield join(prefix, name)
                yield from _keys(child, join(prefix, name))


def _deepest_node(schema: type, key: str) -> tuple[str, list[str]]:
    """The longest existing group of keys on the way to `key`, and the names in it."""
    parts = key.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        parent = ".".join(parts[:depth])
        names = [path[len(parent) + 1 :] for path in _keys(schema) if path.startswith(parent + ".")]
        if names:
            return parent, [name for name in names if "." not in name]
    return "", list(field_types(schema))


def _nearest_keys(schema: type, key: str) -> list[str]:
    parent, names = _deepest_node(schema, key)
    depth = parent.count(".") + 1 if parent else 0
    part, *rest = key.split(".")[depth:]
    siblings = [
        join(parent, ".".join([match, *rest]))
        for match in get_close_matches(part, names, n=_SUGGESTIONS, cutoff=_CLOSE)
    ]
    near = [path for path in siblings if hint_at(schema, path.split(".")) is not None][:1]
    # Right name, wrong group: learning_rate for ppo.learning_rate.
    by_name: dict[str, list[str]] = {}
    for path in _keys(schema):
        by_name.setdefault(path.rpartition(".")[2], []).append(path)
    last = key.rpartition(".")[2]
    near += [path for path in by_name.get(last, []) if path not in near]
    if not near:
        near = [by_name[name][0] for name in get_close_matches(last, by_name, n=1, cutoff=_CLOSE)]
    return near[:_SUGGESTIONS]


def _number(value: float) -> str:
    for base in (10, 2):
        exponent = len(str(int(value))) - 1 if base == 10 else int(value).bit_length() - 1
        if value >= 10**6 and value == base**exponent:
            return f"{base}^{exponent}"
    return f"{value:g}" if isinstance(value, float) else str(value)
