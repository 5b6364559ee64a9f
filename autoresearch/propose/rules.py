"""The rules of a coach: named failures and their remedies, one setting each.

They are data, in conf/autoresearch/rules/<name>.yaml, over dotted keys and measures. A rule whose
key a campaign does not search is skipped, so one file serves many campaigns.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from autoresearch.config import Range
from autoresearch.config.checks import require
from common import schema
from common.config import CONF_DIR
from common.errors import ConfigError
from common.keys import unknown_choice
from common.schema import config_class

RULES = CONF_DIR / "autoresearch" / "rules"

Measures = Mapping[str, float | None]


@config_class
class Condition:
    """When a rule applies: a measure is known, and above or below a limit.

    Attributes:
        measure: of the parent's run, see `Brief.measures`.
        above, below: the limit; one of the two.
    """

    measure: str
    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        require((self.above is None) != (self.below is None), "above or below, one of the two")

    def holds(self, measures: Measures) -> bool:
        """Whether it does; no, for a measure that is not known."""
        value = measures.get(self.measure)
        if value is None:
            return False
        return value > self.above if self.above is not None else value < self.below


@config_class
class Rule:
    """One change, and why.

    Attributes:
        name: of the rule.
        key: the setting that it changes.
        factor: the parent's value is multiplied by it; a second attempt goes twice as far.
        hypothesis: what the change should do.
        observable, sign: the same as a measure that grows (1) or falls (-1).
        when: what the parent has to show; null for plain tuning.
        start: the new value if the parent has 0 or none; null if the rule does not apply then.
    """

    name: str
    key: str
    factor: Annotated[float, Field(gt=0)]
    hypothesis: str
    observable: str
    sign: Literal[1, -1]
    when: Condition | None = None
    start: float | None = None

    def __post_init__(self) -> None:
        require(self.factor != 1, "factor is not 1, which changes nothing")

    def moved(self, value: Any, span: Range, strength: int) -> Any:
        """The new value inside `span`; None if this rule cannot change the old one."""
        if span.choices:
            return self._next_choice(value, span, strength)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            return None
        if not value:
            if self.start is None:
                return None
            moved = self.start * self.factor ** (strength - 1)
        else:
            moved = value * self.factor**strength
        moved = min(max(moved, span.low), span.high)
        if span.integer:
            moved = round(moved)
        return None if moved == value else moved

    def _next_choice(self, value: Any, span: Range, strength: int) -> Any:
        """The choice `strength` places further on, up for a factor above 1, else down."""
        if value not in span.choices:
            return None
        place = span.choices.index(value) + (strength if self.factor > 1 else -strength)
        return span.choices[place] if 0 <= place < len(span.choices) else None


@config_class
class RuleBook:
    """The content of a rules file: `rules`, in the order in which they are tried."""

    rules: tuple[Rule, ...]


def rule_books(directory: Path = RULES) -> list[str]:
    """The names that `proposer.rules` may have."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def load_rules(name: str, directory: Path = RULES) -> tuple[Rule, ...]:
    """The rules of conf/autoresearch/rules/<name>.yaml; `ConfigError` says what is wrong where."""
    if name not in rule_books(directory):
        raise unknown_choice("proposer.rules", name, rule_books(directory))
    path = directory / f"{name}.yaml"
    try:
        return schema.build(RuleBook, yaml.safe_load(path.read_text(encoding="utf-8"))).rules
    except (yaml.YAMLError, ConfigError) as error:
        raise ConfigError(f"{path}: {' '.join(str(error).split())}") from None
