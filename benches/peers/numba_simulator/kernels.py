"""The kernels of kernels/ and benches/cpu_device/kernels.cu, with the same algorithms, written for Numba."""

import math
import os

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"  # read when numba is imported

import numpy as np
from numba import cuda, float32, uint32

F = np.float32
# 32-bit constants: on a GPU, Numba makes a literal in a kernel a 64-bit float.
ZERO, HALF, ONE, TWO, THREE, FOUR = F(0), F(0.5), F(1), F(2), F(3), F(4)
SOFTENING, RATE, VOLATILITY, LOWEST = F(1e-3), F(0.02), F(0.3), F(-math.inf)
# Abramowitz and Stegun 26.2.17.
P, SCALE = F(0.2316419), F(0.39894228)
B1, B2, B3, B4, B5 = (F(b) for b in (0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429))


@cuda.jit
def mandelbrot(out, width, height, limit):
    x, y = cuda.grid(2)
    if x >= width or y >= height:
        return
    cx = F(x) * THREE / F(width) - TWO
    cy = F(y) * TWO / F(height) - ONE
    zx = ZERO
    zy = ZERO
    i = 0
    while i < limit and zx * zx + zy * zy < FOUR:
        t = zx * zx - zy * zy + cx
        zy = TWO * zx * zy + cy
        zx = t
        i += 1
    out[y, x] = i


@cuda.jit
def matmul_naive(a, b, c):
    column, row = cuda.grid(2)
    if row >= c.shape[0] or column >= c.shape[1]:
        return
    total = ZERO
    for i in range(a.shape[1]):
        total = cuda.fma(a[row, i], b[i, column], total)
    c[row, column] = total


@cuda.jit
def matmul_tiled(a, b, c):
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    column, row = cuda.grid(2)
    m, k = a.shape
    n = b.shape[1]
    total = ZERO
    for start in range(0, k, 16):
        tile_a[ty, tx] = a[row, start + tx] if row < m and start + tx < k else ZERO
        tile_b[ty, tx] = b[start + ty, column] if start + ty < k and column < n else ZERO
        cuda.syncthreads()
        for i in range(16):
            total = cuda.fma(tile_a[ty, i], tile_b[i, tx], total)
        cuda.syncthreads()
    if row < m and column < n:
        c[row, column] = total


@cuda.jit
def vecadd(a, b, out, n):
    i = cuda.grid(1)
    if i < n:
        out[i] = a[i] + b[i]


