import os
import signal
import time
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from common.errors import UserError
from common.files import to_plain
from common.runs import Run
from common.torch.session import Session
from envs.racing.config import EnvConfig
from ppo import checkpoint
from ppo.algorithm import copied
from ppo.config import EvaluationConfig, PPOConfig, PPOTrainConfig
from ppo.evaluate import load_policy
from ppo.trainer import PPOTrainer
from ppo.training_run import COMMAND
from ppo.validation import Validation
from tests.ppo.toys import NETWORK, SPEC, ToyEnv, cpu

ENV = EnvConfig(
    size=SPEC.size, grey=SPEC.grey, frame_stack=SPEC.frame_stack, action_repeat=SPEC.action_repeat
)
PPO = PPOConfig(
    num_envs=3, num_steps=8, epochs=2, minibatches=2, micro_batch=8, network=NETWORK,
    weight_average=0.0,
)  # fmt: skip
TICKS = 3 * 8 * SPEC.action_repeat  # of one update
TIMES = ("seconds", "ticks_per_second", "decisions_per_second", "collect_seconds", "update_seconds")


def config(updates=6, **changes):
    base = PPOTrainConfig(
        env=ENV,
        ppo=PPO,
        total_timesteps=updates * TICKS,
        device="cpu",
        threads=1,
        display=False,
        checkpoint_every=2 * TICKS,
        evaluation=EvaluationConfig(every=2 * TICKS, validation_tracks=1),
    )
    return replace(base, **changes)


def trainer(config, root, validate=None, name="run", background=False):
    path = root / name
    settings = to_plain(asdict(config), finite=False)
    run = Run(path) if path.exists() else Run.create(root, name, settings, seeds={})
    env = ToyEnv(length=(5, 3, 7), terminate=[1])
    validation = validate and Validation(validate, SPEC, config.ppo.network, background)
    return PPOTrainer(config, run, cpu(), env, validation=validation, about={"seed": config.seed})


def session(trainer):
    """One around a trainer whose run directory is there already."""
    made = Session(COMMAND, trainer.config, [])
    made.run = trainer.run
    return made


def resumed(trainer):
    made = session(trainer)
    made.resumed = True
    made.restore(trainer, checkpoint.load)
    return made


def fit(trainer, inside=None):
    (inside or session(trainer)).fit(trainer)
    return trainer


def last(trainer):
    return trainer.run.checkpoints / "last.pt"


