#!/usr/bin/env python3
"""Derives the tables of a GPU's function unit (MUFU) from its results: fit.py FOLDER >tables.rs

FOLDER contains the files that `dump.py` wrote on the GPU. Needs numpy.

The form of the functions is that of Oberman and Siu, "A high-performance area-efficient multifunction
interpolator", ARITH 2005. All numbers here are measured. The upper bits of an argument's fraction select a segment,
and the 17 bits x below them are interpolated:

    T = C0 + C1 x + C2 S(x)

in integers. S(x) is the upper 15 bits of x squared by a multiplier that omits all partial products below column 19.
The result is T truncated to 24 bits. For each segment, the script starts from least squares and finds every (C1, C2)
nearby for which some C0 reproduces all results of the segment exactly. For each function, C0 is a multiple of a power
of two plus one rounding constant.
The script fails if any value of the dump is not reproduced.
"""
import functools
import lzma
import pathlib
import sys

import numpy as np

SPAN = 1 << 17  # arguments of a segment


def read(path):
    """Returns {label: (bits of the first argument, results)}. Result i belongs to the argument with bits base + i."""
    out = {}
    with open(path, "rb") as f:
        while line := f.readline():
            label, base, n, size = line.split()
            planes = np.frombuffer(lzma.decompress(f.read(int(size))), np.uint8).reshape(4, int(n)).astype(np.uint32)
            steps = planes[0] | planes[1] << 8 | planes[2] << 16 | planes[3] << 24
            out[label.decode()] = (int(base), np.cumsum(steps.view(np.int32).astype(np.int64)).astype(np.uint32))
    return out


def square(x):
    """Returns x * x without the partial products below column 19, divided by 2^19."""
    bit = [(x >> i) & 1 for i in range(17)]
    total = sum(bit[i] << 2 * i for i in range(10, 17))
    for i in range(17):
        total = total + sum((bit[i] & bit[j]) << (i + j + 1) for j in range(i) if i + j + 1 >= 19)
    return total >> 19


X = np.arange(SPAN)
S = square(X)


@functools.cache
def solver(start, step):
    """Returns the least squares solver for every `step`-th result from `start` on."""
    return np.linalg.pinv(np.stack([np.ones(SPAN), X, S], 1)[start::step])


def bounds(bits, unit, floor):
    """Returns the bounds (from, to) of the integers T, in 2^unit, of these f32 results. T has no bits below `floor`."""
    value = bits.astype(np.uint32).view(np.float32).astype(np.float64)
    ulp = np.ldexp(1.0, np.frexp(value)[1] - 24)
    ulp = np.maximum(ulp, np.ldexp(1.0, floor))
    low = np.ldexp(value, -unit)
    # A sine above 1 is clamped to 1.
    high = np.ldexp(np.where(value == 1.0, 1.0 + 2.0**-22, value + ulp) if floor == -37 else value + ulp, -unit)
    return low.astype(np.int64), high.astype(np.int64)


def segment(low, high, quantum1, quantum2, keep):
    """Returns all (c1, c2, from, to) with C0 in from..to for which every T selected by `keep` is in its bounds."""
    guess = solver(keep.start, keep.step) @ ((low + high)[keep] / 2)
    found = []
    near1, near2 = round(guess[1] / quantum1), round(guess[2] / quantum2)
    for c2 in range(near2 - 4, near2 + 5):
        for c1 in range(near1 - 4, near1 + 5):
            rest = c1 * quantum1 * X + c2 * quantum2 * S
            first, last = (low - rest)[keep].max(), (high - rest)[keep].min()
            if first < last:
                found.append((c1 * quantum1, c2 * quantum2, int(first), int(last)))
    return found


