"""Dataclasses as the schema of a configuration: plain data in, checked instances out.

Understood field types: bool, int, float, str, Path, Literal, nested dataclasses, list, tuple,
dict with str keys, unions with or without None, and Any. A range check is a `__post_init__` that
raises `ValueError`; when its message starts with a field's name, the report carries the full key.
"""

import dataclasses
import math
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from common.errors import ConfigError

T = TypeVar("T")

_SCALARS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_SUGGESTIONS = 3
_CLOSE = 0.7  # difflib's ratio


@cache
def field_types(schema: type) -> dict[str, Any]:
    """Name and resolved type of every field of the dataclass `schema` that `__init__` takes."""
    hints = get_type_hints(schema)
    return {field.name: hints[field.name] for field in dataclasses.fields(schema) if field.init}


def build(schema: type[T], data: Mapping[str, Any]) -> T:
    """An instance of the dataclass `schema` from plain `data`.

    Raises `ConfigError` with the full dotted key for an unknown key (naming the nearest real
    one), a missing one, a value of the wrong type, and a range that `__post_init__` refuses.
    """
    return _build(schema, data, "", root=schema)


def type_at(schema: type, key: str) -> Any:
    """The type that the dotted `key` has under `schema`; `ConfigError` if there is no such key."""
    hint: Any = schema
    for part in key.split("."):
        hint = _child(hint, part)
        if hint is None:
            raise unknown_key(schema, key)
    return hint


def unknown_key(schema: type, key: str) -> ConfigError:
    """The error for a dotted `key` that `schema` lacks: names the nearest keys that it has."""
    near = _nearest_keys(schema, key)
    if near:
        return ConfigError(f"unknown key '{key}'; did you mean {alternatives(near)}?")
    parent, known = _deepest_node(schema, key)
    place = f"keys of '{parent}'" if parent else "known keys"
    return ConfigError(f"unknown key '{key}'; {place}: {', '.join(known)}")


def alternatives(names: Sequence[str]) -> str:
    """`'a'`, `'a' or 'b'`, `'a', 'b' or 'c'`."""
    quoted = [f"'{name}'" for name in names]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))


def unknown_choice(key: str, value: Any, choices: Sequence[Any]) -> ConfigError:
    """The error for a `value` of `key` that is none of `choices`: lists them, nearest first."""
    texts = [str(choice) for choice in choices]
    near = get_close_matches(str(value), texts, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return ConfigError(f"{key}: {_shown(value)} is not one of {', '.join(texts)}{hint}")


def accepts_text(hint: Any) -> bool:
    """Whether a field of type `hint` can hold free text."""
    return hint in (str, Path) or (_is_union(hint) and any(map(accepts_text, get_args(hint))))


def accepts_none(hint: Any) -> bool:
    """Whether a field of type `hint` can hold None."""
    return hint in (Any, types.NoneType) or (_is_union(hint) and types.NoneType in get_args(hint))


def _build(schema: type[T], data: Any, where: str, root: type) -> T:
    if not isinstance(data, Mapping):
        raise _wrong_type(where, f"a group of keys ({', '.join(field_types(schema))})", data)
    hints = field_types(schema)
    for name in data:
        if name not in hints:
            raise unknown_key(root, _join(where, str(name)))
    values = {
        name: _convert(hint, data[name], _join(where, name), root)
        for name, hint in hints.items()
        if name in data
    }
    for field in dataclasses.fields(schema):
        required = field.default is field.default_factory is dataclasses.MISSING
        if field.init and required and field.name not in values:
            raise ConfigError(f"{_join(where, field.name)}: needs a value")
    try:
        return schema(**values)
    except ValueError as error:
        raise ConfigError(_located(str(error), hints, where)) from None


def _convert(hint: Any, value: Any, key: str, root: type) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, key, root)
    if _is_union(hint):
        return _convert_union(arguments, value, key, root)
    if origin is Literal:
        for choice in arguments:
            if type(choice) is type(value) and choice == value:
                return choice
        raise unknown_choice(key, value, arguments)
    if hint in _SCALARS:
        return _convert_scalar(hint, value, key)
    if hint is Path:
        return Path(_convert_scalar(str, value, key))
    if hint is types.NoneType:
        if value is not None:
            raise _wrong_type(key, "null", value)
        return None
    if (origin or hint) in (list, tuple):
        return _convert_sequence(origin or hint, arguments, value, key, root)
    if (origin or hint) is dict:
        if not isinstance(value, Mapping):
            raise _wrong_type(key, "a mapping", value)
        item = arguments[1] if arguments else Any
        return {str(k): _convert(item, v, _join(key, str(k)), root) for k, v in value.items()}
    raise TypeError(f"{key}: no rule for the field type {hint!r}")


