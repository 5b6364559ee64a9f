"""Devices and threads."""

import pytest
import torch

from common.errors import ConfigError
from common.torch.device import choose_device, set_threads

LOW = torch.tensor([-1.0, 0.0, 0.0])
HIGH = torch.tensor([1.0, 1.0, 1.0])


class TestChooseDevice:
    def test_cpu(self):
        assert choose_device("cpu") == torch.device("cpu")
        assert choose_device("auto").type in ("cpu", "cuda", "mps")

    @pytest.mark.parametrize("name", ["gpu", "cuda:x", "meta", ""])
    def test_unknown_names_are_refused(self, name):
        with pytest.raises(ConfigError, match="device"):
            choose_device(name)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_missing_gpu_is_said(self):
        with pytest.raises(ConfigError, match="no CUDA GPU"):
            choose_device("cuda")

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_gpu_that_does_not_exist_is_said(self):
        with pytest.raises(ConfigError, match="does not exist"):
            choose_device("cuda:99")


def test_threads_without_number_are_refused():
    with pytest.raises(ConfigError, match="threads is at most 1024, not 100000"):
        set_threads(100_000)
