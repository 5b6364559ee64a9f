"""Where the simulator's time goes, here and by prediction on CPUs that are not here."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from common import cli
from common.runs import Run, timestamped
from common.schema import config_class

DESCRIPTION = """Take a step of the simulator apart.

    python scripts/profile_env.py            CPU time of every part, and machine code for other CPUs
    python scripts/profile_env.py tick=20    the same in CarRacing's zoom of the first second

Times are CPU time of this thread, the least of several repeats, so that other programs disturb them
little. The loops over a row of pixels are also compiled for other CPUs; where llvm-mca is installed
(package llvm), it predicts their cycles for LANES pixels. docs/speed.md says what the figures mean.
"""

SLOW = ("zmm", "vpmullq", "gather", "scatter", "div")
"""What no CPU's code for a row should hold: 512-bit registers, 64-bit products, and the like."""


@config_class
class Settings:
    """The settings of the command.

    Attributes:
        num_envs: worlds in the batch.
        tick: engine tick of the states that are timed.
        repeats: repeats, of which the fastest counts.
        cpus: CPUs to compile for, by LLVM's names.
        run_root: where the run directory goes.
    """

    num_envs: int = 32
    tick: int = 300
    repeats: int = 9
    cpus: str = "haswell,skylake-avx512,icelake-server,sapphirerapids,znver2,znver3,znver4"
    run_root: str = "runs"

    def __post_init__(self) -> None:
        cli.check_ranges(self, num_envs=(1, 1024), tick=(1, 1000), repeats=(1, 100))


def times(settings: Settings) -> dict[str, float]:
    """Microseconds of CPU time per frame and part."""
    import numpy as np

    from envs.racing import EnvConfig, RacingVectorEnv
    from envs.racing.drivers import CentrelineDriver

    driver, is_first = CentrelineDriver(), np.zeros(settings.num_envs, bool)
    carry = driver.initial(settings.num_envs)
    env = RacingVectorEnv(settings.num_envs, EnvConfig(preset="carracing"), seed=1)
    _, info = env.reset()
    for _ in range(settings.tick):
        action, carry = driver.act(carry, driver.spec.gather(info, settings.num_envs), is_first)
        _, _, _, _, info = env.step(action)
    engine = env.engine
    start = engine.snapshot()
    calls = 40
    actions = action.astype(np.float64).reshape(settings.num_envs, 1, 3)

    def least(task: Callable[[], Any]) -> float:
        best = float("inf")
        for _ in range(settings.repeats):
            engine.restore(start, engine.tracks)
            begin = time.thread_time()
            for _ in range(calls):
                task()
            best = min(best, time.thread_time() - begin)
        return best / calls / settings.num_envs * 1e6

    measured = {
        "draw": least(lambda: engine.draw(env.frames)),
        "tick": least(lambda: engine.step(actions)),
        "telemetry": least(engine.telemetry),
        "step": least(lambda: env.step(action)),
    }
    env.close()
    return measured


def row_code(cpu: str) -> str:
    """Machine code of the loops over a row, as LLVM writes it for a CPU."""
    import llvmlite.binding as llvm
    import numba
    import numpy as np

    from envs.racing.pixels.sample import inner_addresses, look_up_rgb

    @numba.njit(nogil=True, _nrt=False)
    def row(line, u, v, du, dv, height, base, texture, lut, out):
        lines = line.ctypes.data
        inner_addresses(lines, len(line), u, v, du, dv, height, base)
        look_up_rgb(lines, len(line), texture.ctypes.data, lut.ctypes.data, out.ctypes.data)

    line, texture, lut = np.zeros(96, np.uint32), np.zeros(9, np.uint16), np.zeros(9, np.uint32)
    arguments = line, 0, 0, 0, 0, 1, 0, texture, lut, np.zeros(96 * 3, np.uint8)
    row.compile(tuple(numba.typeof(value) for value in arguments))
    (ir,) = row.inspect_llvm().values()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=cpu, opt=3, codemodel="default")
    code = machine.emit_assembly(llvm.parse_assembly(ir))
    begin = code.index(":\n", code.index(".globl"))
    return code[begin : code.index("\tret", begin)]


def loops(code: str) -> dict[str, str]:
    """The innermost loops by what they do: blocks that jump back to their own label."""
    found = {}
    for label, body in re.findall(r"^(\.LBB\w+):\n((?:[ \t].*\n)+)", code, re.MULTILINE):
        if re.search(rf"\tj\w+\t{re.escape(label)}$", body, re.MULTILINE):
            if "vpmull" in body:
                found["addresses"] = body
            elif body.count("movzwl") >= 8:
                found["look-ups"] = body
    return found


def pixels(name: str, body: str) -> int:
    """Pixels of one turn of a loop, which LLVM may have unrolled."""
    from envs.racing.pixels.sample import LANES

    return body.count("movzwl") if name == "look-ups" else LANES * body.count("vpmulld")


def predicted(body: str, cpu: str) -> float | None:
    """Cycles of one turn of a loop by llvm-mca, or None where it does not know."""
    command = ["llvm-mca", "-mtriple=x86_64", f"-mcpu={cpu}", "-iterations=100"]
    done = subprocess.run(command, input=body, capture_output=True, text=True)
    cycles = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    return int(cycles[1]) / 100 if cycles else None


def code_for(cpus: list[str]) -> list[dict[str, Any]]:
    """A row per CPU: slow instructions in its code, and cycles per eight pixels of both loops."""
    rows = []
    for cpu in cpus:
        code = row_code(cpu)
        row: dict[str, Any] = {"cpu": cpu, "slow": sum(code.count(name) for name in SLOW)}
        for name, body in loops(code).items():
            cycles = predicted(body, cpu) if shutil.which("llvm-mca") else None
            row[name] = cycles and 8 * cycles / pixels(name, body)
        rows.append(row)
    return rows


def main() -> None:
    settings = cli.parse(Settings, DESCRIPTION)
    run = Run.create(settings.run_root, timestamped("profile_env"), asdict(settings), seeds={})
    measured = times(settings)
    cli.table(["part", "us of CPU time per frame"], list(measured.items()))
    rows = code_for([cpu for cpu in settings.cpus.split(",") if cpu])
    columns = ["cpu", "slow", "addresses", "look-ups"]
    cli.table(
        ["CPU", "slow instructions", "addresses, cycles per 8 pixels", "look-ups"],
        [[row.get(name, "") for name in columns] for row in rows],
    )
    run.write_json("details.json", {"parts_us_per_frame": measured, "cpus": rows})
    slow = sum(row["slow"] for row in rows)
    cli.finish(measured | {"slow_instructions": slow}, run)


if __name__ == "__main__":
    cli.run_main(main)
