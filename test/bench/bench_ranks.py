# SPDX-License-Identifier: Apache-2.0
"""What the benches in Python share: ranks as processes, and how they take numbers and say what they have found."""

import json
import multiprocessing
import multiprocessing.connection
import os
import socket
import subprocess
import sys
import time

SPAWN = multiprocessing.get_context("spawn")
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def fail(text):
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)
    return 2


def number_list(text):
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise ValueError
    return numbers


def percentile(ordered, fraction):
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def repository_commit():
    command = ["git", "-C", os.path.dirname(os.path.abspath(__file__)), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def write_document(document, output):
    json.dump(document, output, indent=1)
    output.write("\n")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gpu_of(torch, rank):
    return torch.device("cuda", rank % torch.cuda.device_count())


def too_few_gpus(torch, ranks):
    """What is wrong, unless there are enough GPUs for so many ranks, or ranks may share one; None: nothing."""
    count = torch.cuda.device_count()
    shared = count > 0 and os.environ.get("ARFUSION_SHARED_GPU") == "1"
    return None if count >= ranks or shared else f"{ranks} ranks, but {count} GPUs"


def how_it_ended(rank, child):
    child.join(30)
    return f"rank {rank} ended with code {child.exitcode}"


def receive(pipes, children, take, silence_s):
    """Hands rank r's every message to take(r, message) until each has sent None. None, or what went wrong."""
    waiting, deadline = set(range(len(pipes))), time.monotonic() + silence_s
    while waiting:
        watched = [pipes[r] for r in waiting] + [children[r].sentinel for r in waiting]
        ready = multiprocessing.connection.wait(watched, max(0, deadline - time.monotonic()))
        if not ready:
            return f"rank {min(waiting)} said nothing for {silence_s} s"
        for rank in list(waiting):
            if pipes[rank] in ready:
                try:
                    message = pipes[rank].recv()
                except EOFError:
                    return how_it_ended(rank, children[rank])
                deadline = time.monotonic() + silence_s
                if message is None:
                    waiting.remove(rank)
                else:
                    take(rank, message)
            elif children[rank].sentinel in ready:
                return how_it_ended(rank, children[rank])
    return None


def run_ranks(target, ranks, arguments, take, silence_s):
    """target(rank, *arguments, pipe) in a process for each rank. What it sends goes to take(rank, message), its last
    message is None; the ranks are killed when one has ended before that, or none has sent anything for so many seconds.
    None, or what went wrong."""
    pipes, children = [], []
    for rank in range(ranks):
        receiver, sender = SPAWN.Pipe(duplex=False)
        child = SPAWN.Process(target=target, args=(rank, *arguments, sender))
        child.start()
        sender.close()
        pipes.append(receiver)
        children.append(child)
    error = receive(pipes, children, take, silence_s)
    for child in children:
        child.join(0 if error else 30)
        if child.is_alive():
            child.kill()
            child.join()
    return error