def table(name, parts, unit, quanta, shift, floor=-99, skip_first=False):
    """Returns a function's table. `parts` are the results of its segments in order. C0 is a multiple of 2^shift."""
    rows, spans = [], []
    for i, bits in enumerate(parts):
        # If there are half as many arguments, they are at the even places. The first argument may be a special case.
        keep = slice(int(skip_first and i == 0), None, SPAN // len(bits))
        u = unit(i) if callable(unit) else unit
        low, high = (np.repeat(b, SPAN // len(bits)) for b in bounds(bits, u, floor))
        found = segment(low, high, *quanta, keep)
        assert len(found) == 1, f"{name}, segment {i}: {found}"
        rows.append(found[0])
    # The rounding constant, which is the same for all segments, because C0 is a multiple of 2^shift.
    size = 1 << shift
    middle = ((rows[0][2] + rows[0][3] - 1) // 2 + size // 2) % size - size // 2
    from_, to = -size, size
    for c1, c2, first, last in rows:
        c0 = round(((first + last - 1) / 2 - middle) / size)
        spans.append(c0)
        from_, to = max(from_, first - c0 * size), min(to, last - 1 - c0 * size)
    assert from_ <= to, f"{name}: no common constant, {from_} to {to}"
    constant = (from_ + to) // 2
    print(f"{name}: {len(rows)} segments, constant {from_}..={to}", file=sys.stderr)
    coefficients = [(c0, c1 // quanta[0], c2 // quanta[1]) for c0, (c1, c2, _, _) in zip(spans, rows)]
    return name, coefficients, constant, [shift, *(q.bit_length() - 1 for q in quanta)]


def rust(name, rows, constant, steps):
    cells = [f"[{a}, {b}, {c}]" for a, b, c in rows]
    lines = ["    " + ", ".join(cells[i:i + 3]) + "," for i in range(0, len(cells), 3)]
    size = 1 << (len(rows) - 1).bit_length()
    return (f"pub(super) static {name}: Table<{size}> = Table::new({constant}, {steps}, &[\n" + "\n".join(lines)
            + "\n]);\n")


def segments(bits, count):
    """Returns `count` segments of at most 2^17 arguments. Lower bits of the argument have no effect."""
    per = len(bits) // count
    for i in range(count):
        part = bits[i * per:(i + 1) * per]
        step = max(per // SPAN, 1)
        assert all((part[::step] == part[i::step]).all() for i in range(step))
        yield part[::step]


def quarter(dumps):
    """Returns sin over a quarter turn in units of 2^-25 turns, from the sines and cosines of all dumped arguments."""
    constant = 0x22F983 | 0x800000  # 1/2pi, times 2^26
    size = 1 << 23
    result = np.zeros(size, np.uint32)
    seen = np.zeros(size, bool)
    for label, (base, bits) in dumps.items():
        name = label.split("_")[0]
        if name not in ("sin", "cos"):
            continue
        x = base + np.arange(len(bits), dtype=np.int64)
        product = (x & 0x7FFFFF | 0x800000) * constant
        # FMUL.RZ keeps 24 bits, and the unit uses those down to 2^-25.
        drop = np.where(product >> 47, 24, 23)
        down = 151 - (x >> 23) - drop
        turn = product >> drop
        turn = np.where(down >= 0, turn >> np.maximum(down, 0), turn << np.maximum(-down, 0))
        place = (turn >> 23) + (name == "cos")
        at = np.where(place & 1, ~turn, turn) & (size - 1)
        plain = bits ^ ((place >> 1 & 1) << 31).astype(np.uint32)
        old = seen[at]
        assert (result[at][old] == plain[old]).all(), f"{label} is not a function of its angle"
        result[at], seen[at] = plain, True
    assert seen.all()
    return result


def main():
    dumps = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.bin")):
        dumps.update(read(path))
    bits = {label: result for label, (_, result) in dumps.items()}

    def part(label, count):
        return list(segments(bits[label], count))

    octaves = [(-8, 0), (-7, 0), (-6, 0), (-5, 1), (-4, 1), (-3, 2), (-2, 2), (-1, 2), (0, 3), (1, 4), (2, 3)]
    tanh, scale = [], []
    for e, m in octaves:
        tanh += part(f"tanh_{e}".replace("-", "n"), 1 << m)
        scale += [-41 + min(e + 1, 0)] * (1 << m)
    sine = quarter(dumps)
    tables = [
        table("RCP", part("rcp_0", 128), -41, (2, 4), 15),
        table("SQRT", part("sqrt_0", 64) + part("sqrt_1", 64), -40, (1, 2), 15),
        table("RSQ", part("rsqrt_0", 64) + part("rsqrt_1", 64), -41, (2, 8), 15, skip_first=True),
        table("EX2", part("ex2_0", 64), -39, (4, 4), 15),
        table("LG2", part("lg2_0", 64), -38, (1, 2), 12, floor=-36, skip_first=True),
        table("SIN", [sine[i * SPAN:(i + 1) * SPAN] for i in range(64)], -38, (2, 2), 12, floor=-37),
        table("TANH", tanh, lambda i: scale[i], (4, 8), 17),
    ]
    print("//! Generated by `fit.py` from an H200's results. Do not edit.\n\nuse super::Table;\n")
    print("\n".join(rust(*t) for t in tables), end="")


main()
