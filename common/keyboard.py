"""Driving with the keyboard: smooth controls from keys, and a window (extra `play`)."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from common.errors import UserError
from common.rl.controls import ACTION_SIZE
from common.rl.policy import TelemetrySpec

STEER_PER_TICK, RELEASE_PER_TICK, GAS_PER_TICK, BRAKE = 0.12, 0.25, 0.1, 0.8
"""How far the wheel and the gas pedal move per tick; the brake is that of CarRacing's keyboard."""


class KeyboardDriver:
    """A person as a policy of `common.rl.policy`: steer, gas and brake follow the pressed keys.

    It decides every tick and reads no observation, because the person looks at the screen. The
    carry is the last action, (n, 3) float32, because the wheel and the pedal move gradually.
    """

    spec = TelemetrySpec()

    def __init__(self, pygame: Any) -> None:
        self._keys = {
            "left": {pygame.K_LEFT, pygame.K_a},
            "right": {pygame.K_RIGHT, pygame.K_d},
            "gas": {pygame.K_UP, pygame.K_w},
            "brake": {pygame.K_DOWN, pygame.K_s},
        }
        self._held: set[int] = set()
        self._pygame = pygame

    def handle(self, event: Any) -> None:
        """Record that a key went down or up."""
        if event.type == self._pygame.KEYDOWN:
            self._held.add(event.key)
        elif event.type == self._pygame.KEYUP:
            self._held.discard(event.key)
        elif event.type == self._pygame.WINDOWFOCUSLOST:
            self._held.clear()  # the window gets no events of keys released elsewhere

    def initial(self, n: int, seeds: Sequence[int] | None = None) -> np.ndarray:
        """See `common.rl.policy.Policy`; nothing here is random."""
        return np.zeros((n, ACTION_SIZE), np.float32)

    def act(
        self,
        carry: np.ndarray,
        observation: np.ndarray,
        is_first: np.ndarray,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The action of the next tick, the same keys for every car.

        An episode starts with the wheel centred and the pedals released; keys stay held.
        """
        held = {name: bool(keys & self._held) for name, keys in self._keys.items()}
        steer, gas, _ = np.where(is_first[:, None], np.float32(0), carry).T
        goal = float(held["right"] - held["left"])
        step = STEER_PER_TICK if goal else RELEASE_PER_TICK
        steer = steer + np.clip(goal - steer, -step, step)
        gas = np.minimum(gas + GAS_PER_TICK, 1.0) if held["gas"] else np.zeros_like(gas)
        brake = np.full_like(gas, BRAKE if held["brake"] else 0.0)
        action = np.stack([steer, gas, brake], 1).astype(np.float32)
        return action, action


def open_window(size: tuple[int, int], instead: str) -> tuple[Any, Any]:
    """pygame and its window of (width, height) pixels.

    Raises:
        UserError: pygame or a screen is missing. The message ends with `instead`, which names an
            alternative that needs no screen.
    """
    try:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        import pygame
    except ImportError:
        raise UserError("pygame is not installed; pip install -e '.[play]'") from None
    requested = os.environ.get("SDL_VIDEODRIVER")
    try:
        pygame.display.init()
        if pygame.display.get_driver() in ("dummy", "offscreen") and not requested:
            raise pygame.error("no display")
        window = pygame.display.set_mode(size)
    except pygame.error as error:
        raise UserError(
            f"cannot open a window ({error}), and this needs a screen; {instead}"
        ) from None
    pygame.display.set_caption("Dreamracer")
    return pygame, window
