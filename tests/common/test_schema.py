"""Plain data to checked dataclasses: what is taken, what is refused and in which words."""

import dataclasses
import pickle
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from common.config import validate
from common.errors import ConfigError
from common.keys import field_docs
from common.schema import build, config_class


@config_class
class Inner:
    rate: float = 0.1
    steps: int = 10
    mode: Literal["fast", "slow"] = "fast"
    level: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if self.rate > self.steps:
            raise ValueError("a rate above steps makes no sense")


@config_class
class Outer:
    """Every kind of field.

    Attributes:
        name: of the thing, which is
            told in two lines. And a second sentence.
        sizes, pair: numbers.
    """

    name: str
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    flag: bool = False
    limit: int | None = None
    either: float | str = "auto"
    path: Path = Path("runs")
    sizes: tuple[int, ...] = (1,)
    pair: tuple[int, float] = (1, 2.0)
    weights: dict[str, float] = field(default_factory=dict)
    parts: list[Inner] = field(default_factory=list)
    anything: Any = None
    share: Annotated[float, Field(ge=0, lt=1)] | None = None
    counts: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=2)] = (1, 1)
    large: Annotated[int, Field(gt=0, lt=2**63)] = 1


def test_everything_at_once():
    built = build(
        Outer,
        {
            "name": "a",
            "inner": {"rate": 1, "steps": 5.0, "mode": "slow", "level": 2},
            "maybe": {"steps": 3},
            "flag": True,
            "limit": 4,
            "either": 3,
            "path": "x/y",
            "sizes": [1, 2],
            "pair": [3, 4],
            "weights": {"time": -1},
            "parts": [{"steps": 2}],
            "anything": {"free": [1]},
        },
    )
    assert built == Outer(
        name="a",
        inner=Inner(1.0, 5, "slow", 2),
        maybe=Inner(steps=3),
        flag=True,
        limit=4,
        either=3.0,
        path=Path("x/y"),
        sizes=(1, 2),
        pair=(3, 4.0),
        weights={"time": -1.0},
        parts=[Inner(steps=2)],
        anything={"free": [1]},
    )
    assert type(built.inner.rate) is float and type(built.inner.steps) is int


def test_defaults_and_null():
    built = build(Outer, {"name": "a", "maybe": None, "limit": None})
    assert built == Outer("a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "name: needs a value"),
        ({"name": None}, "name: expected text, got null"),
        ({"name": 7}, "name: expected text, got 7; quote it: '\"7\"'"),
        ({"inner": {"rate": "x"}}, "inner.rate: expected a number, got 'x'"),
        ({"inner": {"rate": True}}, "inner.rate: expected a number, got true"),
        ({"inner": {"rate": float("nan")}}, "inner.rate: expected a number, got nan"),
        ({"inner": {"steps": 2.5}}, "inner.steps: expected a whole number, got 2.5"),
        ({"inner": {"steps": None}}, "inner.steps: expected a whole number, got null"),
        ({"inner": {"steps": True}}, "inner.steps: expected a whole number, got true"),
        ({"inner": {"mode": "fats"}}, "inner.mode: 'fats' is not one of fast, slow; did you mean"),
        ({"inner": {"level": 3}}, "inner.level: 3 is not one of 1, 2"),
        ({"inner": 3}, "inner: expected a group of keys (rate, steps, mode, level), got 3"),
        ({"flag": 1}, "flag: expected true or false, got 1"),
        ({"sizes": 3}, "sizes: expected a list, got 3"),
        ({"sizes": [1, "a"]}, "sizes.1: expected a whole number, got 'a'"),
        ({"pair": [1]}, "pair: expected a list of 2 values, got [1]"),
        ({"share": 1.0}, "share is at least 0 and below 1, not 1.0"),
        ({"share": "x"}, "share: expected a number, got 'x'"),
        ({"large": 0}, "large is above 0 and below 2^63, not 0"),
        ({"counts": [1]}, "counts: expected a list of at least 2 values, got [1]"),
        ({"counts": [1, 0]}, "counts.1 is at least 1, not 0"),
        ({"either": True}, "either: expected a number or text, got true"),
        ({"maybe": 3}, "maybe: expected a group of keys (rate, steps, mode, level), got 3"),
        ({"weights": {"time": "x"}}, "weights.time: expected a number, got 'x'"),
        ({"parts": [{}, {"steps": "x"}]}, "parts.1.steps: expected a whole number, got 'x'"),
        ({"maybe": {"steps": 0}}, "maybe.steps must be at least 1, got 0"),
        ({"inner": {"rate": 99.0}}, "inner: a rate above steps makes no sense"),
        ({"inner": {"raet": 1}}, "unknown key 'inner.raet'; did you mean 'inner.rate'?"),
        ({"steps": 1}, "unknown key 'steps'; did you mean 'inner.steps' or 'maybe.steps'?"),
        ({"inner": {"xyz": 1}}, "unknown key 'inner.xyz'; keys of 'inner': rate, steps, mode,"),
        ({"parts": [{"setps": 1}]}, "unknown key 'parts.0.setps'; did you mean 'inner.steps'"),
        ({"inner": {"weights": 1}}, "unknown key 'inner.weights'; did you mean 'weights'?"),
    ],
)  # fmt: skip
def test_refusals_name_the_full_key(data, message):
    data = data if "name" in data or not data else {"name": "a", **data}
    with pytest.raises(ConfigError) as caught:
        build(Outer, data)
    assert str(caught.value).startswith(message)


