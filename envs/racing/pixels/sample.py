"""The two inner loops of a frame: a row of texel addresses, then a row of look-ups.

They are written in LLVM's vector types, `LANES` 32-bit integers wide, since Numba widens every
integer product to 64 bits. LLVM then multiplies 64-bit lanes in 512-bit registers (`vpmullq zmm`),
which costs an Intel server core more than the look-ups themselves (docs/speed.md). Eight 32-bit
lanes are one 256-bit register on every x86 CPU, and two on ARM.

Fixed point: u and v are texel coordinates times 2^16, in 32 bits; du and dv their steps per pixel.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from envs.racing.pixels.texture import PERIOD, STRIP_BITS

LANES = 8
"""Pixels at a time; every frame size is a multiple."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_VECTOR, _SHORTS = ir.VectorType(_I32, LANES), ir.VectorType(_I16, LANES)


def _every(value: int, vector=_VECTOR) -> ir.Constant:
    return ir.Constant(vector, [value] * LANES)


def _spread(builder, value) -> ir.Value:
    """A vector with the scalar in every lane."""
    undefined = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, _every(0))


def _narrow(builder, values) -> list[ir.Value]:
    return [builder.trunc(value, _I32) for value in values]


def _ramp(builder, start, step) -> tuple[ir.Value, ir.Value]:
    """A stack slot with start, start + step, ..., and the increment for the next lanes."""
    steps = ir.Constant(_VECTOR, list(range(LANES)))
    first = builder.add(_spread(builder, start), builder.mul(steps, _spread(builder, step)))
    slot = cgutils.alloca_once_value(builder, first)
    return slot, _spread(builder, builder.mul(step, ir.Constant(_I32, LANES)))


def _advance(builder, ramp) -> ir.Value:
    slot, step = ramp
    value = builder.load(slot)
    builder.store(builder.add(value, step), slot)
    return value


def _for_blocks(builder, size):
    return cgutils.for_range(builder, builder.udiv(size, ir.Constant(_I64, LANES)))


def _in_texture(builder, u, v, last_row, base) -> ir.Value:
    """Addresses of texels in a texture of strips; u, v are whole texels (see `texture`)."""
    strip = builder.ashr(u, _every(STRIP_BITS))
    row = builder.add(builder.mul(strip, last_row), v)
    return builder.add(builder.add(builder.shl(row, _every(STRIP_BITS)), u), base)


def _in_pattern(builder, u, v) -> ir.Value:
    """Addresses in the repeating grass pattern at the texture's beginning."""
    column, row = (
        builder.urem(
            builder.trunc(builder.lshr(value, _every(16)), _SHORTS), _every(PERIOD, _SHORTS)
        )
        for value in (u, v)
    )
    at = builder.add(builder.mul(row, _every(PERIOD, _SHORTS)), column)
    return builder.zext(at, _VECTOR)


def _last_row(builder, height) -> ir.Value:
    # 16 bits wide, so that LLVM may take a 16-bit multiplication, Intel's fastest.
    last = builder.sub(builder.trunc(height, _I16), ir.Constant(_I16, 1))
    return _spread(builder, builder.sext(last, _I32))


@intrinsic
def inner_addresses(_context, line, size, u, v, du, dv, height, base):
    """Addresses of a row that lies completely in the texture.

    line: address of (size,) uint32, written. The others are int64; only their low 32 bits count.
    """

    def generate(_context, builder, _signature, arguments):
        line, size, u, v, du, dv, height, base = arguments
        u, v, du, dv, base = _narrow(builder, (u, v, du, dv, base))
        last_row, base = _last_row(builder, height), _spread(builder, base)
        columns, rows = _ramp(builder, u, du), _ramp(builder, v, dv)
        out = builder.inttoptr(line, _VECTOR.as_pointer())
        with _for_blocks(builder, size) as block:
            x = builder.ashr(_advance(builder, columns), _every(16))
            y = builder.ashr(_advance(builder, rows), _every(16))
            at = _in_texture(builder, x, y, last_row, base)
            builder.store(at, builder.gep(out, [block.index]), align=4)

    return types.void(*[types.int64] * 8), generate


