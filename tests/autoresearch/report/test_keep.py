"""What is kept of a campaign verifies, and no other campaign is overwritten."""

import pytest

from autoresearch.loop.ledger import LEDGER, Ledger, Row
from autoresearch.loop.verify import verify
from autoresearch.report.keep import keep, kept
from common.errors import UserError
from tests.autoresearch import toys
from tests.autoresearch.toys import report_campaign as campaign


class TestKeep:
    def test_what_is_kept_verifies_and_may_grow(self, tmp_path):
        config = campaign(tmp_path)
        toys.run(config, "propose")
        where = keep(tmp_path / "toy", tmp_path / "kept")
        assert kept(tmp_path / "kept") == [where] and verify(where).decisions > 3
        toys.run(config)
        assert keep(tmp_path / "toy", tmp_path / "kept") == where
        assert (where / LEDGER).read_bytes() == (tmp_path / "toy" / LEDGER).read_bytes()
        verify(where)

    def test_a_torn_row_is_not_kept_and_what_was_damaged_is_whole_again(self, tmp_path):
        config = campaign(tmp_path)
        toys.run(config, "propose")
        with open(tmp_path / "toy" / LEDGER, "ab") as file:
            file.write(b'{"number": 99, "ti')  # killed in mid-write
        where = keep(tmp_path / "toy", tmp_path / "kept")
        assert (where / LEDGER).read_bytes().endswith(b"}\n")
        assert b'"number": 99' not in (where / LEDGER).read_bytes()
        toys.run(config)
        for path in (where / "artifacts").iterdir():
            path.write_bytes(b"x")
        with pytest.raises(UserError, match="was changed"):
            verify(where)
        keep(tmp_path / "toy", tmp_path / "kept")
        assert verify(where) == verify(tmp_path / "toy")

    def test_another_campaign_is_not_overwritten(self, done, tmp_path):
        toys.run(campaign(tmp_path), "propose")
        keep(done, tmp_path / "kept")
        with pytest.raises(UserError, match="holds another campaign of this name"):
            keep(tmp_path / "toy", tmp_path / "kept")

    def test_what_does_not_verify_is_not_kept(self, done, tmp_path):
        rows, forged = Ledger.reading(done / LEDGER).rows, []
        for row in rows:
            data = {**row.data, "passed": True} if row.kind == "judged" else row.data
            forged.append(Row.after(forged[-1] if forged else None, row.kind, data))
        copy = tmp_path / "toy"
        (copy / "artifacts").mkdir(parents=True)
        for path in (done / "artifacts").iterdir():
            (copy / "artifacts" / path.name).write_bytes(path.read_bytes())
        (copy / LEDGER).write_bytes(b"".join(row.line() for row in forged))
        with pytest.raises(UserError, match="but from what was measured follows"):
            keep(copy, tmp_path / "kept")
        assert not (tmp_path / "kept").exists()
