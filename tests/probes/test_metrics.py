"""Metrics against values that can be told by hand."""

import numpy as np
import pytest

from probes import metrics
from probes.baselines import BlindRegression


def picture(value):
    return np.full((96, 96, 3), value, np.float32)


def test_errors_of_known_pictures():
    assert metrics.mse(picture(0.5), picture(0.4)) == pytest.approx(0.01, rel=1e-5)
    assert metrics.decibels(metrics.mse(picture(0.5), picture(0.4))) == pytest.approx(20, rel=1e-5)
    assert metrics.decibels(metrics.mse(picture(0.5), picture(0.5))) == 100


def test_ssim_knows_sameness_noise_and_shape():
    rng = np.random.default_rng(0)
    image = rng.random((2, 96, 96, 3)).astype(np.float32)
    similarity = metrics.Similarity(image)
    np.testing.assert_allclose(similarity(image), [1, 1], rtol=1e-6)
    assert similarity(1 - image).max() < 0
    assert similarity(np.clip(image + 0.05, 0, 1)).min() > 0.9


def test_the_road_is_grey():
    image = picture(0.0)
    image[:48] = np.array([102, 105, 102]) / 255
    image[48:] = np.array([100, 202, 100]) / 255
    assert metrics.road(image)[:48].all() and not metrics.road(image)[48:].any()
    half = np.zeros((96, 96), bool)
    half[:24] = True
    assert metrics.iou(half, metrics.road(image)) == 0.5
    assert metrics.iou(half & False, half & False) == 1


def test_edges_are_matched_within_a_pixel():
    image, where = picture(0.2), np.ones((96, 96), bool)
    image[40:] = 0.8
    near, far = picture(0.2), picture(0.2)
    near[41:] = 0.8
    far[60:] = 0.8
    assert metrics.edge_f1(near, image, where) == pytest.approx(1)
    assert metrics.edge_f1(far, image, where) == pytest.approx(0)
    assert metrics.edge_f1(picture(0.2), image, where) == 0
    assert metrics.edge_f1(picture(0.2), picture(0.2), where) == 1


def test_auc_and_brier():
    label = np.array([0, 0, 1, 1], bool)
    assert metrics.auc(np.array([0.1, 0.4, 0.35, 0.8]), label) == 0.75
    assert metrics.auc(np.array([0.5, 0.5, 0.5, 0.5]), label) == 0.5
    assert np.isnan(metrics.auc(np.ones(4), np.ones(4, bool)))
    assert metrics.brier(np.array([0.5, 1.0]), np.array([0, 1])) == 0.125


def test_slope_and_correlation():
    true = np.array([0.1, 0.2, 0.3])
    assert metrics.slope(0.5 * true, true) == pytest.approx(0.5)
    assert metrics.correlation(1 - true, true) == pytest.approx(-1)
    assert np.isnan(metrics.correlation(np.ones(3), true))
    assert np.isnan(metrics.slope(true, np.zeros(3)))


def test_the_blind_regression_sees_telemetry_and_actions():
    rng = np.random.default_rng(0)
    context = rng.normal(size=(400, 6, 2)).astype(np.float32)
    actions = rng.normal(size=(400, 4, 3)).astype(np.float32)
    target = 2 * context[:, -1, 0] - context[:, -2, 1] + actions[:, :, 1].sum(1) + 3
    model = BlindRegression().fit(context[:300], actions[:300], target[:300])
    found = model.predict(context[300:], actions[300:])
    assert metrics.correlation(found, target[300:]) > 0.99
    assert abs((found - target[300:]).mean()) < 0.1
    with pytest.raises(ValueError, match="fit"):
        BlindRegression().predict(context, actions)
