"""Rows of texel addresses and look-ups, against NumPy; their machine code on other CPUs."""

import platform

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest

from envs.racing.pixels.render import FAR
from envs.racing.pixels.sample import (
    edge_addresses,
    inner_addresses,
    look_up_grey,
    look_up_rgb,
)
from envs.racing.pixels.texture import PERIOD, STRIP, _into_strips
from envs.racing.sim.kernel import kernel

SIZE, HEIGHT, WIDTH, BASE = 64, 200, 150, 7


@kernel(counted=False)
def inner(line, u, v, du, dv, height, base):
    inner_addresses(line.ctypes.data, len(line), u, v, du, dv, height, base)


@kernel(counted=False)
def edge(line, u, v, du, dv, height, width, base, shift_u, shift_v):
    edge_addresses(line.ctypes.data, len(line), u, v, du, dv, height, width, base, shift_u, shift_v)


@kernel(counted=False)
def look_up(line, texture, lut, out, rgb):
    lines, texels, colours = line.ctypes.data, texture.ctypes.data, lut.ctypes.data
    if rgb:
        look_up_rgb(lines, len(line), texels, colours, out.ctypes.data)
    else:
        look_up_grey(lines, len(line), texels, colours, out.ctypes.data)


def points(u, v, du, dv):
    """Whole texel coordinates of a row, without any limit to the arithmetic."""
    c = np.arange(SIZE)
    return (u + c * du) >> 16, (v + c * dv) >> 16


def in_strips(x, y):
    return BASE + (x // STRIP * HEIGHT + y) * STRIP + x % STRIP


def test_strips_hold_every_texel_at_its_address():
    rows = np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(HEIGHT, WIDTH)
    out = np.zeros(BASE + -(-WIDTH // STRIP) * STRIP * HEIGHT, np.uint16)
    _into_strips(rows, out[BASE:])
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    assert (out[in_strips(x, y)] == rows).all()


def test_a_row_in_the_texture():
    line = np.zeros(SIZE, np.uint32)
    row = (3 << 16) + 999, (190 << 16) + 5, 2 * 65536 + 321, -65536 - 77
    inner(line, *row, HEIGHT, BASE)
    assert (line == in_strips(*points(*row))).all()


@pytest.mark.parametrize(
    "row",
    [
        (-5 << 16, 10 << 16, 3 << 16, 1 << 14),
        (140 << 16, 195 << 16, 40_000, 70_000),
        (-100 << 16, -100 << 16, 1, -1),
        ((WIDTH << 16) - 1, 0, -(3 << 16), 3 << 16),
        (-FAR, -FAR, 2 << 16, 2 << 16),
    ],
)
def test_a_row_that_leaves_the_texture_goes_on_in_the_grass_pattern(row):
    line = np.zeros(SIZE, np.uint32)
    # In units of the pattern: coordinates from 0 on, whatever the texture's place.
    shift_u, shift_v = (PERIOD << 16) * 200 + 1234, (PERIOD << 16) * 200 + 77
    edge(line, *row, HEIGHT, WIDTH, BASE, shift_u, shift_v)
    x, y = points(*row)
    inside = (x >= 0) & (x < WIDTH) & (y >= 0) & (y < HEIGHT)
    px, py = points(row[0] + shift_u, row[1] + shift_v, row[2], row[3])
    pattern = (py % 65536 % PERIOD) * PERIOD + px % 65536 % PERIOD
    assert (line == np.where(inside, in_strips(x, y), pattern)).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_look_ups_write_their_row_and_nothing_beyond(channels):
    rng = np.random.default_rng(0)
    line = rng.integers(0, 500, SIZE, np.uint32)
    texture = rng.integers(0, 300, 500, np.uint16)
    colours = rng.integers(0, 256, (300, 4), np.uint8)
    colours[:, 3] = 0
    out = np.full(SIZE * channels + 8, 77, np.uint8)
    look_up(line, texture, colours.view(np.uint32).ravel(), out, channels == 3)
    assert (out[: SIZE * channels] == colours[texture[line], :channels].ravel()).all()
    assert (out[SIZE * channels :] == 77).all()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM knows the host's family only")
@pytest.mark.parametrize("cpu", ["haswell", "skylake-avx512", "icelake-server", "znver2", "znver4"])
def test_no_cpu_gets_wide_registers_or_64_bit_products(cpu):
    """What the figures of docs/speed.md rest on, for CPUs that are not here."""
    line = np.zeros(SIZE, np.uint32)
    row = 0, 0, 0, 0
    fresh = [
        _assembly(inner.py_func, cpu, line, *row, HEIGHT, BASE),
        _assembly(edge.py_func, cpu, line, *row, HEIGHT, WIDTH, BASE, 0, 0),
    ]
    for code in fresh:
        assert "vpmulld" in code and "ymm" in code
        for slow in ("zmm", "vpmullq", "gather", "scatter", "div"):
            assert slow not in code, f"{slow} on {cpu}"


def _assembly(function, cpu, *arguments):
    """Machine code of a function's own symbol as LLVM would write it for another CPU."""
    compiled = numba.njit(nogil=True, _nrt=False)(function)
    compiled(*arguments)
    (ir,) = compiled.inspect_llvm().values()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=cpu, opt=3, codemodel="default")
    code = machine.emit_assembly(llvm.parse_assembly(ir))
    start = code.index(":\n", code.index(".globl"))
    return code[start : code.index("ret", start)]
