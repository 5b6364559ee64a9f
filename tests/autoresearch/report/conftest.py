"""A finished campaign for the tests of the report."""

import pytest

from tests.autoresearch import toys
from tests.autoresearch.toys import report_campaign as campaign


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("campaign")
    toys.run(campaign(root))
    toys.run(campaign(root), "final")
    return root / "toy"
