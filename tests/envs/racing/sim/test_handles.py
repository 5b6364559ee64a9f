"""Tracks as kernels see them."""

import numpy as np
import pytest

from envs.racing.sim.handles import KernelTrack, edge_planes
from tests.envs.racing.driving import painted


def test_edge_planes_face_outwards():
    track = painted(0).track
    planes = edge_planes(track.tiles)
    assert np.allclose(np.linalg.norm(planes[..., :2], axis=-1), 1)
    inside = np.einsum("nkd,nd->nk", planes[..., :2], track.tiles.mean(1)) - planes[..., 2]
    assert (inside < -1).all()
    on_edge = np.einsum("nkd,nkd->nk", planes[..., :2], track.tiles) - planes[..., 2]
    assert np.allclose(on_edge, 0, atol=1e-9)


def test_a_handle_points_at_arrays_that_live():
    track = painted(1)
    assert isinstance(track, KernelTrack)
    for name, array in track.arrays.items():
        assert array.flags.c_contiguous
        assert track.handle[name] == array.ctypes.data
    assert track.handle["lap_turn"] == pytest.approx(2 * np.pi)
    assert painted(0, "cw").handle["lap_turn"] == pytest.approx(-2 * np.pi)
