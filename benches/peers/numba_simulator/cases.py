"""Inputs and launch shapes of the kernels, and numpy's results of the same work."""

import ast
import math
import pathlib
import re
from collections import namedtuple

import kernels
import numpy as np

F = np.float32
SIZES = pathlib.Path(__file__).resolve().parents[2] / "cpu_device" / "sizes.rs"

# A kernel's work: its size, launch shape, arguments, the index of the output, and numpy's result.
Case = namedtuple("Case", "size kernel grid block args result want tolerance shared", defaults=(0.0, 0))


def small_sizes():
    """Parses the sizes of `SMALL` in `sizes.rs`, which all programs share."""
    body = re.search(r"SMALL: Sizes = Sizes \{(.*?)\}", SIZES.read_text(), re.DOTALL).group(1)
    return {name: ast.literal_eval(size) for name, size in re.findall(r"(\w+): (.+),\n", body)}


SMALL = small_sizes()


def floats(count, skipped=0):
    return ((np.arange(skipped, skipped + count) * 7919 % 61) / 16 + 0.125).astype(F)


def mandelbrot():
    width, height, limit = SMALL["mandelbrot"]
    cx = np.arange(width, dtype=F) * 3 / F(width) - 2
    cy = (np.arange(height, dtype=F) * 2 / F(height) - 1)[:, None]
    zx, zy = np.zeros((2, height, width), F)
    want = np.zeros((height, width), np.uint32)
    inside = np.ones((height, width), bool)
    for _ in range(limit):
        inside &= zx * zx + zy * zy < 4
        want += inside
        zx, zy = np.where(inside, (zx * zx - zy * zy + cx, 2 * zx * zy + cy), (zx, zy))
    args = [np.zeros_like(want), width, height, limit]
    size, grid = f"{width} x {height} x {limit}", (width // 16, height // 16)
    return Case(size, kernels.mandelbrot, grid, (16, 16), args, 0, want)


def matmul(kernel):
    n = SMALL["matmul"]
    a, b = floats(n * n).reshape(n, n), floats(n * n, 3).reshape(n, n)
    args = [a, b, np.zeros((n, n), F)]
    return Case(f"{n} x {n}", kernel, (n // 16, n // 16), (16, 16), args, 2, a.astype(float) @ b, 1e-5)


def vecadd():
    n = SMALL["vecadd"]
    a = floats(n)
    return Case(str(n), kernels.vecadd, n // 256, 256, [a, a, np.zeros_like(a), n], 2, a + a)


def transpose():
    n = SMALL["transpose"]
    a = floats(n * n).reshape(n, n)
    return Case(f"{n} x {n}", kernels.transpose, (n // 32, n // 32), (32, 8), [a, np.zeros_like(a)], 1, a.T)


def reduce():
    n, blocks = SMALL["reduce"]
    want = np.full(blocks, 0.25 * n / blocks)
    args = [np.full(n, 0.25, F), np.zeros(blocks, F), n]
    return Case(f"{n} in {blocks} blocks", kernels.reduce, blocks, 256, args, 1, want, 1e-6, 4 * 256)


def histogram():
    n, blocks = SMALL["histogram"]
    x = (np.arange(n, dtype=np.uint64) * 2654435761 % 2**32 >> 24).astype(np.uint8)
    args = [x, np.zeros(256, np.uint32), n]
    want = np.bincount(x, minlength=256)
    return Case(f"{n} in {blocks} blocks", kernels.histogram, blocks, 256, args, 1, want)


def stencil():
    n = SMALL["stencil"]
    u = floats(n * n).reshape(n, n)
    center, side = F(0.5), F(0.125)
    want = u.copy()
    sides = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    want[1:-1, 1:-1] = center * u[1:-1, 1:-1] + side * sides
    args = [u, np.zeros_like(u), center, side]
    return Case(f"{n} x {n}", kernels.stencil, (n // 16, n // 16), (16, 16), args, 1, want, 1e-6)


def softmax():
    rows, columns = SMALL["softmax"]
    x = floats(rows * columns).reshape(rows, columns)
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    return Case(f"{rows} x {columns}", kernels.softmax, rows, 256, [x, np.zeros_like(x)], 1, want, 1e-5)


def nbody():
    n = SMALL["nbody"]
    x = floats(4 * n).reshape(n, 4)
    d = x[None, :, :3].astype(float) - x[:, None, :3]
    weights = x[:, 3] / ((d * d).sum(2) + 1e-3) ** 1.5
    want = np.pad((weights[:, :, None] * d).sum(1), ((0, 0), (0, 1)))
    return Case(str(n), kernels.nbody, n // 256, 256, [x, np.zeros_like(x), n], 1, want, 1e-3)


def black_scholes():
    n = SMALL["black_scholes"]
    spot, strike, years = floats(n, 7), floats(n, 3), floats(n)
    s, k, t = (x.astype(float) for x in (spot, strike, years))
    d1 = (np.log(s / k) + (0.02 + 0.5 * 0.3**2) * t) / (0.3 * np.sqrt(t))
    cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
    want = s * cdf(d1) - k * np.exp(-0.02 * t) * cdf(d1 - 0.3 * np.sqrt(t))
    args = [spot, strike, years, np.zeros_like(spot), n]
    return Case(str(n), kernels.black_scholes, n // 256, 256, args, 3, want, 1e-5)


def pcg():
    n, rounds = SMALL["pcg"]
    x = np.arange(n, dtype=np.uint32)
    want = x.copy()
    for _ in range(rounds):
        want = want * np.uint32(747796405) + np.uint32(2891336453)
        word = (want >> ((want >> 28) + 4) ^ want) * np.uint32(277803737)
        want = word >> 22 ^ word
    return Case(f"{n} x {rounds}", kernels.pcg, n // 256, 256, [x, rounds, n], 0, want)


CASES = {
    "mandelbrot": mandelbrot,
    "matmul_naive": lambda: matmul(kernels.matmul_naive),
    "matmul_tiled": lambda: matmul(kernels.matmul_tiled),
    "vecadd": vecadd,
    "transpose": transpose,
    "reduce": reduce,
    "histogram": histogram,
    "stencil": stencil,
    "softmax": softmax,
    "nbody": nbody,
    "black_scholes": black_scholes,
    "pcg": pcg,
}
