"""Decoders: chosen by configuration, given what they take, judged by their own loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rssm.config import MOTION, DecoderConfig
from rssm.model.decoder import DECODERS, Decoder, from_patches, to_patches
from rssm.motion import accumulate, compose
from rssm.objective import world_model_loss
from rssm.world_model import WorldModel
from tests.rssm.toys import PLAIN_LOSS, batch, config, model


def test_frames_come_back_from_their_patches():
    frames = torch.randint(0, 256, (2, 96, 96, 3), dtype=torch.uint8)
    patches = to_patches(frames)
    assert patches.shape == (2, 24, 24, 48)
    assert (patches[0, 5, 7] == frames[0, 20:24, 28:32].flatten()).all()
    assert (from_patches(patches, 3) == frames).all()


def test_a_decoder_that_draws_from_latents_refuses_motion():
    world = model()
    latents = world.core.observe(
        torch.zeros(2, 3, world.encoder.features), torch.zeros(2, 3, 3),
        torch.zeros(2, 3, dtype=torch.bool), world.core.latent.noise((2, 3)),
    ).state  # fmt: skip
    with pytest.raises(ValueError, match="takes no motion"):
        world.decode(latents, motion=torch.zeros(2, 3, 3))
    assert world.decode(latents).shape == (2, 3, 96, 96, 3)


def test_a_decoder_of_no_known_kind_is_refused():
    with pytest.raises(ValueError, match=r"decoder\.kind is one of convolutional, not 'cubist'"):
        WorldModel(config(decoder=DecoderConfig(kind="cubist")))


def test_the_convolutional_decoder_may_read_the_motion():
    torch.manual_seed(0)
    reading = DecoderConfig(motion=True)
    world = WorldModel(config(telemetry=MOTION, off=False, decoder=reading))
    assert world.decoder.inputs.in_features == 16 + 4 + 3
    rows = batch()
    latents = world.observe(rows.observation, rows.action, rows.is_first).state
    shown = world.decode(latents)
    predicted = world.heads.motion(latents.features)
    torch.testing.assert_close(world.decode(latents, motion=predicted), shown)
    assert (world.decode(latents, motion=predicted + 1) != shown).any()
    with pytest.raises(ValueError, match="needs the motion heads"):
        WorldModel(config(decoder=reading))


class Recording(Decoder):
    """Shows the first frame and keeps what it was given."""

    takes = frozenset({"pose", "first_frame"})

    def __init__(self, config, features):
        super().__init__(config, features)
        self.shift = torch.nn.Linear(features, 1)
        self.calls = []

    def frames(self, inputs):
        self.calls.append(inputs)
        shift = self.shift(inputs.latents) + inputs.pose.sum(-1, keepdim=True)
        return (inputs.first_frame / 255 + 0.1 * shift[..., None, None]).clamp(0, 1)


@pytest.fixture
def recording(monkeypatch):
    monkeypatch.setitem(DECODERS, "recording", Recording)
    torch.manual_seed(0)
    settings = config(telemetry=MOTION, off=False, decoder=DecoderConfig(kind="recording"))
    world = WorldModel(settings)
    with torch.no_grad():
        for parameter in world.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return world


def test_a_warping_decoder_gets_the_pose_since_the_first_frame(recording):
    rows = batch()
    latents = recording.observe(rows.observation, rows.action, rows.is_first).state
    with pytest.raises(ValueError, match="needs first_frame"):
        recording.decode(latents)
    first, motion = rows.observation[:, 0], torch.randn(2, 6, 3)
    recording.decode(latents, motion, first)
    inputs = recording.decoder.calls[-1]
    assert inputs.motion is None
    assert (inputs.first_frame.unflatten(0, (2, 6))[1, 4] == first[1]).all()
    for window in range(2):
        expected = torch.tensor(np.stack(compose(motion[window].T.numpy()), -1))
        pose = inputs.pose.unflatten(0, (2, 6))[window]
        torch.testing.assert_close(pose.double(), expected, atol=1e-5, rtol=1e-5)
    recording.decode(latents, first_frame=first)  # by the motion that the heads predict
    expected = accumulate(recording.heads.motion(latents.features)).flatten(0, 1)
    torch.testing.assert_close(recording.decoder.calls[-1].pose, expected)


def test_in_training_the_first_frame_is_the_one_before_the_window_or_an_episodes_own(recording):
    rows = batch(length=6, first=[(0, 3)])
    targets = rows.targets | {name: torch.zeros(2, 6) for name in MOTION}
    rows = rows._replace(
        targets=targets, before=torch.randint(0, 256, (2, 96, 96, 3), dtype=torch.uint8)
    )
    noise = recording.core.latent.noise((2, 6), torch.Generator().manual_seed(0))
    settings = replace(PLAIN_LOSS, overshoot=1.0, overshoot_rows=2)
    loss = world_model_loss(recording, rows, noise, settings)
    observed, future = recording.decoder.calls
    frames = observed.first_frame.unflatten(0, (2, 6))
    assert (frames[0, :3] == rows.before[0]).all() and (frames[1] == rows.before[1]).all()
    assert (frames[0, 3:] == rows.observation[0, 3]).all()
    pose = observed.pose.unflatten(0, (2, 6))
    assert (pose[0, 3] == 0).all() and (pose[0, 4] != 0).any() and (pose[1, 3] != 0).any()
    # Futures start at rows 0 and 2; window 0 reaches row 3, where another episode begins.
    assert len(future.latents) == 2 + 4
    starts = [rows.observation[0, 0]] * 2 + [rows.observation[1, 0]] * 2
    starts += [rows.observation[1, 2]] * 2
    assert (future.first_frame == torch.stack(starts)).all()
    loss.total.backward()
    assert recording.decoder.shift.weight.grad.abs().sum() > 0


def test_a_decoder_owns_its_image_loss(recording):
    rows = batch()
    rows = rows._replace(
        targets=rows.targets | {name: torch.zeros(2, 6) for name in MOTION},
        before=rows.observation[:, 0],
    )
    noise = recording.core.latent.noise((2, 6), torch.Generator().manual_seed(0))
    recording.decoder.loss = lambda inputs, frames, features: (
        torch.full((), 7.0 * len(frames)), torch.zeros(())
    )  # fmt: skip
    parts = world_model_loss(recording, rows, noise, PLAIN_LOSS).parts
    assert parts["image"] == pytest.approx(7.0)


def test_poses_are_counted_anew_where_an_episode_begins():
    motion = torch.randn(1, 5, 3)
    is_first = torch.tensor([[False, False, True, False, False]])
    pose = accumulate(motion, is_first)
    torch.testing.assert_close(pose[:, :2], accumulate(motion[:, :2]))
    assert (pose[:, 2] == 0).all()
    torch.testing.assert_close(pose[:, 3:], accumulate(motion[:, 3:]))
