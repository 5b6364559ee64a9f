"""Long work says how far it is, on a terminal and elsewhere."""

import pytest

from common import display
from common.display import progress_bar


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when a test says so."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(display.time, "monotonic", lambda: Clock.now)
    return Clock


def test_short_work_prints_nothing(clock, capsys):
    with progress_bar("short") as progress:
        for done in range(10):
            clock.now += 0.4
            progress(done + 1, 10)
    assert capsys.readouterr().out == ""


def test_long_work_prints_a_line_after_five_seconds_and_then_now_and_again(clock, capsys):
    with progress_bar("driving [bold] 4 tracks") as progress:
        for done in range(100):
            clock.now += 0.5
            progress(done + 1, 100)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "driving [bold] 4 tracks: 10%, 0:00:45 left"
    assert [line.split(": ")[1].split("%")[0] for line in lines] == ["10", "40", "70"]


def test_a_slow_start_promises_nothing(clock, capsys):
    with progress_bar("filming") as progress:
        clock.now += 60
        progress(1, 1000)
    assert capsys.readouterr().out == "filming: 0%\n"
