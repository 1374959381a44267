#!/usr/bin/env python3
"""Decodes with the same weights in PyTorch, and prints the tokens per second in the form of the Rust program.

    cargo run --release --example decode -- --batch 8 --save target/decode.npy      # optional
    python3 examples/decode/torch_baseline.py                                       # batch 1 and 8
    python3 examples/decode/torch_baseline.py --compare target/decode.npy

Three modes: `eager` slices the cache up to the position, which the host knows. `eager static` and `graph` read the
position from device memory and mask the rest of the cache; `graph` is captured once with torch.cuda.graph and replayed
for each token. All hold the weights as f32 and compute in f32 without TF32. PyTorch adds in another order than the
kernels of the Rust program, so texts may part where two logits are nearly equal: `--compare` reports how many symbols
agree, and how many do before the first difference.
"""

import argparse
import time

import numpy as np
import torch
from torch.nn import functional as F

from network import CONTEXT, HEADS, HERE, LAYERS, WIDTH, Network, decode, encode, norm

HEAD = WIDTH // HEADS


def attention(q, keys, values, mask=None):
    """Attention of one query for each head, by PyTorch's fused kernel where this PyTorch has one."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
    scores = q @ keys.transpose(-1, -2) * HEAD ** -0.5
    return (scores if mask is None else scores.masked_fill(~mask, float("-inf"))).softmax(-1) @ values


class Session:
    """Sequences that are decoded together, as the Rust program's `Session`."""

    def __init__(self, network, prompts, device):
        self.network, self.device = network, device
        self.lengths = [len(prompt) for prompt in prompts]
        self.batch = len(prompts)
        self.prompts = torch.zeros(self.batch, CONTEXT, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            self.prompts[row, :len(prompt)] = torch.from_numpy(prompt)
        self.prompts = self.prompts.to(device)
        self.tokens = self.prompts.clone()
        self.prompt_lengths = torch.tensor(self.lengths, device=device)
        self.places = torch.arange(CONTEXT, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        shape = (LAYERS, self.batch, HEADS, CONTEXT, HEAD)
        self.keys, self.values = (torch.zeros(shape, device=device) for _ in range(2))
        # Separate matrices, so that no step indexes the stacked ones.
        self.blocks = [(network.gains[2 * i], network.qkv[i], network.out[i],
                        network.gains[2 * i + 1], network.up[i], network.down[i]) for i in range(LAYERS)]

    def reset(self):
        self.tokens.copy_(self.prompts)
        self.position.zero_()

    def blocks_forward(self, x, write, attend):
        """Returns the logits [batch, SYMBOLS] for x [batch, WIDTH]."""
        for layer, (gain, qkv, out, mlp_gain, up, down) in enumerate(self.blocks):
            q, k, v = F.linear(norm(x, gain), qkv).view(self.batch, 3, HEADS, 1, HEAD).unbind(1)
            write(self.keys[layer], k)
            write(self.values[layer], v)
            mixed = attend(q, self.keys[layer], self.values[layer])
            x = x + F.linear(mixed.reshape(self.batch, WIDTH), out)
            x = x + F.linear(F.silu(F.linear(norm(x, mlp_gain), up)), down)
        return F.linear(norm(x, self.network.gains[2 * LAYERS]), self.network.head)

    def step_eager(self, at):
        """A step at a position that the host knows. Only the logits decide which symbol is written."""
        def write(cache, new):
            cache[:, :, at:at + 1] = new

        def attend(q, keys, values):
            return attention(q, keys[:, :, :at + 1], values[:, :, :at + 1])

        x = self.network.embedding[self.tokens[:, at]] + self.network.positions[at]
        best = self.blocks_forward(x, write, attend).argmax(-1)
        if at + 1 < CONTEXT:
            self.tokens[:, at + 1] = torch.where(at + 1 < self.prompt_lengths, self.tokens[:, at + 1], best)

    def step_static(self):
        """A step at the position in device memory. It is the same work for every position, so it can be captured."""
        mask = (self.places <= self.position).view(1, 1, 1, CONTEXT)

        def write(cache, new):
            cache.index_copy_(2, self.position, new)

        def attend(q, keys, values):
            return attention(q, keys, values, mask)

        token = self.tokens.index_select(1, self.position).squeeze(1)
        x = self.network.embedding[token] + self.network.positions.index_select(0, self.position)
        best = self.blocks_forward(x, write, attend).argmax(-1)
        after = (self.position + 1).clamp(max=CONTEXT - 1)
        kept = self.tokens.index_select(1, after).squeeze(1)
        chosen = torch.where(after < self.prompt_lengths, kept, best)
        self.tokens.index_copy_(1, after, chosen.unsqueeze(1))
        self.position.add_(1)


def capture(session):
    """Records `step_static` as a CUDA graph and returns the function that replays it."""
    session.reset()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            session.step_static()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        session.step_static()
    return graph.replay


@torch.inference_mode()
def measure(session, mode, tokens, repeat):
    """Returns the symbols of all sequences, the number of steps, and the shortest duration of a generation."""
    steps = max(session.lengths) + tokens - 1
    replay = capture(session) if mode == "graph" else None
    best = float("inf")
    for _ in range(repeat):
        session.reset()
        if session.device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for at in range(steps):
            if mode == "eager":
                session.step_eager(at)
            elif mode == "eager static":
                session.step_static()
            else:
                replay()
        symbols = session.tokens.cpu().numpy()
        best = min(best, time.perf_counter() - start)
    return [row[:length + tokens] for row, length in zip(symbols, session.lengths)], steps, best


def agreement(texts, expected, lengths):
    """Prints how many generated symbols agree with those of the Rust program."""
    for row, (text, other, length) in enumerate(zip(texts, expected, lengths)):
        other = other[other != 255][:len(text)]
        same = text[:len(other)] == other
        first = len(same) if same.all() else int(same.argmin())
        print(f"sequence {row}: {same[length:].sum()} of {len(other) - length} generated symbols agree, "
              f"{max(0, first - length)} before the first difference")


def main():
    parser = argparse.ArgumentParser(description="Decode with PyTorch, for comparison.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--prompt", help="the prompt of all sequences; the default is data/prompts.txt")
    parser.add_argument("--compare", help="symbols that the Rust program wrote with --save")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    network = Network.load().to(args.device)
    lines = [args.prompt] if args.prompt else (HERE / "data" / "prompts.txt").read_text().splitlines()
    modes = ["eager", "eager static"] + (["graph"] if args.device == "cuda" else [])

    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name() if args.device == 'cuda' else 'cpu'}\n")
    rows = ["| mode | sequences | tokens per second | microseconds per step |", "|---|---:|---:|---:|"]
    for batch in args.batches:
        prompts = [encode(lines[i % len(lines)]) for i in range(batch)]
        session = Session(network, prompts, args.device)
        for mode in modes:
            texts, steps, seconds = measure(session, mode, args.tokens, args.repeat)
            rows.append(f"| PyTorch {mode} | {batch} | {steps * batch / seconds:.0f} | {seconds / steps * 1e6:.1f} |")
            if args.compare:
                print(f"{mode}, {batch} sequences:")
                agreement(texts, np.load(args.compare), session.lengths)
        if batch == args.batches[0]:
            print(f"--------\n{decode(texts[0])}\n--------")
    print("\n" + "\n".join(rows))


if __name__ == "__main__":
    main()
