"""Collect the data sets of `experiments.data.recipes`: which policy drives where, how often."""

import fcntl
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from common import schema
from common.errors import UserError
from common.files import read_json, sha256_file, write_json
from common.rl.policy import Policy
from common.runs import ROOT, code_state
from common.seeding import SPLITS, derive
from envs.racing import EndingConfig, EnvConfig, RacingVectorEnv, RewardConfig
from envs.racing.drivers import ActionNoise, PerTick, make_scenario
from envs.racing.pixels.camera import ZOOM, make_camera
from experiments.data.recipes import POLICY, TRACKS, Recipe, Source, recipe
from replay.collect import collect
from replay.curate import choose_episodes, copy_episodes, known_shards, link_shards
from replay.dataset import DataSet
from replay.schema import DIRECTIONS, Attributes
from replay.shards import ShardWriter

WORLDS = 16
"""Cars that drive at a time."""

SHORTEST = 2
"""Fewest rows of an episode: those before and after one step."""

WORLD = EnvConfig(preset="race", track_pool=0)


def describe_camera(size: int) -> dict[str, float]:
    """The geometry of recorded frames of size x size pixels, as data sets keep it."""
    camera = make_camera(size=size, grey=False, stack=1, indicators=True, zoom_in=False)
    return {
        "pixels_per_unit_across": 1 / camera.across,
        "pixels_per_unit_along": 1 / camera.along,
        "car_column": camera.centre_column,
        "car_row": camera.centre_row,
        "zoom": ZOOM,
    }


