"""Configuration classes: how to declare one, and how to make an instance from plain data.

Declare a group of settings as a class, and a setting as a field with a type, a default and a
sentence in the docstring:

    @config_class
    class OptimizerConfig:
        \"\"\"How the weights are updated.

        Attributes:
            learning_rate: at the start of training.
            schedule: linear falls to zero over the budget; constant stays.
        \"\"\"

        learning_rate: Annotated[float, Field(gt=0, le=1)] = 1e-3
        schedule: Literal["linear", "constant"] = "linear"

The type and the limits are checked by pydantic, both in `OptimizerConfig(learning_rate=2)` and in
`build`. Types are strict: "1" and true are not numbers, and NaN is refused. A rule about several
fields is a `__post_init__` that raises `ValueError`. If its message starts with the name of a
field, the error shows the full key. `--help` shows the type, the limits, the default and the first
sentence under `Attributes:`. A group inside a group is a field with
`dataclasses.field(default_factory=...)`. An instance is a frozen dataclass, so that
`dataclasses.asdict`, `replace` and `fields` and pickle work.
"""

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar, dataclass_transform, get_args, get_origin, overload

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from common.errors import ConfigError
from common.keys import (
    arms,
    bounds,
    child_type,
    field_types,
    hint_at,
    join,
    limits,
    plain_type,
    shown,
    unknown_choice,
    unknown_key,
)

T = TypeVar("T")

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_EXPECTED = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "string_type": "text",
    "none_required": "null",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
}
_OUT_OF_RANGE = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}


@overload
def config_class(cls: type[T]) -> type[T]: ...
@overload
def config_class(*, frozen: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(dataclasses.field,), frozen_default=True)
def config_class(cls: type[T] | None = None, *, frozen: bool = True) -> Any:
    """Make `cls` a pydantic dataclass with strict types whose errors are one line.

    The constructor raises `ValueError` where a value does not fit.
    """
    if cls is None:
        return functools.partial(config_class, frozen=frozen)
    made = dataclass(frozen=frozen, config=_CONFIG)(cls)
    validated = made.__init__

    @functools.wraps(validated)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            validated(self, *args, **kwargs)
            _refuse_booleans(made, dict(zip(field_types(made), args, strict=False)) | kwargs)
        except ValidationError as error:
            raise ValueError(_first_message(error, made)) from None
        except ConfigError as error:
            raise ValueError(str(error)) from None

    made.__init__ = init
    return made


def build(schema: type[T], data: Mapping[str, Any]) -> T:
    """An instance of the dataclass `schema` from plain `data`.

    Raises `ConfigError` with the full dotted key for an unknown key (naming the nearest real
    one), a missing one, a value of the wrong type, and a value out of range.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(_wrong_type("", _group(schema), data))
    # As JSON, because pydantic's strict mode then accepts lists as tuples and mappings as classes.
    try:
        text = to_json(data, inf_nan_mode="constants", serialize_unknown=True)
    except PydanticSerializationError:  # Python keeps bytes that it cannot read as lone surrogates
        raise ConfigError(
            f"the encoding of this terminal ({sys.getfilesystemencoding()}) lacks some of the "
            "letters that were typed; use plain letters, or set PYTHONUTF8=1"
        ) from None
    try:
        built = _adapter(schema).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        whole = [one for one in error.errors() if _whole_float(one)]
        if whole:  # 1e6 is how people write a million steps
            return build(schema, _with_integers(data, schema, whole))
        raise ConfigError(_first_message(error, schema)) from None
    _refuse_booleans(schema, data)
    return built


@cache
def _adapter(schema: type) -> TypeAdapter:
    return TypeAdapter(schema)


def _first_message(error: ValidationError, schema: type) -> str:
    """The first of pydantic's errors as one line with the full key; unknown keys go first."""
    errors = error.errors(include_url=False)
    errors.sort(key=lambda one: one["type"] != "unexpected_keyword_argument")
    path = _members(schema, errors[0]["loc"])
    # Every type of a union reports its own error for the same value.
    together = [one for one in errors if _members(schema, one["loc"]) == path]
    return _message(together, path, schema)


