"""Pictures: labels keep apart, and nothing leaves the frame."""

import dataclasses

from autoresearch.report import pictures
from autoresearch.report.summary import summarize


def test_labels_keep_apart_and_inside():
    assert pictures.apart([1, 2, 3, 90, 99, 100], 0, 100) == [1, 14, 27, 74, 87, 100]
    assert pictures.apart([-5], 0, 100) == [0] and pictures.apart([], 0, 1) == []


def test_a_long_change_loses_the_groups_of_its_keys():
    assert pictures.short("reward.off_track=-3.0") == "reward.off_track=-3.0"
    assert pictures.short("ppo.network.log_std_fade=0.56123456789012345") == (
        "log_std_fade=0.56123456789012345"
    )
    assert len(pictures.short("a.b=" + 80 * "1")) == 42


def test_evidence_beyond_the_picture_ends_at_its_edge(done):
    summary = summarize(done)
    judged = summary.state.candidates["g001_c01"].judged
    judged["G3"] = dataclasses.replace(judged["G3"], e_curve=[10.0**k for k in range(20)])
    drawn = pictures.evidence(summary)
    assert "g001_c01, at last 1e+19" in drawn