class DataSetBuilder:
    """Collects what the data sets at `root` still lack.

    Args:
        root: folder of all data sets.
        policy: the trained policy; `policy_hash` is the SHA-256 of its checkpoint.
        factor: scales the frames of every recipe.
        seed: of tracks, warm-ups and action noise.
        early: an early policy and its hash, for the sources that ask for one.
        report: called with what is collected, its rows so far and all its rows.
    """

    def __init__(
        self,
        root: Path,
        policy: Policy,
        policy_hash: str,
        *,
        factor: float = 1.0,
        seed: int = 1,
        early: tuple[Policy, str] | None = None,
        report: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        self._root, self._factor, self._seed, self._report = root, factor, seed, report
        self._trained, self._early = (policy, policy_hash), early
        self._code = code_state()["sha256"]
        settings = OmegaConf.to_container(OmegaConf.load(ROOT / "conf/reward/progress.yaml"))
        self._reward = schema.build(RewardConfig, settings["reward"])
        # The finish is not marked in the picture, so an end there could not be learnt from it.
        self._endings = schema.build(EndingConfig, settings["endings"] | {"finish": False})

    def fill(self, name: str) -> None:
        """Collect whatever the data set `name` lacks, the data sets that it is made of first.

        Rows that a killed process has written count. A larger factor adds to a smaller one's rows.
        """
        plan = recipe(name)
        with self._alone(name):
            self._fill(name, plan)

    def _fill(self, name: str, plan: Recipe) -> None:
        for part in plan.parts:
            self.fill(part)
            for split in recipe(part).splits():
                link_shards(self._root, part, name, split)
        for split, frames in plan.frames.items():
            for source in plan.sources:
                for direction in range(len(DIRECTIONS)):
                    rows = round(self._factor * frames * source.share / len(DIRECTIONS))
                    self._collect(name, plan, split, source, direction, max(rows, SHORTEST))
        if plan.selection is not None:
            self.fill(plan.selection.dataset)
            for split in plan.splits():
                self._choose(name, plan, split)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Lock a data set: two processes would collect the same episodes and keep both.

        Raises `UserError` if another process collects it, or if its rows come from another seed or
        policy.
        """
        place = self._root / name
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {place}: {error.strerror}; choose another root") from None
        with open(place / ".collecting", "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{place} is being collected by another process: wait for it, or collect into "
                    "another root"
                ) from None
            early = None if self._early is None else self._early[1]
            settings = {"seed": self._seed, "policy": self._trained[1], "early": early}
            file_of_settings = place / "collected.json"
            first = read_json(file_of_settings) if file_of_settings.is_file() else settings
            differ = [
                f"{key} {first.get(key)}" for key in settings if first.get(key) != settings[key]
            ]
            if differ:
                raise UserError(
                    f"{place} was collected with {', '.join(differ)}: ask for the same, or collect "
                    "into another root"
                )
            write_json(file_of_settings, settings)
            yield

    def _collect(
        self, name: str, plan: Recipe, split: str, source: Source, direction: int, target: int
    ) -> None:
        episodes = [e for info in known_shards(self._root, name, split) for e in info.episodes]
        same = [e for e in episodes if e[3] == direction and e[4] == source.scenario]
        have = sum(length for _, length, *_ in same)
        missing = target - have
        if missing < SHORTEST:
            return
        count = math.ceil(missing / plan.length)
        worlds = min(WORLDS, count)
        names = (name, split, source.scenario, direction, have)
        seed = derive(self._seed, *names) % 2**63
        driver, policy = self._driver(source, seed)
        title = f"{name} {split} {source.scenario} {DIRECTIONS[direction]}"
        env = RacingVectorEnv(
            worlds,
            replace(WORLD, direction=DIRECTIONS[direction], tracks=plan.tracks),
            self._reward,
            seed=seed,
            split=TRACKS[split],
            track_seeds=_fresh_first(episodes, seed) if split == "probe" else None,
            endings=self._endings,
        )
        try:
            with ShardWriter(self._root, name, split, self._attributes(policy, plan)) as writer:
                collect(
                    env,
                    driver,
                    writer,
                    frames=missing,
                    scenario=source.scenario,
                    direction=direction,
                    length=math.ceil(missing / count),
                    warmup=plan.warmup,
                    seed=seed,
                    progress=lambda rows: self._report(title, rows, missing),
                )
        finally:
            env.close()

    def _driver(self, source: Source, seed: int) -> tuple[Policy, str]:
        """The policy of a source, and its name in the shards.

        All cars of a batch draw from one sequence, as they did when the ladder's data sets were
        first collected: the same recipe gives the same rows.
        """
        if source.driver != POLICY:
            policy = make_scenario(
                source.driver, noise=source.noise, batch_seed=seed, pace=source.pace
            )
            return policy, f"{source.driver} pace={source.pace:g} noise={source.noise:g}"
        early = source.early and self._early is not None
        policy, content = self._early if early else self._trained
        noise = 0.1 if early else source.noise
        name = f"sha256:{content} noise={noise:g}"
        return ActionNoise(PerTick(policy), noise, batch_seed=seed), name

    def _attributes(self, policy: str, plan: Recipe) -> Attributes:
        return Attributes(
            environment=asdict(replace(WORLD, direction="both", tracks=plan.tracks)),
            reward=asdict(self._reward),
            endings=asdict(self._endings),
            camera=describe_camera(WORLD.size),
            action_repeat=WORLD.action_repeat,
            policy=policy,
            code=self._code,
        )

    def _choose(self, name: str, plan: Recipe, split: str) -> None:
        """Copy the episodes of the selection once; the policy of its shards names it."""
        rule = plan.selection
        label = f"selection:{rule.dataset}"
        data = DataSet(self._root, rule.dataset, split, check=False)
        chosen = choose_episodes(data, rule.accepts, round(rule.share * data.rows))
        shards = known_shards(self._root, name, split)
        earlier = [shard for shard in shards if shard.attributes.policy == label]
        if earlier:
            if sum(len(shard.episodes) for shard in earlier) != len(chosen):
                raise UserError(
                    f"{self._root / name} was chosen from a smaller {rule.dataset}: remove it and "
                    "collect again"
                )
            return
        attributes = self._attributes(label, plan)
        # In one shard, which is there or not, so that a killed copy starts anew.
        with ShardWriter(self._root, name, split, attributes, max_rows=data.rows) as writer:
            copy_episodes(data, chosen, writer)


def load_hashed(path: Path) -> tuple[Policy, str]:
    """The policy in a checkpoint, and the SHA-256 of its file."""
    import torch  # late: it takes seconds to start

    from ppo.evaluate import load_policy

    return load_policy(path, dtype=torch.float64), sha256_file(path)


def _fresh_first(episodes: list[tuple], seed: int) -> list[int]:
    """Probe tracks in random order, those that no episode has yet before the others."""
    first, last = SPLITS["probe"]
    tracks = np.random.default_rng(seed).permutation(np.arange(first, last + 1))
    used = {track for _, _, track, *_ in episodes}
    return sorted(tracks.tolist(), key=lambda track: track in used)
