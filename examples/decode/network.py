"""The transformer of this example in PyTorch: its shapes, its files, and its forward pass over whole texts.

    x = embedding[token] + positions[position]
    in each of 4 blocks:  x += out(attention(qkv(norm(x))));  x += down(silu(up(norm(x))))
    logits = head(norm(x))

`norm` is RMSNorm with a gain for each channel. The linear layers have no biases. `model.rs` computes the same on a device
of cuda-async, one token at a time, and `torch_baseline.py` does so in PyTorch.
"""

import pathlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
SYMBOLS, CONTEXT, WIDTH, HEADS, LAYERS, HIDDEN = 96, 256, 128, 4, 4, 512
EPSILON = 1e-5

# The files of weights: one for each kind of matrix, with those of all blocks. A matrix has one row for each output.
SHAPES = {
    "embedding": (SYMBOLS, WIDTH),
    "positions": (CONTEXT, WIDTH),
    "gains": (2 * LAYERS + 1, WIDTH),  # of each norm, in the order of use
    "qkv": (LAYERS, 3 * WIDTH, WIDTH),
    "out": (LAYERS, WIDTH, WIDTH),
    "up": (LAYERS, HIDDEN, WIDTH),
    "down": (LAYERS, WIDTH, HIDDEN),
    "head": (SYMBOLS, WIDTH),
}


def encode(text):
    """Returns the symbols of a text: 0 is the line end, and 1 to 95 are the printable characters of ASCII."""
    codes = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int64)
    return np.where(codes == 10, 0, codes - 31)


def decode(symbols):
    return "".join("\n" if symbol == 0 else chr(symbol + 31) for symbol in symbols)


def texts():
    """Returns the symbols to train on, and the held-out ones: the last tenth."""
    symbols = encode((HERE / "data" / "holmes.txt").read_text())
    split = len(symbols) * 9 // 10
    return symbols[:split], symbols[split:]


def norm(x, gain):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, (WIDTH,), gain, EPSILON)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * gain


class Network(nn.Module):
    """The network with its weights, each a parameter of the shape in `SHAPES`."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = dropout
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(self.initial(name, shape)))

    @staticmethod
    def initial(name, shape):
        if name == "gains":
            return torch.ones(shape)
        scale = 0.02 if name in ("embedding", "positions") else 0.7 * shape[-1] ** -0.5
        # The outputs of 2 * LAYERS matrices are added to x. Smaller ones keep its variance.
        return torch.randn(shape) * (scale * (2 * LAYERS) ** -0.5 if name in ("out", "down") else scale)

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training)

    def forward(self, symbols):
        """Returns the logits [texts, length, SYMBOLS] of the next symbol after each prefix of texts [texts, length]."""
        rows, length = symbols.shape
        hidden = torch.full((length, length), float("-inf"), device=symbols.device).triu(1)
        x = self.drop(F.embedding(symbols, self.embedding) + self.positions[:length])
        for layer in range(LAYERS):
            qkv = norm(x, self.gains[2 * layer]) @ self.qkv[layer].T
            q, k, v = qkv.view(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5 + hidden
            mixed = self.drop(scores.softmax(-1)) @ v
            mixed = mixed.transpose(1, 2).reshape(rows, length, WIDTH)
            x = x + self.drop(mixed @ self.out[layer].T)
            inner = F.silu(norm(x, self.gains[2 * layer + 1]) @ self.up[layer].T)
            x = x + self.drop(inner @ self.down[layer].T)
        return norm(x, self.gains[2 * LAYERS]) @ self.head.T

    @torch.no_grad()
    def round_to_f16(self):
        """Rounds the weights as `save` does."""
        for parameter in self.parameters():
            parameter.copy_(parameter.half().float())

    def save(self, folder):
        """Writes weights/*.npy: the bits of f16 as u16, because .npy readers in Rust do not support f16."""
        folder.mkdir(exist_ok=True)
        for name in SHAPES:
            bits = getattr(self, name).detach().cpu().numpy().astype("<f2").view("<u2")
            with open(folder / f"{name}.npy", "wb") as file:
                np.lib.format.write_array(file, bits, version=(1, 0))

    @staticmethod
    def load(folder=HERE / "weights"):
        network = Network()
        for name, shape in SHAPES.items():
            values = np.load(folder / f"{name}.npy").view("<f2").astype(np.float32)
            assert values.shape == shape, f"{name}.npy: {values.shape} instead of {shape}"
            getattr(network, name).data = torch.from_numpy(values)
        return network.eval()


@torch.no_grad()
def bits_per_character(network, symbols, device, windows=None):
    """Returns the mean information of a symbol, in bits: in windows of CONTEXT symbols, each with its last half scored,
    so that every scored symbol has at least CONTEXT / 2 before it."""
    half = CONTEXT // 2
    begins = list(range(0, len(symbols) - CONTEXT, half))[:windows]
    total = 0.0
    for first in range(0, len(begins), 64):
        batch = np.stack([symbols[b:b + CONTEXT + 1] for b in begins[first:first + 64]])
        batch = torch.from_numpy(batch).to(device)
        logits = network(batch[:, :-1])[:, half:]
        total += F.cross_entropy(logits.flatten(0, 1), batch[:, half + 1:].flatten(), reduction="sum").item()
    return total / (len(begins) * half) / np.log(2)
