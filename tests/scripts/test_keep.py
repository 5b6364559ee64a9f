"""What is kept stays inside the repository."""

import pytest

from common import cli
from common.errors import UserError
from scripts.keep import DESCRIPTION, Settings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["name=../drive"], "name has only"),
        (["name=/tmp/drive"], "name has only"),
        (["name="], "name has only"),
        (["name=drive", "checkpoint=../../race"], "checkpoint has only"),
        (["name=drive", "checkpoint=Race.pt"], "checkpoint has only"),
    ],
)
def test_names_that_leave_their_directory_are_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        cli.parse(Settings, DESCRIPTION, ["run=runs/x", *arguments])


def test_a_checkpoint_is_optional():
    assert cli.parse(Settings, DESCRIPTION, ["run=runs/x", "name=drive"]).checkpoint == ""
