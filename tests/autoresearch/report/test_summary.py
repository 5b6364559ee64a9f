"""What a campaign cost."""

import dataclasses

from autoresearch.loop.ledger import LEDGER, Ledger
from autoresearch.report.summary import cost, summarize


def test_time_between_two_lives_costs_nothing(done):
    summary = summarize(done)
    rows = Ledger.reading(done / LEDGER).rows
    later = next(row.number for row in rows if row.kind == "resumed")
    days = [dataclasses.replace(row, time="2030" + row.time[4:]) if row.number >= later else row
            for row in rows]  # fmt: skip
    assert cost(days, summary.state, summary.config) == summary.cost
    back = [*rows[:-1], dataclasses.replace(rows[-1], time="1999" + rows[-1].time[4:])]
    assert 0 <= cost(back, summary.state, summary.config).minutes <= summary.cost.minutes
