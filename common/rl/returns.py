"""Advantages from rewards and values."""

import torch
from torch import Tensor

EPSILON = 1e-8


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016), all arguments and result (T, ...).

    `next_value[t]` is the value of the state that step t really led to: of the episode's own last
    observation where `done[t]`, not of the next episode's first. Two masks: a terminated state is
    worth nothing, `delta = r + gamma (1 - terminated) V' - V`; no sum crosses any ending,
    `A[t] = delta[t] + gamma lam (1 - done[t]) A[t+1]`.
    """
    delta = reward + gamma * next_value * ~terminated - value
    decay = gamma * lam * (~done).to(delta.dtype)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        following = delta[t] + decay[t] * following
        advantage[t] = following
    return advantage


def standardise(x: Tensor) -> Tensor:
    """(x - mean) / std over all elements; the std is the population's, so one element gives 0."""
    return (x - x.mean()) / (x.std(correction=0) + EPSILON)
