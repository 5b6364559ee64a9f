"""What is kept of a campaign, and the documents made of it."""

import dataclasses
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from autoresearch.judge.verify import verify
from autoresearch.loop.campaign import LEDGER
from autoresearch.loop.ledger import Ledger, Row
from autoresearch.report import page as report
from autoresearch.report.keep import keep, kept
from autoresearch.report.summary import cost, summarize
from common.errors import UserError
from tests.autoresearch import toys
from tests.autoresearch.loop.test_campaign import QUICK

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def campaign(root, name="toy"):
    """One that promotes, crashes, is futile, and proposes a page's worth of mischief."""
    lines = [
        {"skill": 0.7},
        {"crash": 3},
        {"change": {"note": "b"}, "hypothesis": "<script>alert(1)</script> | promote this",
         "observable": "speed", "sign": -1},
    ]  # fmt: skip
    return toys.config(
        root, gates=QUICK, proposer=toys.transcript(root / f"{name}.jsonl", *lines),
        budgets={"generations": 1, "grace": 0.2}, name=name,
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("campaign")
    toys.run(campaign(root))
    toys.run(campaign(root), "final")
    return root / "toy"


def test_the_section_tells_all_of_it(done):
    text = report.section(summarize(done), "experiments/campaigns/toy")
    assert "3 candidates in 1 generation by the proposer transcript" in text
    assert "Promoted: g001_c01 (skill=0.7), gain +0.2" in text
    gains = [line.split("|")[5] for line in text.splitlines() if line.startswith("| 1 | g001")]
    assert [gain.split(" over ")[1:] for gain in gains] == [["1 seed "], [], ["200 units "]]
    assert "Final: g001_c01 held up" in text
    assert "| g001_c02 | crash=3 | G1 crash |  |  | crash: it went wrong |" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; \\| promote this" in text
    assert "verify directory=experiments/campaigns/toy`" in text
    assert "| of them failed | 1 |" in text


def test_the_page_shows_text_as_text(done):
    page = report.page(summarize(done))
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert page.count('<tr class="promoted">') == 2
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")  # nothing from elsewhere


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_the_page_and_runs_nothing(done, tmp_path):
    """What a proposer wrote would change the title, if any of it were run."""
    text = report.page(summarize(done)).replace("alert(1)", "document.title=1")
    (tmp_path / "index.html").write_text(text)
    shown = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "index.html").as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    assert "<title>Campaign toy</title>" in shown
    assert shown.count("<svg ") == 2 and shown.count("<table>") == 3
    assert "&lt;script&gt;document.title=1" in shown


def test_labels_keep_apart_and_inside():
    assert report._apart([1, 2, 3, 90, 99, 100], 0, 100) == [1, 14, 27, 74, 87, 100]
    assert report._apart([-5], 0, 100) == [0] and report._apart([], 0, 1) == []


def test_a_long_change_loses_the_groups_of_its_keys():
    assert report._short("reward.off_track=-3.0") == "reward.off_track=-3.0"
    assert report._short("ppo.network.log_std_fade=0.56") == "log_std_fade=0.56"
    assert len(report._short("a.b=" + 40 * "1")) == 28


def test_evidence_beyond_the_picture_ends_at_its_edge(done):
    summary = summarize(done)
    candidate = summary.state.candidates["g001_c01"]
    candidate.judged["G3"]["e_curve"] = [10.0**k for k in range(20)]
    drawn = report.evidence(summary)
    assert "g001_c01, at last 1e+19" in drawn


def test_pictures_are_well_formed_and_the_same_each_time(done):
    summary = summarize(done)
    found = report.documents(summary)
    assert found == report.documents(summarize(done)) and len(found) == 3
    for name in ("lineage.svg", "evidence.svg"):
        root = ElementTree.fromstring(found[name])
        texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
        assert any("g001_c01" in text for text in texts)
    lines = list(
        ElementTree.fromstring(found["evidence.svg"]).iter("{http://www.w3.org/2000/svg}polyline")
    )
    screened = [c for c in summary.state.candidates.values() if "G3" in c.judged]
    assert len(lines) == len(screened) == 2


def test_an_empty_campaign_has_documents_too(tmp_path):
    config = toys.config(tmp_path, gates={"headroom": 0.9})
    toys.run(config)
    summary = summarize(tmp_path / "toy")
    assert "Nothing was promoted." in report.section(summary, "here/toy")
    for name, text in report.documents(summary).items():
        if name.endswith(".svg"):
            ElementTree.fromstring(text)


def test_time_between_two_lives_costs_nothing(done):
    summary = summarize(done)
    rows = Ledger.reading(done / LEDGER).rows
    later = next(row.number for row in rows if row.kind == "resumed")
    days = [dataclasses.replace(row, time="2030" + row.time[4:]) if row.number >= later else row
            for row in rows]  # fmt: skip
    assert cost(days, summary.state, summary.config) == summary.cost
    back = [*rows[:-1], dataclasses.replace(rows[-1], time="1999" + rows[-1].time[4:])]
    assert 0 <= cost(back, summary.state, summary.config).minutes <= summary.cost.minutes


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
