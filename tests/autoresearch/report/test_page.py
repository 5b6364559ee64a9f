"""The section, the page and the pictures of a campaign."""

import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from autoresearch.commands.settings import load
from autoresearch.judge.calibration import keep_calibration
from autoresearch.report import page as report
from autoresearch.report.summary import summarize
from common.records import read_record
from tests.autoresearch import toys

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def test_the_section_tells_all_of_it(done):
    text = report.section(summarize(done), "experiments/campaigns/toy")
    assert "3 candidates in 1 generation by the proposer transcript" in text
    assert "Promoted: g001_c01 (skill=0.7), gain +0.2" in text
    gains = [line.split("|")[5] for line in text.splitlines() if line.startswith("| 1 | g001")]
    assert [gain.split(" over ")[1:] for gain in gains] == [["1 seed "], [], ["200 units "]]
    assert "Final: g001_c01 held up" in text
    assert "| g001_c02 | crash=3 | crash at short run (G1) |  |  | crash: it went wrong |" in text
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


def test_pictures_are_well_formed_and_the_same_each_time(done):
    summary = summarize(done)
    documents = report.documents(summary)
    assert documents == report.documents(summarize(done)) and len(documents) == 3
    for name in ("lineage.svg", "evidence.svg"):
        root = ElementTree.fromstring(documents[name])
        texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
        assert any("g001_c01" in text for text in texts)
    lines = list(
        ElementTree.fromstring(documents["evidence.svg"]).iter(
            "{http://www.w3.org/2000/svg}polyline"
        )
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


def test_a_kept_calibration_becomes_a_part_of_the_report(tmp_path):
    config, _ = load(["campaign=control_49k"])
    share = {"mean": 0.0025, "low": 0.002, "high": 0.003, "n": 10_000}
    gates = {"effect": 0.0, "promoted": share, "screened": share, "runs": 20.0, "minutes": 30.0}
    result = {
        "mean": 0.7, "sd_over_seeds": 0.1, "sd_over_units": 0.2, "seconds_per_run": 80.0,
        "runs": 24, "units": 100, "campaigns": 10_000, "means": [0.6, 0.8], "gates": [gates],
        "best_of_three": [{"effect": 0.0, "promoted": share | {"mean": 0.7}, "inflation": 0.1}],
    }  # fmt: skip
    keep_calibration(result, config, "python", directory=tmp_path)
    record = read_record("calibration_control_49k", tmp_path)
    text = report.calibration(record)
    assert "of control_49k" in text and "0.0025 [0.002, 0.003]" in text
    assert record["settings"]["seeds"] == [config.gates.claim(g)[1] for g in range(1, 5)]
