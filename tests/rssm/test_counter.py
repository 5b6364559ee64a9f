"""A world of one number, learned: an off-by-one anywhere from recording to imagination shows."""

from dataclasses import replace

import pytest
import torch

from replay import WindowSampler
from rssm.data import DataConfig, MicroBatches, Reader
from rssm.model.core import State
from rssm.objective import world_model_loss
from rssm.world_model import WorldModel
from tests.rssm.toys import PLAIN_LOSS, config, counting_data, opened

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    counting_data(root, episodes=40)
    data = opened(root)
    torch.manual_seed(0)
    world = WorldModel(config())
    reader = Reader(data, ("speed", "steer"), True)
    world.heads.set_statistics(reader.statistics())
    sizes = DataConfig(root=str(root), dataset="D", length=16, batch=8)
    batches = MicroBatches(reader, sizes, 0, 400)
    optimiser = torch.optim.Adam(world.parameters(), 2e-3)
    loss = replace(PLAIN_LOSS, image=0.01, representation=0.5, free_nats=0.1)
    for number in range(400):
        noise = world.core.latent.noise((8, 16), torch.Generator().manual_seed(number))
        total = world_model_loss(world, batches[number], noise, loss).total
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
    return root, world.eval()


def test_imagined_telemetry_is_in_step_with_the_recorded(learned):
    root, world = learned
    data = opened(root, "val")
    starts = WindowSampler(data.episodes, 20, 64, 5).indices(0)
    rows = Reader(data, ("speed", "steer"), True).batch(starts, 20)
    whole = ~rows.is_first[:, 1:].any(1)
    targets = {name: value[whole] for name, value in rows.targets.items()}
    frames, actions, is_first = (
        part[whole] for part in (rows.observation, rows.action, rows.is_first)
    )
    with torch.no_grad():
        noise = world.core.latent.noise((int(whole.sum()), 20), torch.Generator().manual_seed(0))
        states = world.observe(frames, actions, is_first, noise=noise).state
        state = State(states.deter[:, 9], states.stoch[:, 9])
        future = world.imagine(state, actions[:, 10:], sample=False)
    predicted = future.predictions.by_head()

    def correlation(name, shift):
        """Of imagined rows with recorded ones that lie `shift` rows later."""
        imagined = predicted[name][:, 1:9].flatten()
        recorded = targets[name][:, 11 + shift : 19 + shift].flatten()
        return float(torch.corrcoef(torch.stack([imagined, recorded]))[0, 1])

    for name in ("steer", "speed", "reward"):
        in_step = correlation(name, 0)
        assert in_step > 0.85, name
        assert in_step > max(correlation(name, -1), correlation(name, 1)) + 0.02, name
