"""Files of weights."""

import errno
import math
import os

import torch

from common.torch.checkpoint import save_rejected

LOW = torch.tensor([-1.0, 0.0, 0.0])
HIGH = torch.tensor([1.0, 1.0, 1.0])


def test_a_disk_without_room_does_not_hide_why_a_batch_was_kept(tmp_path, monkeypatch):
    rows = {"reward": torch.tensor([math.nan])}
    path = save_rejected(tmp_path / "a" / "batch.pt", rows)
    assert torch.load(path, weights_only=True)["reward"].isnan().all()

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("common.torch.checkpoint.atomic_write_bytes", full)
    message = save_rejected(tmp_path / "b.pt", rows)
    assert message == f"{tmp_path}/b.pt (which could not be written: {os.strerror(errno.ENOSPC)})"