def test_the_constructor_checks_as_strictly_and_in_one_line():
    with pytest.raises(ValueError, match=r"^share is at least 0 and below 1, not 2$"):
        Outer("a", share=2)
    with pytest.raises(ValueError, match=r"^steps must be at least 1, got 0$"):
        Inner(steps=0)
    for wrong in ({"flag": 1}, {"limit": True}, {"limit": 1.0}, {"sizes": (True,)}):
        with pytest.raises(ValueError, match="expected"):
            Outer("a", **wrong)
    with pytest.raises(ValueError, match="large is above 0"):
        dataclasses.replace(Outer("a"), large=0)


def test_an_instance_is_a_frozen_dataclass_that_can_be_pickled():
    one = Outer("a", inner=Inner(0.5), sizes=(1, 2))
    assert pickle.loads(pickle.dumps(one)) == one
    assert build(Outer, dataclasses.asdict(one)) == one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"


def test_the_docs_of_fields_come_from_the_docstring():
    numbers = "numbers."
    assert field_docs(Outer) == {
        "name": "of the thing, which is told in two lines. And a second sentence.",
        "sizes": numbers,
        "pair": numbers,
    }


def test_validate_resolves_interpolations_and_reports_missing_values():
    config = {"name": "a", "limit": 3, "inner": {"steps": "${limit}"}}
    assert validate(config, Outer).inner.steps == 3
    with pytest.raises(ConfigError, match="nowhere"):
        validate({"name": "${nowhere}"}, Outer)
    with pytest.raises(ConfigError, match="name"):
        validate({"name": "???"}, Outer)


@config_class
class Choices:
    size: Literal[1, 2] | None = None
    switch: Literal[1] | bool = 1
    signs: tuple[Literal[1, -1], ...] = ()
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"size": True}, "size: true is not one of 1, 2"),
        ({"signs": [1, True]}, "signs.1: true is not one of 1, -1"),
        ({"inner": {"level": True}}, "inner.level: true is not one of 1, 2"),
        ({"inner": {"level": False}}, "inner.level: false is not one of 1, 2"),
    ],
)
def test_true_is_not_the_number_one_among_choices(data, message):
    with pytest.raises(ConfigError) as error:
        build(Choices, data)
    assert str(error.value) == message
    assert build(Choices, {"switch": True, "size": 1, "signs": [-1]}).signs == (-1,)


def test_a_constructor_takes_no_boolean_for_a_number_among_choices():
    with pytest.raises(ValueError, match="size: true is not one of 1, 2"):
        Choices(size=True)
    with pytest.raises(ValueError, match="level"):
        Inner(0.1, 10, "fast", True)
    assert Choices(size=2, switch=True).size == 2