def _message(errors: Sequence[ErrorDetails], path: Sequence[str], schema: type) -> str:
    kind, value, key = errors[0]["type"], errors[0]["input"], ".".join(path)
    hint = hint_at(schema, path)
    if kind == "unexpected_keyword_argument":
        return str(unknown_key(schema, key))
    if kind == "missing" and not path[-1].isdecimal():
        return f"{key}: needs a value"
    if kind == "value_error":
        return _located(str(errors[0]["ctx"]["error"]), hint, key)
    if kind in _OUT_OF_RANGE:
        return f"{key} is {limits(hint)}, not {shown(value)}"
    if kind == "literal_error":
        return str(unknown_choice(key, value, _choices(hint)))
    if kind in ("missing", "too_short", "too_long"):
        if kind == "missing":
            key, hint = ".".join(path[:-1]), hint_at(schema, path[:-1])
        return _wrong_type(key, f"a list of {_length(hint)} values", value)
    if kind.startswith("dataclass"):
        return _wrong_type(key, _group(hint), value)
    expected = dict.fromkeys(_EXPECTED.get(one["type"], one["msg"]) for one in errors)
    quote = ""
    if kind == "string_type" and type(value) in (int, float):
        quote = f"; quote it: '\"{value}\"'"
    return _wrong_type(key, " or ".join(expected), value, quote)


def _members(hint: Any, location: Sequence[int | str]) -> list[str]:
    """`location` without the names that pydantic gives to the types of a union."""
    path: list[str] = []
    for part in map(str, location):
        child = child_type(hint, part)
        if child is None and not dataclasses.is_dataclass(plain_type(hint)):
            continue
        path.append(part)
        hint = child
    return path


def _whole_float(error: ErrorDetails) -> bool:
    value = error["input"]
    return error["type"] == "int_type" and type(value) is float and value.is_integer()


def _with_integers(data: Any, schema: type, errors: Sequence[ErrorDetails]) -> Any:
    """A copy of `data` in which the float of each error is an int."""

    def copied(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(name): copied(member) for name, member in value.items()}
        return [copied(member) for member in value] if isinstance(value, list | tuple) else value

    data = copied(data)
    for error in errors:
        *parents, last = _members(schema, error["loc"])
        node = data
        for part in parents:
            node = node[int(part) if isinstance(node, list) else part]
        node[int(last) if isinstance(node, list) else last] = int(error["input"])
    return data


def _refuse_booleans(hint: Any, value: Any, key: str = "") -> None:
    """Raise `ConfigError` for true or false among `value` where only numbers may be chosen.

    Python has True == 1, so pydantic takes one for the other in a Literal.
    """
    if isinstance(value, bool):
        kinds, choices = [plain_type(arm) for arm in arms(hint)], _choices(hint)
        allowed = bool in kinds or Any in kinds or any(value is choice for choice in choices)
        if choices and not allowed:
            raise unknown_choice(key, value, choices)
    elif isinstance(value, Mapping | list | tuple):
        members = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, member in members:
            _refuse_booleans(child_type(hint, str(name)), member, join(key, str(name)))


def _choices(hint: Any) -> list[Any]:
    kinds = map(plain_type, arms(hint))
    return [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]


def _length(hint: Any) -> str:
    limit = dict(bounds(hint))
    low, high = limit.get("min_length"), limit.get("max_length")
    if low is None and high is None:
        (arm,) = (plain_type(arm) for arm in arms(hint) if get_origin(plain_type(arm)) is tuple)
        return str(len(get_args(arm)))
    if high is None:
        return f"at least {low}"
    return f"{low} to {high}" if low else f"at most {high}"


def _group(hint: Any) -> str:
    (group,) = [arm for arm in map(plain_type, arms(hint)) if dataclasses.is_dataclass(arm)]
    return f"a group of keys ({', '.join(field_types(group))})"


def _located(message: str, hint: Any, key: str) -> str:
    names = [name for arm in map(plain_type, arms(hint)) if dataclasses.is_dataclass(arm)
             for name in field_types(arm)]  # fmt: skip
    if re.match(r"\w*", message)[0] in names:
        return join(key, message)
    return f"{key}: {message}" if key else message


def _wrong_type(key: str, expected: str, value: Any, advice: str = "") -> str:
    return f"{key or 'configuration'}: expected {expected}, got {shown(value)}{advice}"
