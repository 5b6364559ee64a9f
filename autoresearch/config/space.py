"""What may be searched: the range of one setting, and the settings that are never searched."""

from __future__ import annotations

from typing import Any

from autoresearch.config.checks import require
from common.schema import config_class

FORBIDDEN = (
    *("seed", "name", "run_root", "resume", "device", "precision", "threads", "processes"),
    *("display", "video", "logger", "experiment", "evaluation", "checkpoint_every", "hydra"),
)
"""Top-level keys that are never searched: seeds, evaluation, and what changes no result."""


@config_class
class Range:
    """What a setting may be: a number in [low, high], or one of some choices.

    Attributes:
        low: the smallest number, included.
        high: the largest number, included.
        log: on a logarithmic scale, as likely between 1 and 10 as between 10 and 100.
        integer: whole numbers only.
        choices: at least two values, instead of all of the above.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    integer: bool = False
    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.choices:
            require(self.low is None and self.high is None, "choices go without low and high")
            require(len(self.choices) >= 2, "choices are at least two")
            require(not any("\\" in str(c) for c in self.choices), "choices have no backslash")
            return
        require(self.low is not None and self.high is not None, "low and high, or choices")
        require(self.low < self.high, f"low is below high, unlike {self.low} and {self.high}")
        require(not self.log or self.low > 0, f"low is above 0 where log=true, not {self.low}")

    def __str__(self) -> str:
        if self.choices:
            return " | ".join(map(str, self.choices))
        kinds = ("whole numbers",) * self.integer + ("logarithmic",) * self.log
        return ", ".join([f"{self.low:g} to {self.high:g}", *kinds])

    def accepts(self, value: Any) -> str | None:
        """Why `value` cannot be, or None if it can."""
        if self.choices:
            fits = any(type(one) is type(value) and one == value for one in self.choices)
            return None if fits else f"{value!r} is not one of {', '.join(map(str, self.choices))}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{value!r} is not a number"
        if not self.low <= value <= self.high:  # neither is NaN
            shown = "a number that large" if abs(value) > 1e15 else value
            return f"{shown} is not in {self.low:g} to {self.high:g}"
        if self.integer and value != int(value):
            return f"{value} is not a whole number"
        return None
