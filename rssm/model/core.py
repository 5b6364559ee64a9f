"""The recurrent state-space model: a deterministic GRU and a stochastic state (Hafner et al. 2019).

Timing, the same from the recording (`replay.schema`) to imagination:

    row            t-1                        t
    action                action[t] led to o_t
    deter          h[t-1] ---- GRU ---------> h[t]     from z[t-1] and action[t]
    prior                                     p(z[t] | h[t])
    posterior                                 q(z[t] | h[t], o[t])
    heads                                     reward[t], continue[t], telemetry[t] from (h[t], z[t])

Where `is_first[t]`, nothing led to o_t: state and action are zero before the step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rssm.config import RSSMConfig

UPDATE_BIAS = -1.0
"""Added to the update gate, so that an untrained core keeps its state (Hafner et al. 2021)."""


class State(NamedTuple):
    """What the model believes at one moment.

    Attributes:
        deter: (..., deter) float.
        stoch: (..., latent) float: a Gaussian's sample, or one-hot groups, flattened.
    """

    deter: Tensor
    stoch: Tensor

    @property
    def features(self) -> Tensor:
        """(..., deter + latent), the input of decoder and heads."""
        return torch.cat(self, -1)


class Observed(NamedTuple):
    """States along observed sequences, with both beliefs about the stochastic one.

    Attributes:
        state: (B, T, ...), the stochastic part drawn from the posterior.
        prior, posterior: (B, T, ...) statistics as `Latent` has them.
    """

    state: State
    prior: Tensor
    posterior: Tensor


class Latent:
    """The distribution of the stochastic state over plain tensors of statistics.

    Gaussian: (..., 2 stoch), means then unconstrained standard deviations. Discrete: (..., stoch
    classes) logits, mixed with `unimix` of a uniform distribution (Hafner et al. 2023).
    """

    def __init__(self, config: RSSMConfig) -> None:
        self.stoch, self.classes = config.stoch, config.classes
        self.unimix, self.min_std = config.unimix, config.min_std

    @property
    def statistics(self) -> int:
        """Numbers per distribution."""
        return self.stoch * (self.classes or 2)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """What one sample needs per distribution: standard normal or Gumbel noise."""
        if not self.classes:
            return torch.randn(*shape, self.stoch, generator=generator)
        uniform = torch.rand(*shape, self.stoch * self.classes, generator=generator)
        return -torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7)))

    def sample(self, statistics: Tensor, noise: Tensor) -> Tensor:
        """(..., latent), differentiable: reparametrised or straight-through."""
        if not self.classes:
            mean, std = self.gaussian(statistics)
            return mean + std * noise
        logits = self.log_probs(statistics)
        chosen = (logits + noise.unflatten(-1, logits.shape[-2:])).argmax(-1)
        hard = functional.one_hot(chosen, self.classes).to(logits.dtype)
        probs = logits.exp()
        return (hard + probs - probs.detach()).flatten(-2)

    def mode(self, statistics: Tensor) -> Tensor:
        """(..., latent), the most likely value."""
        if not self.classes:
            return self.gaussian(statistics)[0]
        chosen = self.log_probs(statistics).argmax(-1)
        return functional.one_hot(chosen, self.classes).to(statistics.dtype).flatten(-2)

    def gaussian(self, statistics: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, (..., stoch) each."""
        mean, raw = statistics.chunk(2, -1)
        # 2 sigmoid(x / 2) is 1 at 0 and cannot explode, unlike softplus.
        return mean, 2 * torch.sigmoid(raw / 2) + self.min_std

    def raw(self, std: float) -> float:
        """The statistic of which `gaussian` makes this standard deviation."""
        share = (std - self.min_std) / 2
        return 2 * math.log(share / (1 - share))

    def log_probs(self, statistics: Tensor) -> Tensor:
        """(..., stoch, classes) log probabilities."""
        logits = statistics.unflatten(-1, (self.stoch, self.classes))
        if not self.unimix:
            return functional.log_softmax(logits, -1)
        probs = (1 - self.unimix) * functional.softmax(logits, -1) + self.unimix / self.classes
        return torch.log(probs)

    def kl(self, left: Tensor, right: Tensor) -> Tensor:
        """KL(left || right) in nats, summed over the state, (...)."""
        if self.classes:
            p, q = self.log_probs(left), self.log_probs(right)
            return (p.exp() * (p - q)).sum((-2, -1))
        mean_p, std_p = self.gaussian(left)
        mean_q, std_q = self.gaussian(right)
        ratio, shift = std_p / std_q, (mean_p - mean_q) / std_q
        return (0.5 * (ratio.square() + shift.square() - 1) - torch.log(ratio)).sum(-1)


