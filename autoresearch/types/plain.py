"""From the plain data of a ledger or a result file back to a typed value."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")


@cache
def _adapter(kind: type) -> TypeAdapter:
    return TypeAdapter(kind)


def read(kind: type[T], data: Any) -> T:
    """A `kind` (a dataclass) from what `common.files.to_plain` made of one; unknown keys are left.

    Raises `ValueError`, in one line, for a missing key or a value of the wrong type.
    """
    try:
        return _adapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or kind.__name__
        raise ValueError(f"{where}: {first['msg']}") from None
