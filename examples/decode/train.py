#!/usr/bin/env python3
"""Trains the transformer of this example on data/holmes.txt, and writes weights/*.npy.

    python3 examples/decode/train.py                              # on a GPU if there is one; about a minute on an H100
    python3 examples/decode/train.py --check                      # only measures the committed weights
    python3 examples/decode/train.py --steps 200 --batch 8        # short, on a CPU

Needs PyTorch (1.13 or newer) and numpy. The seed is fixed, but another GPU or another PyTorch may round differently, so
the weights are committed. The weights are those of the evaluation with the fewest bits per character of the held-out
text.
"""

import argparse
import copy
import math
import sys
import time

import numpy as np
import torch
from torch.nn import functional as F

from network import CONTEXT, HERE, Network, bits_per_character, decode, encode, texts

SEED = 1
WARM_UP = 100  # steps in which the rate rises
DECAY = 0.1  # weight decay of matrices
EVALUATIONS = 16


def rate(step, steps, peak):
    """Returns the learning rate: linear warm-up, then a cosine down to a fiftieth."""
    if step < WARM_UP:
        return peak * (step + 1) / WARM_UP
    done = (step - WARM_UP) / max(1, steps - WARM_UP)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def train(args, device):
    """Returns the best network of the training, with rounded weights, and its bits per character."""
    torch.manual_seed(SEED)
    order = np.random.default_rng(SEED)
    train_text, held_out = texts()
    network = Network(args.dropout).to(device)
    matrices = [p for name, p in network.named_parameters() if name != "gains"]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY}, {"params": [network.gains], "weight_decay": 0.0}],
        lr=args.rate, betas=(0.9, 0.99))
    windows = np.lib.stride_tricks.sliding_window_view(train_text, CONTEXT + 1)
    best, best_bits = None, math.inf
    start = time.monotonic()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, args.steps, args.rate)
        batch = torch.from_numpy(windows[order.integers(len(windows), size=args.batch)]).to(device)
        logits = network(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % max(1, args.steps // EVALUATIONS) == 0 or step + 1 == args.steps:
            candidate = copy.deepcopy(network).eval()
            candidate.round_to_f16()
            bits = bits_per_character(candidate, held_out, device, args.windows)
            print(f"step {step + 1}: loss {loss.item() / math.log(2):.3f} bits, held out {bits:.3f} bits, "
                  f"{time.monotonic() - start:.0f} s", flush=True)
            if bits < best_bits:
                best, best_bits = candidate, bits
    return best, best_bits


@torch.no_grad()
def sample(network, prompt, count, device):
    """Returns the prompt with its greedy continuation, computed without a cache."""
    symbols = list(encode(prompt))
    for _ in range(count):
        logits = network(torch.tensor([symbols[-CONTEXT:]], device=device))
        symbols.append(int(logits[0, -1].argmax()))
    return decode(symbols)


def main():
    parser = argparse.ArgumentParser(description="Train the transformer of examples/decode.")
    parser.add_argument("--check", action="store_true", help="measure the committed weights, write nothing")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=64, help="texts in a step")
    parser.add_argument("--rate", type=float, default=2e-3, help="peak learning rate")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--windows", type=int, help="evaluate only this many windows")
    parser.add_argument("--out", default=HERE / "weights", type=type(HERE), help="the folder of the .npy files")
    parser.add_argument("--most-bits", type=float, help="fail above so many bits per character")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = not args.check
    if args.check:
        network = Network.load().to(device)
        bits = bits_per_character(network, texts()[1], device, args.windows)
    else:
        network, bits = train(args, device)
        network.save(args.out)
    parameters = sum(p.numel() for p in network.parameters())
    print(f"{parameters} parameters, {bits:.3f} bits per held-out character")
    print(sample(network, '"My dear Watson," said Holmes,', 200, device))
    return 1 if args.most_bits and bits > args.most_bits else 0


if __name__ == "__main__":
    sys.exit(main())
