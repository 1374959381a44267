#!/usr/bin/env python3
"""Trains the digit classifier of this example and checks the result.

    pip install numpy==2.4.6
    python3 examples/digits/train.py            # trains, writes weights/ and expected/, prints the check
    python3 examples/digits/train.py --check    # only checks the committed weights, writes nothing

The network is 64 -> 64 -> 32 -> 10 with relu, in float32. Rows whose index is a multiple of 5 are held out: they were
used neither in the training nor to choose the parameters below. All random numbers are seeded, so the same numpy on
the same machine gives the same weights. The BLAS of another machine may round differently, so the weights are
committed.
"""

import argparse
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
LAYERS = (64, 64, 32, 10)
F32 = np.float32

SEED = 1
EPOCHS = 150
BATCH = 32
PEAK_RATE = F32(3e-3)
DECAY = F32(1e-4)  # weight decay per unit of rate; limits the growth of logits that are already right

NEEDED_ACCURACY = 0.97
# Logits are of order 10, and every backend computes them to about 1e-5. With a margin of a hundred times that, no
# rounding changes a prediction.
NEEDED_MARGIN = 1e-3


def load():
    """Returns pixels [n, 64] as u8 and labels [n], split into training and held-out rows."""
    rows = np.loadtxt(HERE / "data" / "digits.csv", delimiter=",", dtype=np.uint8)
    held_out = np.arange(len(rows)) % 5 == 0
    pixels, labels = rows[:, :64], rows[:, 64]
    return (pixels[~held_out], labels[~held_out]), (pixels[held_out], labels[held_out])


def normalize(pixels):
    return pixels.astype(F32) * F32(0.0625)


def initial_weights(rng):
    """Returns initial weights scaled for relu (He), which preserves the variance from layer to layer."""
    weights = []
    for inputs, outputs in zip(LAYERS, LAYERS[1:]):
        weights.append(rng.standard_normal((inputs, outputs), dtype=F32) * F32(np.sqrt(2 / inputs)))
        weights.append(np.zeros(outputs, F32))
    return weights


def shifted(rng, x):
    """Returns the images shifted by -1, 0 or 1 pixels in each direction. This reduces overfitting to 1,437 images."""
    images = np.pad(x.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    down, right = rng.choice(3, (2, len(x)), p=(0.15, 0.7, 0.15))
    row = down[:, None, None] + np.arange(8)[None, :, None]
    column = right[:, None, None] + np.arange(8)[None, None, :]
    return images[np.arange(len(x))[:, None, None], row, column].reshape(-1, 64)


def gradients(weights, x, labels):
    """Returns the gradients of the mean cross-entropy, by backpropagation."""
    activations = [x]
    for w, b in zip(weights[0:-2:2], weights[1:-2:2]):
        activations.append(np.maximum(activations[-1] @ w + b, 0))
    logits = activations[-1] @ weights[-2] + weights[-1]
    delta = np.exp(logits - logits.max(1, keepdims=True))
    delta /= delta.sum(1, keepdims=True)
    delta[np.arange(len(x)), labels] -= 1
    delta /= F32(len(x))

    grads = []
    for layer in reversed(range(len(LAYERS) - 1)):
        grads = [activations[layer].T @ delta, delta.sum(0)] + grads
        if layer > 0:
            delta = (delta @ weights[2 * layer].T) * (activations[layer] > 0)
    return grads


def train(x, labels):
    """Trains with Adam and a cosine schedule down to zero, so that the last steps converge."""
    rng = np.random.default_rng(SEED)
    weights = initial_weights(rng)
    first = [np.zeros_like(w) for w in weights]
    second = [np.zeros_like(w) for w in weights]
    steps = EPOCHS * (len(x) // BATCH)
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            batch = order[start : start + BATCH]
            grads = gradients(weights, shifted(rng, x[batch]), labels[batch])
            rate = PEAK_RATE * F32(0.5 * (1 + np.cos(np.pi * step / steps)))
            step += 1
            correction = F32(np.sqrt(1 - 0.999**step) / (1 - 0.9**step))
            for w, g, m, v in zip(weights, grads, first, second):
                m += F32(0.1) * (g - m)
                v += F32(0.001) * (g * g - v)
                w -= rate * (correction * m / (np.sqrt(v) + F32(1e-8)) + DECAY * w)
    return weights


def fma(a, b, c):
    """Returns a * b + c of float32, rounded once, as fmaf does.

    A product of two float32 is exact in float64, but the sum may be inexact. Rounding it to float64 and then to float32
    could round twice. To prevent that, an inexact float64 is rounded to odd: its last bit is set, in the direction of the
    exact value. No odd float64 lies halfway between two float32.
    """
    product = a.astype(np.float64) * b
    wide = np.asarray(c, np.float64)
    total = product + wide
    part = total - product
    error = (product - (total - part)) + (wide - part)
    even = (total.view(np.int64) & 1) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even, np.nextafter(total, towards), total).astype(F32)


def forward(weights, pixels):
    """Returns the logits, bit for bit as kernels/mlp.cu computes them."""
    x = normalize(pixels)
    for w, b in zip(weights[0::2], weights[1::2]):
        total = np.broadcast_to(b, (len(x), len(b)))
        for i in range(len(w)):
            total = fma(x[:, i, None], w[None, i], total)
        x = np.maximum(total, F32(0))
    return total


def check(weights, pixels, labels):
    """Prints the accuracy of the committed weights on the held-out rows. Returns whether it is sufficient."""
    logits = forward(weights, pixels)
    accuracy = np.mean(logits.argmax(1) == labels)
    ranked = np.sort(logits, 1)
    margin = (ranked[:, -1] - ranked[:, -2]).min()

    x = normalize(pixels).astype(np.float64)
    for w, b in zip(weights[0::2], weights[1::2]):
        exact = x @ w.astype(np.float64) + b
        x = np.maximum(exact, 0)
    noise = np.abs(logits - exact).max()

    print(f"held-out rows   {len(labels)}")
    print(f"accuracy        {accuracy:.4f} ({(logits.argmax(1) != labels).sum()} wrong)")
    print(f"largest logit   {np.abs(logits).max():.2f}")
    print(f"smallest margin {margin:.6f}")
    print(f"float32 error   {noise:.2e} (against float64)")
    return logits, accuracy >= NEEDED_ACCURACY and margin >= NEEDED_MARGIN and margin >= 20 * noise


def names():
    return [f"{kind}{layer}" for layer in range(1, len(LAYERS)) for kind in "wb"]


def save(path, array):
    """Writes an .npy file of version 1.0, little-endian, in C order."""
    path.parent.mkdir(exist_ok=True)
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array, "<f4"), version=(1, 0))


def main():
    parser = argparse.ArgumentParser(description="Train the digit classifier.")
    parser.add_argument("--check", action="store_true", help="check the committed files, write nothing")
    args = parser.parse_args()
    (x, labels), held_out = load()
    expected = HERE / "expected" / "logits.npy"
    if args.check:
        weights = [np.load(HERE / "weights" / f"{name}.npy") for name in names()]
    else:
        weights = train(normalize(x), labels)
    logits, good = check(weights, *held_out)
    if args.check:
        same = np.array_equal(logits.view(np.uint32), np.load(expected).view(np.uint32))
        print("expected logits", "match" if same else "DIFFER")
        return 0 if good and same else 1
    if not good:
        print("not good enough; nothing was written", file=sys.stderr)
        return 1
    for name, array in zip(names(), weights):
        save(HERE / "weights" / f"{name}.npy", array)
    save(expected, logits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
