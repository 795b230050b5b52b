# SPDX-License-Identifier: Apache-2.0
"""The reference's cases, test/data/cases.json: their inputs, made here once more, and the digests of their outputs."""

import hashlib
import json
import pathlib

import numpy as np

from ranks import bits_of_bf16

FILE = pathlib.Path(__file__).resolve().parents[1] / "data" / "cases.json"
INPUT, RESIDUAL, GAMMA = 0, 1, 2
NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def mix(x):
    """A 32-bit integer mixer."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x ^ (x >> np.uint32(16))


def draw(count, seed, tensor, rank, kind):
    """float32 values of a tensor of a kind of inputs."""
    with np.errstate(over="ignore"):
        key = mix(np.array([seed << 12 ^ tensor << 8 ^ rank], np.uint32))
        h = mix(np.arange(count, dtype=np.uint32) ^ key)
    v = (h & np.uint32(0xFFFF)).astype(np.float32) / np.float32(32768) - np.float32(1)
    tiny, high = np.float32(2.0**-130), h >> np.uint32(20)
    if kind == "large":
        return v * np.float32(4096)
    if kind == "tiny":
        return v * tiny
    if kind == "zeros":
        return np.where(high & np.uint32(1), np.float32(-0.0), np.float32(0.0))
    if kind == "mixed":
        places = [high % 16 == i for i in range(3)]
        return np.select(places, [np.float32(-0.0), np.float32(0.0), v * tiny], v).astype(np.float32)
    if kind == "special":
        places = [high % 1024 == i for i in range(3)]
        return np.select(places, np.array([np.nan, np.inf, -np.inf], np.float32), v).astype(np.float32)
    if kind != "uniform":
        raise ValueError(f"inputs of kind {kind}")
    return v


class Case:
    """A request. Types are torch's names."""

    def __init__(self, fields):
        self.id, self.ranks, self.tokens, self.hidden = (fields[k] for k in ("id", "nranks", "tokens", "hidden"))
        self.pattern, self.seed, self.digests = fields["pattern"], fields["seed"], fields["digests"]
        self.dtype, self.gamma_dtype = fields["dtype"], fields.get("gamma_dtype", fields["dtype"])
        self.quant, self.scale = fields.get("quant", "none"), fields.get("scale", 1.0)
        self.swizzled = fields.get("layout", "linear") == "swizzled_128x4"
        self.eps, self.weight_bias = fields.get("eps", 1e-5), fields.get("weight_bias", 0.0)
        self.inputs, self.residual = fields.get("inputs", "uniform"), fields.get("residual", True)

    def tensor(self, which, rank, torch, device):
        """A torch tensor of the case."""
        shape, dtype, kind = (self.tokens, self.hidden), self.dtype, self.inputs
        if which == GAMMA:
            shape, dtype, kind = (self.hidden,), self.gamma_dtype, "uniform"
        values = draw(int(np.prod(shape)), self.seed, which, rank, kind)
        with np.errstate(over="ignore"):
            bits = {"bf16": bits_of_bf16, "fp16": np.float16, "fp32": np.float32}[dtype](values)
        nan = np.isnan(values)
        if dtype == "bf16":
            bits = np.where(nan, np.uint16(0x7FFF), bits)
        return torch.from_numpy(bits.reshape(shape)).view(getattr(torch, NAMES[dtype])).to(device)

    def wrong(self, outputs):
        """The names of the outputs, given as bytes, that are not the reference's."""
        return [name for name, data in outputs.items() if hashlib.sha256(data).hexdigest()[:32] != self.digests[name]]


def load(**wanted):
    """The cases whose fields are these."""
    with open(FILE, encoding="utf-8") as file:
        cases = [Case(fields) for fields in json.load(file)]
    return [case for case in cases if all(getattr(case, name) == value for name, value in wanted.items())]
