"""Every decision is made again, and what does not follow is found."""

import pytest

from autoresearch.loop.ledger import LEDGER, Ledger, Row
from autoresearch.loop.verify import verify
from common.errors import UserError
from tests.autoresearch import toys


class TestVerify:
    @pytest.fixture
    def done(self, better, tmp_path):
        toys.run(better)
        return tmp_path / "toy"

    def test_a_changed_artifact_is_found(self, done):
        for path in sorted((done / "artifacts").iterdir()):
            content = path.read_bytes()
            path.write_bytes(content.replace(b"0", b"1", 1))
            with pytest.raises(UserError, match="was changed"):
                verify(done)
            path.write_bytes(content)
        path.unlink()
        with pytest.raises(UserError, match="no such artifact"):
            verify(done)

    @pytest.mark.parametrize(
        ("kind", "key", "value"),
        [
            ("judged", "passed", True),
            ("promoted", "candidate", "g001_c02"),
            ("generation", "seeds", 3),
            ("proposed", "overrides", {"skill": 0.9}),
            ("ended", "reason", "enough"),
            ("claimed", "task", {"kind": "train", "overrides": {}, "seed": 7, "budget": 100}),
            ("proposed", "proposal", None),
            ("proposed", "proposal", {"change": {}, "verdict": "promote"}),
        ],
    )
    def test_a_decision_that_does_not_follow_is_found_though_all_hashes_are_right(
        self, done, kind, key, value
    ):
        rows, forged = Ledger.reading(done / LEDGER).rows, []
        for row in rows:
            data = dict(row.data)
            if row.kind == kind and data.get(key) != value:
                data[key] = value
            forged.append(Row.after(forged[-1] if forged else None, row.kind, data))
        (done / LEDGER).write_bytes(b"".join(row.line() for row in forged))
        with pytest.raises(UserError, match=r"line \d+"):
            verify(done)

    def test_a_row_of_unknown_kind_is_found(self, done):
        rows = Ledger.reading(done / LEDGER).rows
        blessed = Row.after(rows[-1], "blessed", {"candidate": "g001_c01"})
        forged = [*rows, blessed]
        (done / LEDGER).write_bytes(b"".join(row.line() for row in forged))
        with pytest.raises(UserError, match="unknown kind of row, 'blessed'"):
            verify(done)

    def test_an_unfinished_campaign_verifies_too(self, done):
        rows = Ledger.reading(done / LEDGER).rows
        for count in range(1, len(rows), 5):
            (done / LEDGER).write_bytes(b"".join(row.line() for row in rows[:count]))
            assert verify(done).rows == count