def _convert_union(arms: tuple[Any, ...], value: Any, key: str, root: type) -> Any:
    if value is None and types.NoneType in arms:
        return None
    arms = tuple(arm for arm in arms if arm is not types.NoneType)
    # An arm of exactly the value's type goes first, so that 3 stays an int in `float | int`.
    arms = tuple(sorted(arms, key=lambda arm: arm is not type(value)))
    for arm in arms[:-1]:
        try:
            return _convert(arm, value, key, root)
        except ConfigError:
            continue
    return _convert(arms[-1], value, key, root)


def _convert_scalar(kind: type, value: Any, key: str) -> Any:
    if kind is float and type(value) in (int, float) and not math.isnan(value):
        return float(value)
    if kind is int and type(value) is float and value.is_integer():
        return int(value)  # 1e6 is how people write a million steps
    if type(value) is kind and value == value:
        return value
    quote = f"; quote it: '\"{value}\"'" if kind is str and type(value) in (int, float) else ""
    raise _wrong_type(key, _SCALARS[kind], value, quote)


def _convert_sequence(
    kind: type, arguments: tuple[Any, ...], value: Any, key: str, root: type
) -> Any:
    if not isinstance(value, list | tuple):
        raise _wrong_type(key, "a list", value)
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(arguments) != len(value):
            raise _wrong_type(key, f"a list of {len(arguments)} values", value)
        hints = arguments
    else:
        hints = (arguments[0] if arguments else Any,) * len(value)
    pairs = enumerate(zip(hints, value, strict=True))
    return kind(_convert(hint, item, f"{key}.{i}", root) for i, (hint, item) in pairs)


def _child(hint: Any, part: str) -> Any:
    """Type of the member `part` of a value of type `hint`, or None if it can have no such one."""
    if hint is Any:
        return Any
    if dataclasses.is_dataclass(hint):
        return field_types(hint).get(part)
    arguments = get_args(hint)
    if _is_union(hint):
        return next((child for arm in arguments if (child := _child(arm, part))), None)
    kind = get_origin(hint) or hint
    if kind is dict:
        return arguments[1] if arguments else Any
    if kind in (list, tuple) and part.isdecimal():
        if not arguments or arguments[-1] is Ellipsis or kind is list:
            return arguments[0] if arguments else Any
        return arguments[int(part)] if int(part) < len(arguments) else None
    return None


def _keys(hint: Any, prefix: str = "") -> Iterator[str]:
    if _is_union(hint):
        for arm in get_args(hint):
            yield from _keys(arm, prefix)
    elif dataclasses.is_dataclass(hint):
        for name, child in field_types(hint).items():
            yield _join(prefix, name)
            yield from _keys(child, _join(prefix, name))


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
        _join(parent, ".".join([match, *rest]))
        for match in get_close_matches(part, names, n=_SUGGESTIONS, cutoff=_CLOSE)
    ]
    near = [path for path in siblings if _has(schema, path)][:1]
    # Right name, wrong group: learning_rate for ppo.learning_rate.
    by_name: dict[str, list[str]] = {}
    for path in _keys(schema):
        by_name.setdefault(path.rpartition(".")[2], []).append(path)
    last = key.rpartition(".")[2]
    near += [path for path in by_name.get(last, []) if path not in near]
    if not near:
        near = [by_name[name][0] for name in get_close_matches(last, by_name, n=1, cutoff=_CLOSE)]
    return near[:_SUGGESTIONS]


def _has(schema: type, key: str) -> bool:
    hint: Any = schema
    for part in key.split("."):
        hint = _child(hint, part)
        if hint is None:
            return False
    return True


def _located(message: str, hints: Mapping[str, Any], where: str) -> str:
    first_word = re.match(r"\w*", message)[0]
    if first_word in hints:
        return _join(where, message)
    return f"{where}: {message}" if where else message


def _wrong_type(key: str, expected: str, value: Any, advice: str = "") -> ConfigError:
    return ConfigError(
        f"{key or 'configuration'}: expected {expected}, got {_shown(value)}{advice}"
    )


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f"'{value}'"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType)


def _join(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name
