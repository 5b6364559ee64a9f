import errno

import pytest

from common.errors import ConfigError, reported


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("ppo.clip: too big"), 2, "error: ppo.clip: too big\n"),
        (OSError(errno.ENOSPC, "No space left", "/x/y"), 2, "error: No space left: /x/y\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_for_people_exit_without_a_traceback(capsys, error, code, text):
    with pytest.raises(SystemExit) as exit_info, reported():
        raise error
    assert exit_info.value.code == code
    assert capsys.readouterr().err == text


@pytest.mark.parametrize("bug", [ZeroDivisionError(), FileNotFoundError(errno.ENOENT, "gone")])
def test_bugs_keep_their_traceback(bug):
    with pytest.raises(type(bug)), reported():
        raise bug
