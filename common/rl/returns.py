"""Advantages and returns from rewards and values."""

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

    `next_value[t]` is the value of the state after step t. Where `done[t]`, this is the last
    observation of the episode, not the first of the next one. There are two masks. A terminated
    state has no value: `delta = r + gamma (1 - terminated) V' - V`. No sum crosses the end of an
    episode: `A[t] = delta[t] + gamma lam (1 - done[t]) A[t+1]`.
    """
    delta = reward + gamma * next_value * ~terminated - value
    decay = gamma * lam * (~done).to(delta.dtype)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        following = delta[t] + decay[t] * following
        advantage[t] = following
    return advantage


def lambda_returns(
    reward: Tensor, next_value: Tensor, continue_prob: Tensor, gamma: float, lam: float
) -> Tensor:
    """TD(lambda) returns along imagined futures (Hafner et al. 2021, equation 4), all (T, ...).

    Row t is the result of action t: the reward, the value of the next state, and the probability in
    [0, 1] that the episode continues from there. With c = gamma continue_prob,

        R[t] = r[t] + c[t] ((1 - lam) V[t] + lam R[t + 1]),  R[T] = V[T - 1].

    Gradients flow through everything.
    """
    discount = gamma * continue_prob
    returns, following = [], next_value[-1]
    for t in reversed(range(len(reward))):
        following = reward[t] + discount[t] * ((1 - lam) * next_value[t] + lam * following)
        returns.append(following)
    return torch.stack(returns[::-1])


def standardise(x: Tensor) -> Tensor:
    """(x - mean) / std over all elements, with the population's std, so one element gives 0."""
    return (x - x.mean()) / (x.std(correction=0) + EPSILON)
