# SPDX-License-Identifier: Apache-2.0
"""A Llama-architecture decoder in plain PyTorch, tensor-parallel, with random weights: one rank's part of it.

Attention heads, the feed-forward's columns and the vocabulary are spread over the ranks; embedding and norms are on
every rank. Each of a layer's two halves ends with partial sums, which `reduce` turns into the next half's input:
allreduce, residual, RMSNorm. How that is done is the caller's, and the only thing in which the variants of llama.py
differ.
"""

import math
from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F

# (partial sums, residual, norm's weight) -> (norm, residual + sum), all [batch, hidden]
Reduce = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
# (hidden states, norm's weight) -> norm
Norm = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
# own [batch, 2] -> all ranks' [ranks, batch, 2]
Gather = Callable[[torch.Tensor], torch.Tensor]


class Shape(NamedTuple):
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    cache: int  # tokens a sequence
    theta: float = 500000.0
    eps: float = 1e-5


SHAPES = {
    "8b": Shape(4096, 14336, 32, 32, 8, 128, 128256, 1024),  # Llama 3.1 8B
    "small": Shape(256, 512, 4, 8, 4, 32, 1024, 128),
}


class Layer(NamedTuple):
    attention_norm: torch.Tensor
    qkv: torch.Tensor
    output: torch.Tensor
    feed_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    keys: torch.Tensor  # [batch, kv heads, cache, head]
    values: torch.Tensor


def attend_sdpa(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask.expand(*query.shape[:3], -1))


def attend_matmul(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = torch.matmul(query * (1 / math.sqrt(query.shape[-1])), keys.transpose(2, 3)) + mask
    return torch.matmul(torch.softmax(scores, -1, dtype=torch.float32).to(values.dtype), values)


# Both take queries [batch, kv heads, heads of a kv head, head]. Which one is faster depends on the batch and the GPU.
ATTENTIONS = {"sdpa": attend_sdpa, "matmul": attend_matmul}


class Decoder:
    """One rank of the model, its key-value cache, and where its sequences stand: all at the same position."""

    def __init__(
        self, shape: Shape, rank: int, ranks: int, largest_batch: int, device: torch.device, dtype: torch.dtype
    ):
        self.shape, self.rank, self.ranks, self.device, self.dtype = shape, rank, ranks, device, dtype
        self.heads, self.kv_heads = shape.heads // ranks, shape.kv_heads // ranks
        self.vocabulary = shape.vocabulary // ranks
        self.generator = torch.Generator(device)
        self.attend = attend_sdpa
        hidden, feed, head = shape.hidden, shape.intermediate // ranks, shape.head
        out = 1 / math.sqrt(2 * shape.layers)  # keeps the residual from growing with the depth
        self._seed(1000)
        self.embedding = self._random(shape.vocabulary, hidden, scale=1.0)
        self.final_norm = self._norm_weight()
        self.layers = []
        for number in range(shape.layers):
            self._seed(number)
            attention_norm, feed_norm = self._norm_weight(), self._norm_weight()
            self._seed(2000 + number * ranks + rank)
            cache = (largest_batch, self.kv_heads, shape.cache, head)
            self.layers.append(
                Layer(
                    attention_norm,
                    self._random((self.heads + 2 * self.kv_heads) * head, hidden),
                    self._random(hidden, self.heads * head, scale=out / math.sqrt(shape.heads * head)),
                    feed_norm,
                    self._random(2 * feed, hidden),
                    self._random(hidden, feed, scale=out / math.sqrt(shape.intermediate)),
                    torch.zeros(cache, device=device, dtype=dtype),
                    torch.zeros(cache, device=device, dtype=dtype),
                )
            )
        self._seed(999000 + rank)
        self.vocabulary_part = self._random(self.vocabulary, hidden)
        frequencies = shape.theta ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
        angles = torch.outer(torch.arange(shape.cache, dtype=torch.float64), frequencies)
        self.cosine = torch.cat([angles.cos()] * 2, -1).to(device, dtype)
        self.sine = torch.cat([-angles.sin(), angles.sin()], -1).to(device, dtype)
        self.places = torch.arange(shape.cache, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def _seed(self, number: int) -> None:
        self.generator.manual_seed(number)

    def _random(self, rows: int, columns: int, scale: float = 0.0) -> torch.Tensor:
        """Normally distributed; by default so that outputs are as large as inputs."""
        values = torch.empty(rows, columns, device=self.device, dtype=self.dtype)
        return values.normal_(0, scale or 1 / math.sqrt(columns), generator=self.generator)

    def _norm_weight(self) -> torch.Tensor:
        weight = torch.empty(self.shape.hidden, device=self.device, dtype=self.dtype)
        return weight.normal_(1, 0.1, generator=self.generator)

    def restart(self) -> None:
        """Every sequence is empty. What the cache holds no longer counts."""
        self.position.zero_()

    def _rotate(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        swapped = torch.roll(x, self.shape.head // 2, -1)
        return x * cosine + swapped * sine

    def _attention(self, layer: Layer, x: torch.Tensor, mask: torch.Tensor, turn: tuple) -> torch.Tensor:
        batch, head = x.shape[0], self.shape.head
        states = F.linear(x, layer.qkv).view(batch, -1, head)
        turned, value = states.split((self.heads + self.kv_heads, self.kv_heads), 1)
        query, key = self._rotate(turned, *turn).split((self.heads, self.kv_heads), 1)
        layer.keys[:batch].index_copy_(2, self.position, key.unsqueeze(2))
        layer.values[:batch].index_copy_(2, self.position, value.unsqueeze(2))
        query = query.reshape(batch, self.kv_heads, -1, head)
        return F.linear(
            self.attend(query, layer.keys[:batch], layer.values[:batch], mask).reshape(batch, -1), layer.output
        )

    def step(self, tokens: torch.Tensor, norm: Norm, reduce: Reduce, gather: Gather) -> torch.Tensor:
        """Takes the next token of every sequence [batch] and puts the one after it, that of the largest logit, in its
        place. Returns this rank's logits [batch, vocabulary / ranks]."""
        mask = torch.zeros(self.shape.cache, device=self.device, dtype=self.dtype)
        mask.masked_fill_(self.places > self.position, float("-inf"))
        turn = self.cosine[self.position], self.sine[self.position]
        residual = self.embedding[tokens]
        x = norm(residual, self.layers[0].attention_norm)
        following = [layer.attention_norm for layer in self.layers[1:]] + [self.final_norm]
        for layer, next_norm in zip(self.layers, following):
            x, residual = reduce(self._attention(layer, x, mask, turn), residual, layer.feed_norm)
            gate, up = F.linear(x, layer.gate_up).chunk(2, -1)
            x, residual = reduce(F.linear(F.silu(gate) * up, layer.down), residual, next_norm)
        logits = F.linear(x, self.vocabulary_part)
        value, index = logits.max(-1)
        all_best = gather(torch.stack([value.float(), (index + self.rank * self.vocabulary).float()], -1))
        best = all_best[..., 0].max(0, keepdim=True).indices  # of equal ones the lowest rank's
        tokens.copy_(all_best[..., 1].gather(0, best)[0])
        self.position += 1
        return logits