class Core(nn.Module):
    """GRU, prior and posterior.

    Args:
        config: sizes.
        embed: length of an observation's embedding.
        actions: length of an action.
    """

    def __init__(self, config: RSSMConfig, embed: int, actions: int) -> None:
        super().__init__()
        self.latent = Latent(config)
        self.deter, self.stoch = config.deter, config.latent
        hidden, count = config.hidden, self.latent.statistics
        # The parts of a first layer that do not depend on the state are computed for all steps
        # at once, so they are layers of their own.
        self.state_in = nn.Linear(config.latent, hidden, bias=False)
        self.action_in = nn.Linear(actions, hidden, bias=False)
        self.in_norm = nn.LayerNorm(hidden)
        self.gates = nn.Linear(hidden + config.deter, 3 * config.deter, bias=False)
        self.gates_norm = nn.LayerNorm(3 * config.deter)
        self.prior_layers = nn.Sequential(
            nn.Linear(config.deter, hidden, bias=False),
            nn.LayerNorm(hidden),
            nn.SiLU(),
            nn.Linear(hidden, count),
        )
        self.posterior_deter = nn.Linear(config.deter, hidden, bias=False)
        self.posterior_embed = nn.Linear(embed, hidden, bias=False)
        self.posterior_out = nn.Sequential(
            nn.LayerNorm(hidden), nn.SiLU(), nn.Linear(hidden, count)
        )
        if not config.classes:
            for last in (self.prior_layers[-1], self.posterior_out[-1]):
                nn.init.constant_(last.bias[config.stoch :], self.latent.raw(config.first_std))

    def initial(self, batch: int) -> State:
        """The state before the first observation: zeros."""
        like = self.gates.weight
        return State(like.new_zeros(batch, self.deter), like.new_zeros(batch, self.stoch))

    def step(self, state: State, action: Tensor) -> Tensor:
        """The next deterministic state.

        Args:
            state: (B, ...).
            action: (B, actions), which leads there.

        Returns:
            (B, deter).
        """
        return self._step(state, self.action_in(action))

    def prior(self, deter: Tensor) -> Tensor:
        """Statistics (..., n) of p(z | h)."""
        return self.prior_layers(deter)

    def posterior(self, deter: Tensor, embed: Tensor) -> Tensor:
        """Statistics (..., n) of q(z | h, o)."""
        return self.posterior_out(self.posterior_deter(deter) + self.posterior_embed(embed))

    def observe(
        self,
        embed: Tensor,
        actions: Tensor,
        is_first: Tensor,
        noise: Tensor,
        state: State | None = None,
    ) -> Observed:
        """Follow observed sequences.

        Args:
            embed: (B, T, embed); actions: (B, T, actions); is_first: (B, T) bool.
            noise: (B, T, ...) as `Latent.noise` makes it.
            state: (B, ...) before the first row; the initial one by default.
        """
        state = self.initial(len(embed)) if state is None else state
        going = (~is_first).to(embed.dtype).unsqueeze(-1)
        action_inputs = self.action_in(actions * going).unbind(1)
        embed_inputs = self.posterior_embed(embed).unbind(1)
        resets = bool(is_first.any())  # no row of most batches begins an episode
        going, noise = going.unbind(1), noise.unbind(1)
        deters, stochs, posteriors = [], [], []
        for t in range(len(embed_inputs)):
            if resets:
                state = State(state.deter * going[t], state.stoch * going[t])
            deter = self._step(state, action_inputs[t])
            posterior = self.posterior_out(self.posterior_deter(deter) + embed_inputs[t])
            state = State(deter, self.latent.sample(posterior, noise[t]))
            deters.append(deter)
            stochs.append(state.stoch)
            posteriors.append(posterior)
        states = State(torch.stack(deters, 1), torch.stack(stochs, 1))
        return Observed(states, self.prior(states.deter), torch.stack(posteriors, 1))

    def _step(self, state: State, action_input: Tensor) -> Tensor:
        x = functional.silu(self.in_norm(self.state_in(state.stoch) + action_input))
        parts = self.gates_norm(self.gates(torch.cat((x, state.deter), -1)))
        reset, candidate, update = parts.chunk(3, -1)
        candidate = torch.tanh(torch.sigmoid(reset) * candidate)
        update = torch.sigmoid(update + UPDATE_BIAS)
        return torch.lerp(state.deter, candidate, update)
