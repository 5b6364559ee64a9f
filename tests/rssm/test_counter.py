"""A world of one number, learned: an off-by-one anywhere from recording to imagination shows."""

import pytest
import torch

from replay import WindowSampler
from rssm.data import DataConfig, Passes, Reader
from rssm.imagination import imagine
from rssm.model.core import State
from rssm.model.world_model import WorldModel
from rssm.objective import LossConfig
from tests.rssm.toys import NETWORK, counting_data, opened

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    counting_data(root, episodes=40)
    data = opened(root)
    torch.manual_seed(0)
    world = WorldModel(NETWORK, ("speed", "steer"), True)
    reader = Reader(data, ("speed", "steer"), True)
    world.heads.set_statistics(reader.statistics())
    config = DataConfig(root=str(root), dataset="D", length=16, batch=8)
    passes = Passes(reader, config, 0, 400)
    optimiser = torch.optim.Adam(world.parameters(), 2e-3)
    loss = LossConfig(image=0.01, representation=0.5, free_nats=0.1)
    for number in range(400):
        noise = world.core.latent.noise((8, 16), torch.Generator().manual_seed(number))
        total = world.loss(passes[number], noise, loss).total
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
    return root, world.eval()


def test_imagined_telemetry_is_in_step_with_the_recorded(learned):
    root, world = learned
    data = opened(root, "val")
    starts = WindowSampler(data.episodes, 20, 64, 5).indices(0)
    rows = Reader(data, ("speed", "steer"), True).batch(starts, 20)
    whole = ~rows["is_first"][:, 1:].any(1)
    rows = {name: value[whole] for name, value in rows.items()}
    with torch.no_grad():
        noise = world.core.latent.noise((int(whole.sum()), 20), torch.Generator().manual_seed(0))
        seen = world.observe(rows["observation"], rows["action"], rows["is_first"], noise=noise)
        state = State(seen.state.deter[:, 9], seen.state.stoch[:, 9])
        future = imagine(world, state, rows["action"][:, 10:], sample=False)

    def correlation(name, shift):
        """Of imagined rows with recorded ones that lie `shift` rows later."""
        imagined = future.predictions[name][:, 1:9].flatten()
        recorded = rows[name][:, 11 + shift : 19 + shift].flatten()
        return float(torch.corrcoef(torch.stack([imagined, recorded]))[0, 1])

    for name in ("steer", "speed", "reward"):
        in_step = correlation(name, 0)
        assert in_step > 0.85, name
        assert in_step > max(correlation(name, -1), correlation(name, 1)) + 0.02, name
