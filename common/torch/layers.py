"""Initialisation of layers that more than one network uses."""

import math

from torch import nn


def orthogonal(layer: nn.Module, gain: float = math.sqrt(2), bias: float = 0.0) -> nn.Module:
    """Initialise a linear or convolutional `layer` orthogonally (Saxe et al. 2013); returns it."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.constant_(layer.bias, bias)
    return layer
