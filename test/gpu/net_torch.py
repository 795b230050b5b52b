# SPDX-License-Identifier: Apache-2.0
"""An unmodified PyTorch program for the networks of NCCL: a rank (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) makes
each kind of call with sizes around the steps of the proxies, several of them in flight, and checks the results."""
import os

import torch
import torch.distributed as dist

COUNTS = [1, 1000, 65536, 1 << 20, (4 << 20) + 3]


def expect(right, what):
    if not right:
        raise SystemExit(f"{what} is wrong")


def values(rank, count, device):
    return (torch.arange(count, device=device) % 61 + rank).to(torch.float32)


def collectives(rank, world, device, count):
    mine = [values(r, count, device) for r in range(world)]
    total = sum(mine)
    tensor = mine[rank].clone()
    dist.all_reduce(tensor)
    expect(torch.equal(tensor, total), f"an allreduce of {count}")
    tensor = mine[rank].to(torch.bfloat16)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    expect(torch.equal(tensor, mine[world - 1].to(torch.bfloat16)), f"a maximum of {count}")
    gathered = torch.empty(world * count, device=device)
    dist.all_gather_into_tensor(gathered, mine[rank])
    expect(torch.equal(gathered, torch.cat(mine)), f"an all-gather of {count}")
    scattered = torch.empty(count, device=device)
    dist.reduce_scatter_tensor(scattered, torch.cat([mine[rank] + part for part in range(world)]))
    expect(torch.equal(scattered, total + world * rank), f"a reduce-scatter of {count}")
    tensor = mine[rank].clone()
    dist.broadcast(tensor, src=world - 1)
    expect(torch.equal(tensor, mine[world - 1]), f"a broadcast of {count}")


def messages(rank, world, device, count):
    """Several at once, in both directions, and all to all."""
    left, right = (rank - 1) % world, (rank + 1) % world
    received = [torch.empty(count, device=device) for _ in range(3)]
    calls = [dist.P2POp(dist.isend, values(rank + 10 * k, count, device), right) for k in range(3)]
    calls += [dist.P2POp(dist.irecv, received[k], left) for k in range(3)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    for k in range(3):
        expect(torch.equal(received[k], values(left + 10 * k, count, device)), f"message {k} of {count}")
    swapped = torch.empty(world * count, device=device)
    dist.all_to_all_single(swapped, torch.cat([values(10 * rank + r, count, device) for r in range(world)]))
    expected = torch.cat([values(10 * r + rank, count, device) for r in range(world)])
    expect(torch.equal(swapped, expected), f"all to all of {count}")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    for count in COUNTS:
        collectives(rank, world, device, count)
        messages(rank, world, device, count)
    second = dist.new_group(list(range(world)))  # a communicator more, beside the first
    tensor = values(rank, 100000, device)
    dist.all_reduce(tensor, group=second)
    expect(torch.equal(tensor, sum(values(r, 100000, device) for r in range(world))), "the second group's allreduce")
    dist.destroy_process_group()
    print(f"rank {rank}: right")


main()
