"""Driving by keyboard: keys to smooth controls, and a window (extra play)."""

import os
from typing import Any

import numpy as np

from common.errors import UserError

STEER_PER_TICK, RELEASE_PER_TICK, GAS_PER_TICK, BRAKE = 0.12, 0.25, 0.1, 0.8
"""How fast the wheel and the pedal follow the keys, and the brake of CarRacing's keyboard."""


class Controls:
    """Steer, gas and brake that follow the keys held."""

    def __init__(self, pygame: Any) -> None:
        self._keys = {
            "left": {pygame.K_LEFT, pygame.K_a},
            "right": {pygame.K_RIGHT, pygame.K_d},
            "gas": {pygame.K_UP, pygame.K_w},
            "brake": {pygame.K_DOWN, pygame.K_s},
        }
        self._held: set[int] = set()
        self._pygame = pygame
        self.action = np.zeros(3, np.float32)

    def handle(self, event: Any) -> None:
        """Take note of a key that went down or up."""
        if event.type == self._pygame.KEYDOWN:
            self._held.add(event.key)
        elif event.type == self._pygame.KEYUP:
            self._held.discard(event.key)
        elif event.type == self._pygame.WINDOWFOCUSLOST:
            self._held.clear()  # the window will not hear of keys that go up elsewhere

    def tick(self) -> np.ndarray:
        """The action of the next tick, (3,) float32."""
        on = {name: bool(keys & self._held) for name, keys in self._keys.items()}
        steer, gas, _ = self.action
        goal = float(on["right"] - on["left"])
        step = STEER_PER_TICK if goal else RELEASE_PER_TICK
        steer += np.clip(goal - steer, -step, step)
        gas = min(gas + GAS_PER_TICK, 1.0) if on["gas"] else 0.0
        self.action = np.array([steer, gas, BRAKE if on["brake"] else 0.0], np.float32)
        return self.action

    def release(self) -> None:
        """Centre the wheel and let go of the pedals; keys stay held."""
        self.action = np.zeros(3, np.float32)


def open_window(size: tuple[int, int], instead: str) -> tuple[Any, Any]:
    """pygame and its window of (width, height) pixels.

    Raises:
        UserError: pygame or a screen is missing; ends with `instead`, what needs none.
    """
    try:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        import pygame
    except ImportError:
        raise UserError("pygame is not installed; pip install -e '.[play]'") from None
    asked = os.environ.get("SDL_VIDEODRIVER")
    try:
        pygame.display.init()
        if pygame.display.get_driver() in ("dummy", "offscreen") and not asked:
            raise pygame.error("no display")
        window = pygame.display.set_mode(size)
    except pygame.error as error:
        raise UserError(
            f"cannot open a window ({error}), and this needs a screen; {instead}"
        ) from None
    pygame.display.set_caption("Dreamracer")
    return pygame, window
