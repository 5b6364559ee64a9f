"""Write REPORT.md, and the marked parts of other documents, from the committed records."""

from pathlib import Path

from autoresearch.judge.calibration import CALIBRATIONS
from autoresearch.loop.verify import verify
from autoresearch.report import keep
from autoresearch.report import page as campaign_report
from autoresearch.report.summary import summarize
from common import cli
from common.errors import UserError
from common.files import atomic_write_text
from common.records import RECORDS, read_record
from common.runs import ROOT
from common.schema import config_class
from experiments.report.ablations import ablations
from experiments.report.document import report
from experiments.report.facts import facts, filled
from experiments.report.world_model_card import world_model_card

DESCRIPTION = """Generate REPORT.md and the marked parts of documents from experiments/records.

    python scripts/report.py              write them
    python scripts/report.py check=true   only say whether they are what the records give

Campaigns that `python -m autoresearch keep` put into experiments/campaigns get a section each. A
page and pictures are written beside their ledgers. A world model in experiments/checkpoints gets
its model card if it has records.

Marked parts stand between <!-- <name>:begin --> and <!-- <name>:end -->. They are `facts` in
README.md, and `ablations` in docs/ppo.md if it has these marks."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        check: write nothing; exit 2 if out of date.
    """

    check: bool = False


def research_sections(records: Path, campaigns: Path) -> list[str]:
    """The sections of REPORT.md on AutoResearch: calibrations, then kept campaigns."""
    paths = sorted(records.glob(f"{CALIBRATIONS}*.json"))
    sections = [campaign_report.calibration(read_record(path.stem, records)) for path in paths]
    for place in keep.kept(campaigns):
        where = f"experiments/campaigns/{place.name}"
        sections.append(campaign_report.section(summarize(place), where))
    return sections


def documents(
    root: Path = ROOT, records: Path = RECORDS, campaigns: Path = keep.CAMPAIGNS
) -> dict[Path, str]:
    """Path of every generated document -> the text that the records and kept campaigns give it."""
    readme, prose = root / "README.md", root / "docs" / "ppo.md"
    before = readme.read_text(encoding="utf-8")
    texts = {
        readme: filled(before, "facts", facts(records), readme.name),
        root / "REPORT.md": report(records, research_sections(records, campaigns)),
    }
    for checkpoint in sorted((root / "experiments" / "checkpoints").glob("*.pt")):
        if card := world_model_card(checkpoint, records):
            texts[checkpoint.with_suffix(".md")] = card
    for place in keep.kept(campaigns):
        verify(place)
        pages = campaign_report.documents(summarize(place))
        texts |= {place / name: text for name, text in pages.items()}
    if prose.is_file() and "<!-- ablations:" in (text := prose.read_text(encoding="utf-8")):
        record = read_record("ablations", records)
        content = ablations(record) if record else "Not run yet: `python scripts/ablate.py`."
        texts[prose] = filled(text, "ablations", content, "docs/ppo.md")
    return texts


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    texts = documents()
    stale = [
        path
        for path, text in texts.items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    names = [str(path.relative_to(ROOT)) for path in stale]
    if settings.check and stale:
        raise UserError(f"{' and '.join(names)}: out of date; run python scripts/report.py")
    for path in stale:
        atomic_write_text(path, texts[path])
    cli.finish({"written": ",".join(names) or "nothing"})


if __name__ == "__main__":
    cli.run_main(main)