def state(trainer):
    return {name: value.clone() for name, value in trainer.policy.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def summary(score):
    return {"native_return": {"mean": score, "low": 0, "high": 0, "n": 1}}


def scores(*values):
    """A stand-in for the evaluator: the given scores one after another."""
    queue = list(values)
    return lambda driver: summary(queue.pop(0))


def weights_as_score(driver):
    """Another, that takes a while; it must be picklable."""
    time.sleep(0.2)
    return summary(sum(p.double().sum().item() for p in driver.policy.parameters()))


def killed(driver):
    os.kill(os.getpid(), signal.SIGKILL)


def complains(driver):
    raise UserError("no such track")


def validated(trainer):
    """update -> score, as logged."""
    rows = trainer.run.metrics()
    key = "validation/native_return"
    return {row["updates"]: row[key] for row in rows if key in row}


@pytest.mark.parametrize("changes", [{}, {"lr_schedule": "adaptive", "weight_average": 0.7}])
def test_a_resumed_run_ends_as_if_never_interrupted(tmp_path, changes):
    settings = config(ppo=replace(PPO, **changes))
    straight = fit(trainer(settings, tmp_path, scores(1, 2, 3), "straight"))

    torn = trainer(settings, tmp_path, scores(1, 2, 3), "torn")
    crash = torn.train_once

    def until_crash():
        if torn.counters.updates == 3:
            raise KeyboardInterrupt
        return crash()

    torn.train_once = until_crash
    with pytest.raises(KeyboardInterrupt):
        fit(torn)
    saved = checkpoint.load(last(torn))
    assert saved["about"]["updates"] == 2  # one update of work is lost, and will be done again
    assert len(torn.run.metrics()) == saved["training"]["session"]["rows"] + 1

    again = trainer(settings, tmp_path, scores(2, 3), "torn")
    inside = resumed(again)
    torch.manual_seed(12345)
    again.load_state_dict(saved["training"]["learner"])
    fit(again, inside)

    assert same(state(straight), state(again))
    rows = [
        [{name: v for name, v in row.items() if name not in TIMES} for row in rows]
        for rows in (straight.run.metrics(), again.run.metrics())
    ]
    assert len(rows[0]) == 9  # six updates, three validations
    assert rows[0] == rows[1]
    final = [checkpoint.load(last(done)) for done in (straight, again)]
    moments = [
        content["training"]["learner"]["streams"][0]["scaler"]["moments"] for content in final
    ]
    assert moments[0] == moments[1]
    assert same(final[0]["policy"], final[1]["policy"])


def test_a_verdict_that_came_after_the_checkpoint_is_logged_once(tmp_path):
    """The snapshot is in the checkpoint, to be judged; its row, already written, must go."""
    settings = config(8)
    torn = trainer(settings, tmp_path, weights_as_score, "torn", background=True)
    train_once = torn.train_once

    def until_crash():
        if torn.counters.updates == 4:
            raise KeyboardInterrupt
        row = train_once()
        if torn.counters.updates == 3:  # the verdict about update 2 arrives only now
            torn._take_verdicts(inside, wait=True)
        return row

    torn.train_once = until_crash
    inside = session(torn)
    with pytest.raises(KeyboardInterrupt):
        fit(torn, inside)
    torn.validation.close()
    assert list(validated(torn)) == [2]
    saved = checkpoint.load(last(torn))
    assert len(saved["training"]["learner"]["validation"]) >= 1

    again = trainer(settings, tmp_path, weights_as_score, "torn", background=True)
    fit(again, resumed(again))
    again.validation.close()
    judged = [row["updates"] for row in again.run.metrics() if "validation/native_return" in row]
    assert len(judged) == len(set(judged)) and judged[0] == 2


def test_a_seed_decides_everything(tmp_path):
    first = fit(trainer(config(2), tmp_path, name="a"))
    again = fit(trainer(config(2), tmp_path, name="b"))
    other = fit(trainer(config(2, seed=2), tmp_path, name="c"))
    assert same(state(first), state(again))
    assert not same(state(first), state(other))


def test_validation_does_not_disturb_training(tmp_path):
    def validate(driver):
        frames = np.zeros((4, *SPEC.shape), np.uint8)
        driver.act(driver.initial(4), frames, np.ones(4, bool), deterministic=False)
        return summary(0.0)

    with_it = fit(trainer(config(4), tmp_path, validate, "a"))
    without = fit(trainer(config(4), tmp_path, None, "b"))
    assert same(state(with_it), state(without))


def test_the_best_checkpoint_is_the_one_that_validated_best(tmp_path):
    done = fit(trainer(config(8), tmp_path, scores(1.0, 5.0, 3.0, 4.0)))
    best = load_policy(done.best_checkpoint)
    assert best.about["updates"] == 4
    assert best.about["validation"]["native_return"]["mean"] == 5.0
    assert best.about["seed"] == done.config.seed
    assert "training" not in checkpoint.load(done.best_checkpoint)
    assert not same(best.policy.state_dict(), state(done))
    assert validated(done) == {2: 1.0, 4: 5.0, 6: 3.0, 8: 4.0}


def test_validation_in_the_background_gives_the_same(tmp_path):
    here = fit(trainer(config(8), tmp_path, weights_as_score, "a"))
    beside = trainer(config(8), tmp_path, weights_as_score, "b", background=True)
    fit(beside)
    beside.validation.close()
    assert same(state(here), state(beside))
    assert validated(here) == validated(beside) and len(validated(here)) == 4
    best = [load_policy(done.best_checkpoint) for done in (here, beside)]
    assert same(best[0].policy.state_dict(), best[1].policy.state_dict())
    assert best[0].about == {**best[1].about, "seconds": best[0].about["seconds"]}


def test_what_was_not_yet_judged_is_judged_after_a_resume(tmp_path):
    straight = fit(trainer(config(8), tmp_path, weights_as_score, "straight"))
    torn = trainer(config(8), tmp_path, weights_as_score, "torn")
    torn.validation.judged = lambda wait: []  # as if the other process were very slow
    inside = session(torn)
    save = inside.save

    def dies_after_saving(learner):
        save(learner)
        if torn.counters.updates == 4:
            raise KeyboardInterrupt

    inside.save = dies_after_saving
    with pytest.raises(KeyboardInterrupt):
        fit(torn, inside)
    saved = checkpoint.load(last(torn))
    waiting = saved["training"]["learner"]["validation"]
    assert [snapshot["row"]["updates"] for snapshot in waiting] == [2, 4]
    assert validated(torn) == {}
    again = trainer(config(8), tmp_path, weights_as_score, "torn")
    fit(again, resumed(again))
    assert validated(again) == validated(straight) and len(validated(straight)) == 4
    assert (
        load_policy(again.best_checkpoint).about["updates"]
        == (load_policy(straight.best_checkpoint).about["updates"])
    )


@pytest.mark.parametrize(
    ("validate", "message"), [(killed, r"died \(exit code -9\)"), (complains, "no such track")]
)
def test_a_failing_validation_process_ends_training(tmp_path, validate, message):
    broken = trainer(config(8), tmp_path, validate, background=True)
    with pytest.raises(UserError, match=message):
        fit(broken)
    broken.validation.close()


def test_the_last_checkpoint_has_the_final_weights(tmp_path):
    done = fit(trainer(config(3), tmp_path))
    assert same(load_policy(last(done)).policy.state_dict(), state(done))


def test_what_is_judged_and_kept_is_the_average_of_the_weights(tmp_path):
    judged = []

    def validate(driver):
        judged.append(copied(driver.policy.state_dict()))
        return summary(len(judged))

    settings = config(6, ppo=replace(PPO, weight_average=0.75))
    averaging = trainer(settings, tmp_path, validate)
    expected, at = state(averaging), []
    update = averaging.algorithm.update

    def watched(buffer):
        metrics = update(buffer)
        for name, weight in state(averaging).items():
            expected[name] = 0.75 * expected[name] + 0.25 * weight
        at.append({name: weight.clone() for name, weight in expected.items()})
        return metrics

    averaging.algorithm.update = watched
    fit(averaging)
    for average, number in zip(judged, (2, 4, 6), strict=True):
        torch.testing.assert_close(average, at[number - 1])
    for path in (averaging.best_checkpoint, last(averaging)):
        torch.testing.assert_close(load_policy(path).policy.state_dict(), at[-1])
    assert not same(at[-1], state(averaging))
    plain = fit(trainer(replace(settings, ppo=PPO), tmp_path, name="plain"))
    assert same(state(plain), state(averaging)), "training itself is not touched"


def test_rows_tell_how_it_goes(tmp_path):
    done = fit(trainer(config(2), tmp_path))
    first, second = done.run.metrics()
    assert first["ticks"] == TICKS and second["ticks"] == 2 * TICKS
    assert second["decisions"] == 2 * 3 * 8
    assert first["ppo/first_ratio_error"] < 2e-6
    # The noise's limit is lower now, and was so already while collecting.
    assert second["ppo/std_steer"] < 0.7 * first["ppo/std_steer"]
    assert second["ppo/first_ratio_error"] < 2e-6
    assert first["ppo/learning_rate"] == PPO.learning_rate
    assert second["ppo/learning_rate"] == pytest.approx(0.55 * PPO.learning_rate)
    assert 0 <= second["reward/steer"] == pytest.approx(second["reward/total"])
    assert 3 <= second["episode/length"] <= 7
    assert abs(first["action/steer_mean"]) < 0.5
    needed = {"policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm"}
    assert needed <= {key.removeprefix("ppo/") for key in first}


def test_a_failure_is_named_in_the_row_and_said_once(tmp_path):
    broken = trainer(config(3, checkpoint_every=10**9), tmp_path)
    with torch.no_grad():
        broken.policy.policy[-1].bias.copy_(torch.tensor([9.0, 9.0, -9.0]))
    said = []
    inside = session(broken)
    inside.say = said.append
    fit(broken, inside)
    rows = broken.run.metrics()
    assert all(row["diagnostics/steering_collapse"] > 0.9 for row in rows)
    assert all("diagnostics/throttle_saturation" in row for row in rows)
    assert sum("steering_collapse" in text for text in said) == 1


def test_a_diverging_run_stops_and_keeps_the_batch(tmp_path):
    from ppo.algorithm import TrainingDiverged

    broken = trainer(config(40), tmp_path)
    step = broken.env.step

    def poisoned(actions):
        observations, reward, *rest = step(actions)
        return observations, reward * float("nan"), *rest

    broken.env.step = poisoned
    with pytest.raises(TrainingDiverged, match="nonfinite"):
        fit(broken)
    batch = torch.load(broken.run.path / "nonfinite" / "rank0_5.pt", weights_only=True)
    assert batch["reward"].isnan().any()
    assert broken.run.metrics()[-1]["diagnostics/non_finite"] == 1.0
