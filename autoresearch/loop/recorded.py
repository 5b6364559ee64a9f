"""The configuration of a campaign that has begun, from its ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoresearch.config import CampaignConfig
from autoresearch.loop.ledger import LEDGER, Ledger, RowKind
from common import schema
from common.errors import UserError

CHANGEABLE = ("budgets", "executor", "root")
"""Settings that may differ when a campaign is resumed: they decide when it ends, not what it
does."""


def recorded_config(directory: Path) -> CampaignConfig:
    """The configuration that the campaign in `directory` was last run with.

    Raises `UserError` where none has begun.
    """
    rows = Ledger.reading(directory / LEDGER).rows
    begun = [row for row in rows if row.kind in (RowKind.CAMPAIGN, RowKind.RESUMED)]
    if not begun:
        raise UserError(f"{directory / LEDGER} is empty: the campaign never began")
    return schema.build(CampaignConfig, begun[-1].data["config"])


def differing(began: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Settings, by their first key, that may not change in a campaign and differ."""
    keys = sorted((began.keys() | now.keys()) - set(CHANGEABLE))
    return [key for key in keys if began.get(key) != now.get(key)]