@intrinsic
def edge_addresses(_context, line, size, u, v, du, dv, height, width, base, shift_u, shift_v):
    """Addresses of a row that leaves the texture: beyond it the grass pattern repeats.

    shift_u, shift_v: what to add to u and v to be at the same place in the pattern.
    """

    def generate(_context, builder, _signature, arguments):
        line, size, u, v, du, dv, height, width, base, shift_u, shift_v = arguments
        last_row = _last_row(builder, height)
        narrow = _narrow(builder, (u, v, du, dv, height, width, base, shift_u, shift_v))
        u, v, du, dv, height, width, base, shift_u, shift_v = narrow
        spread = [_spread(builder, value) for value in (height, width, base, shift_u, shift_v)]
        height, width, base, shift_u, shift_v = spread
        columns, rows = _ramp(builder, u, du), _ramp(builder, v, dv)
        out = builder.inttoptr(line, _VECTOR.as_pointer())
        with _for_blocks(builder, size) as block:
            u, v = _advance(builder, columns), _advance(builder, rows)
            x, y = builder.ashr(u, _every(16)), builder.ashr(v, _every(16))
            # As unsigned numbers, negative coordinates are very large.
            inside = builder.and_(
                builder.icmp_unsigned("<", x, width), builder.icmp_unsigned("<", y, height)
            )
            at = _in_texture(builder, x, y, last_row, base)
            target = builder.gep(out, [block.index])
            builder.store(at, target, align=4)
            some_outside = builder.icmp_unsigned(
                "!=", builder.bitcast(inside, ir.IntType(LANES)), ir.Constant(ir.IntType(LANES), -1)
            )
            with builder.if_then(some_outside):
                pattern = _in_pattern(builder, builder.add(u, shift_u), builder.add(v, shift_v))
                builder.store(builder.select(inside, at, pattern), target, align=4)

    return types.void(*[types.int64] * 11), generate


def _look_up(store, pixel_bytes: int):
    """Body of the look-up loops; `store(builder, colour, pointer, last)` writes one pixel."""

    def generate(_context, builder, _signature, arguments):
        line, size, texture, lut, out = arguments
        pairs = builder.inttoptr(line, _I64.as_pointer())
        texels = builder.inttoptr(texture, _I16.as_pointer())
        colours = builder.inttoptr(lut, _I32.as_pointer())
        target = builder.inttoptr(out, _I8.as_pointer())

        def block(index, last: bool) -> None:
            first = builder.mul(index, ir.Constant(_I64, LANES // 2))
            begin = builder.mul(index, ir.Constant(_I64, LANES * pixel_bytes))
            for pair in range(LANES // 2):
                # The loop is limited by loads, so one load brings two addresses.
                at = builder.add(first, ir.Constant(_I64, pair))
                both = builder.load(builder.gep(pairs, [at]))
                low = builder.zext(builder.trunc(both, _I32), _I64)
                high = builder.lshr(both, ir.Constant(_I64, 32))
                for half, address in enumerate((low, high)):
                    code = builder.zext(builder.load(builder.gep(texels, [address])), _I64)
                    colour = builder.load(builder.gep(colours, [code]))
                    pixel = 2 * pair + half
                    offset = builder.add(begin, ir.Constant(_I64, pixel * pixel_bytes))
                    pointer = builder.gep(target, [offset])
                    store(builder, colour, pointer, last and pixel == LANES - 1)

        end = builder.sub(builder.udiv(size, ir.Constant(_I64, LANES)), ir.Constant(_I64, 1))
        with cgutils.for_range(builder, end) as loop:
            block(loop.index, False)
        block(end, True)

    return types.void(*[types.int64] * 5), generate


def _store_rgb(builder, colour, pointer, last: bool) -> None:
    if not last:
        # Four bytes at once: the fourth belongs to the next pixel, which comes after.
        builder.store(colour, builder.bitcast(pointer, _I32.as_pointer()), align=1)
        return
    low = builder.trunc(colour, _I16)
    builder.store(low, builder.bitcast(pointer, _I16.as_pointer()), align=1)
    high = builder.trunc(builder.lshr(colour, ir.Constant(_I32, 16)), _I8)
    builder.store(high, builder.gep(pointer, [ir.Constant(_I64, 2)]))


def _store_grey(builder, colour, pointer, last: bool) -> None:
    builder.store(builder.trunc(colour, _I8), pointer)


@intrinsic
def look_up_rgb(_context, line, size, texture, lut, out):
    """Write a row of RGB pixels: lut[texture[line[c]]] for c in range(size).

    line, texture, lut, out: int64 addresses of uint32, uint16, uint32 and uint8 arrays.
    """
    return _look_up(_store_rgb, 3)


@intrinsic
def look_up_grey(_context, line, size, texture, lut, out):
    """`look_up_rgb` of one byte per pixel."""
    return _look_up(_store_grey, 1)
