# SPDX-License-Identifier: Apache-2.0
"""One rank of llama.py: generates with each variant, measures, and sends what came of it to the parent."""

import hashlib
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import arfusion.ops
from bench_ranks import gpu_of
from llama_model import ATTENTIONS, SHAPES, Decoder

PROMPT, NEW = 8, 24  # tokens
WARM_UP, REPLAYS = 3, 40
SILENCE_S = 120


def variants(group, eps):
    """{name: (norm, reduce, reduce without the sum)}"""
    ops, name = torch.ops.arfusion, group.group_name

    def norm(x, weight):
        return ops.epilogue(x, None, weight, eps, name)[0]

    def fused(x, residual, weight):
        return ops.allreduce_add_rmsnorm(x, residual, weight, eps, name)

    def epilogue(x, residual, weight):
        return ops.epilogue(x, residual, weight, eps, name)

    def unfused(x, residual, weight):
        dist.all_reduce(x, group=group)
        return epilogue(x, residual, weight)

    def torch_norm(x, weight):
        return F.rms_norm(x, weight.shape, weight, eps)

    def torch_epilogue(x, residual, weight):
        residual = residual + x
        return torch_norm(residual, weight), residual

    def torch_all(x, residual, weight):
        dist.all_reduce(x, group=group)
        return torch_epilogue(x, residual, weight)

    return {
        "torch": (torch_norm, torch_all, torch_epilogue),
        "unfused": (norm, unfused, epilogue),
        "preloaded": (norm, unfused, epilogue),  # what makes it another one is in the environment
        "fused": (norm, fused, epilogue),
    }


def record(function):
    """A CUDA graph of a function, and what the function returned."""
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()  # what the function reads is there
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads of PyTorch's may call CUDA meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        result = function()
    return graph, result


def event_ms(function):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


class Step:
    """A decode step of a batch as something that can be run again and again: a CUDA graph, or on the host the calls."""

    def __init__(self, decoder, batch, norm, reduce, gather):
        self.tokens = torch.zeros(batch, dtype=torch.int64, device=decoder.device)
        self.decoder, self.arguments, self.graph = decoder, (norm, reduce, gather), None
        if decoder.device.type != "cuda":
            return
        self.graph, self.logits = record(lambda: decoder.step(self.tokens, *self.arguments))

    def run(self):
        if self.graph:
            self.graph.replay()
        else:
            self.logits = self.decoder.step(self.tokens, *self.arguments)


def generate(decoder, step):
    """The prompts, then greedily. Returns the new tokens, and a digest of this rank's logits of all steps."""
    digest, produced = hashlib.sha256(), []
    batch, generator = step.tokens.shape[0], torch.Generator().manual_seed(7)
    prompt = torch.randint(decoder.shape.vocabulary, (PROMPT, batch), generator=generator)
    decoder.restart()
    for i in range(PROMPT + NEW):
        if i < PROMPT:
            step.tokens.copy_(prompt[i])
        step.run()
        if not step.logits.isfinite().all():
            raise RuntimeError(f"batch {batch}, step {i}: logits are not finite")
        digest.update(step.logits.view(torch.int16).cpu().numpy().tobytes())
        if i >= PROMPT - 1:
            produced.append(step.tokens.tolist())
    return produced, digest.hexdigest()


def step_ms(step):
    if not step.graph:
        start = time.perf_counter()
        step.run()
        return (time.perf_counter() - start) * 1e3
    return event_ms(step.run)


def measure(decoder, steps, barrier, group):
    """{key of steps: ms of every replay}, the steps taking turns; of the ranks' times the smallest counts."""
    own = {key: [] for key in steps}
    for i in range(WARM_UP + REPLAYS):
        decoder.restart()
        for key, step in steps.items():
            barrier.wait(SILENCE_S)
            ms = step_ms(step)
            if i >= WARM_UP:
                own[key].append(ms)
    ranks = [None] * dist.get_world_size(group)
    dist.all_gather_object(ranks, own, group=group)
    return {key: sorted(map(min, zip(*(rank[key] for rank in ranks)))) for key in steps}


def choose_attention(decoder, batch, group):
    """The faster form of attention here for this batch, rank 0's choice for all."""
    if decoder.device.type != "cuda":
        return "sdpa"
    layer, times = decoder.layers[0], {}
    query = torch.zeros(batch, decoder.kv_heads, decoder.heads // decoder.kv_heads, decoder.shape.head,
                        device=decoder.device, dtype=decoder.dtype)  # fmt: skip
    mask = torch.zeros(decoder.shape.cache, device=decoder.device, dtype=decoder.dtype)
    for name, attend in ATTENTIONS.items():
        graph, _ = record(lambda: [attend(query, layer.keys[:batch], layer.values[:batch], mask) for _ in range(20)])
        graph.replay()
        times[name] = event_ms(graph.replay)
    choice = [min(times, key=times.get)]
    dist.broadcast_object_list(choice, 0, group=group)
    return choice[0]


def run_batch(decoder, batch, names, attention, all_variants, gather, barrier, group):
    attention = attention or choose_attention(decoder, batch, group)
    decoder.attend = ATTENTIONS[attention]
    steps, result = {}, {"batch": batch, "attention": attention, "tokens": {}, "logits": {}}
    for name in names:
        norm, reduce, without = all_variants[name]
        decoder.restart()
        steps[name, "whole"] = Step(decoder, batch, norm, reduce, gather)
        decoder.restart()
        steps[name, "without"] = Step(decoder, batch, norm, without, gather)
        result["tokens"][name], result["logits"][name] = generate(decoder, steps[name, "whole"])
    result["ms"] = measure(decoder, steps, barrier, group)
    return result


def machine(device, backend):
    if device.type == "cpu":
        return {"device": "host", "torch": torch.__version__, "backend": backend}
    return {
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "backend": backend,
    }


def run_rank(rank, ranks, port, barrier, size, batches, names, attention, on_host, pipe):
    """Sends a dict for each batch, then None. `attention`: {batch: one of ATTENTIONS}; what is not there is chosen."""
    device, backend = (torch.device("cpu"), "gloo") if on_host else (gpu_of(torch, rank), "nccl")
    if on_host:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))
    else:
        torch.cuda.set_device(device)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(
        backend, init_method=address, rank=rank, world_size=ranks, device_id=None if on_host else device
    )
    group = dist.group.WORLD
    shape = SHAPES[size]
    communicator = arfusion.Communicator.from_process_group(group, max_tokens=max(batches), hidden=shape.hidden)
    arfusion.ops.register(group, communicator)

    def gather(own):
        everyone = own.new_empty((ranks * own.shape[0], *own.shape[1:]))
        dist.all_gather_into_tensor(everyone, own, group=group)
        return everyone.view(ranks, *own.shape)

    with torch.inference_mode():
        decoder = Decoder(shape, rank, ranks, max(batches), device, torch.bfloat16)
        if rank == 0:
            pipe.send({"machine": machine(device, backend)})
        for batch in batches:
            ways, form = variants(group, shape.eps), attention.get(batch)
            pipe.send(run_batch(decoder, batch, names, form, ways, gather, barrier, group))
    pipe.send(None)
    barrier.wait(SILENCE_S)
    arfusion.ops.unregister(group)
    communicator.destroy()
    dist.destroy_process_group()