@cuda.jit
def transpose(x, out):
    tile = cuda.shared.array((32, 33), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    height, width = x.shape
    column = cuda.blockIdx.x * 32 + tx
    row = cuda.blockIdx.y * 32 + ty
    for i in range(0, 32, 8):
        if column < width and row + i < height:
            tile[ty + i, tx] = x[row + i, column]
    cuda.syncthreads()
    column = cuda.blockIdx.y * 32 + tx
    row = cuda.blockIdx.x * 32 + ty
    for i in range(0, 32, 8):
        if column < height and row + i < width:
            out[row + i, column] = tile[tx, ty + i]


@cuda.jit
def reduce(x, partials, n):
    tile = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    total = ZERO
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        total += x[i]
    tile[t] = total
    cuda.syncthreads()
    width = cuda.blockDim.x
    while width > 1:
        half = (width + 1) // 2
        if t + half < width:
            tile[t] += tile[t + half]
        cuda.syncthreads()
        width = half
    if t == 0:
        partials[cuda.blockIdx.x] = tile[0]


@cuda.jit
def histogram(x, counts, n):
    local = cuda.shared.array(256, uint32)
    for i in range(cuda.threadIdx.x, 256, cuda.blockDim.x):
        local[i] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        cuda.atomic.add(local, x[i], 1)
    cuda.syncthreads()
    for i in range(cuda.threadIdx.x, 256, cuda.blockDim.x):
        if local[i] != 0:
            cuda.atomic.add(counts, i, local[i])


@cuda.jit
def stencil(u, out, center, side):
    x, y = cuda.grid(2)
    height, width = u.shape
    if x >= width or y >= height:
        return
    if x == 0 or y == 0 or x == width - 1 or y == height - 1:
        out[y, x] = u[y, x]
        return
    sides = u[y - 1, x] + u[y + 1, x] + u[y, x - 1] + u[y, x + 1]
    out[y, x] = center * u[y, x] + side * sides


@cuda.jit
def softmax(x, y):
    tile = cuda.shared.array(1024, float32)
    rows, columns = x.shape
    row = cuda.blockIdx.x
    t = cuda.threadIdx.x
    if row >= rows:
        return
    largest = LOWEST
    for c in range(t, columns, cuda.blockDim.x):
        largest = max(largest, x[row, c])
    tile[t] = largest
    cuda.syncthreads()
    width = cuda.blockDim.x
    while width > 1:
        half = (width + 1) // 2
        if t + half < width:
            tile[t] = max(tile[t], tile[t + half])
        cuda.syncthreads()
        width = half
    largest = tile[0]
    cuda.syncthreads()
    total = ZERO
    for c in range(t, columns, cuda.blockDim.x):
        e = math.exp(x[row, c] - largest)
        y[row, c] = e
        total += e
    tile[t] = total
    cuda.syncthreads()
    width = cuda.blockDim.x
    while width > 1:
        half = (width + 1) // 2
        if t + half < width:
            tile[t] += tile[t + half]
        cuda.syncthreads()
        width = half
    total = tile[0]
    cuda.syncthreads()
    for c in range(t, columns, cuda.blockDim.x):
        y[row, c] /= total


@cuda.jit
def nbody(bodies, acceleration, n):
    i = cuda.grid(1)
    if i >= n:
        return
    x, y, z = bodies[i, 0], bodies[i, 1], bodies[i, 2]
    ax = ay = az = ZERO
    for j in range(n):
        dx = bodies[j, 0] - x
        dy = bodies[j, 1] - y
        dz = bodies[j, 2] - z
        square = dx * dx + dy * dy + dz * dz + SOFTENING
        inverse = ONE / math.sqrt(square)
        weight = bodies[j, 3] * inverse * inverse * inverse
        ax += weight * dx
        ay += weight * dy
        az += weight * dz
    acceleration[i, 0] = ax
    acceleration[i, 1] = ay
    acceleration[i, 2] = az
    acceleration[i, 3] = ZERO


@cuda.jit(device=True)
def normal(x):
    k = ONE / (ONE + P * abs(x))
    poly = k * (B1 + k * (B2 + k * (B3 + k * (B4 + k * B5))))
    tail = SCALE * math.exp(-HALF * x * x) * poly
    return ONE - tail if x > 0 else tail


@cuda.jit
def black_scholes(spot, strike, years, price, n):
    i = cuda.grid(1)
    if i >= n:
        return
    spread = VOLATILITY * math.sqrt(years[i])
    drift = (RATE + HALF * VOLATILITY * VOLATILITY) * years[i]
    d1 = (math.log(spot[i] / strike[i]) + drift) / spread
    d2 = d1 - spread
    price[i] = spot[i] * normal(d1) - strike[i] * math.exp(-RATE * years[i]) * normal(d2)


@cuda.jit
def pcg(x, rounds, n):
    i = cuda.grid(1)
    if i >= n:
        return
    # Products of 32 bits by 30 bits fit in an int64, here and on a GPU. The mask wraps them.
    state = int(x[i])
    for _ in range(rounds):
        state = (state * 747796405 + 2891336453) & 0xFFFFFFFF
        word = (((state >> ((state >> 28) + 4)) ^ state) * 277803737) & 0xFFFFFFFF
        state = (word >> 22) ^ word
    x[i] = state
