# SPDX-License-Identifier: Apache-2.0
"""test/bench/bench_ranks.py: what ranks send arrives, and one that ends or says nothing ends all of them."""

import os
import pathlib
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import bench_ranks  # noqa: E402


def speaks(rank, ranks, barrier, pipe):
    barrier.wait(60)
    for i in range(rank + 1):
        pipe.send((ranks, i))
    pipe.send(None)
    barrier.wait(60)


def dies(rank, pipe):
    if rank == 1:
        os._exit(7)
    time.sleep(600)


def is_silent(rank, pipe):
    if rank == 1:
        pipe.send(None)
    time.sleep(600)


class BenchRanks(unittest.TestCase):
    def run_ranks(self, target, arguments, silence_s):
        heard = []
        start = time.monotonic()
        error = bench_ranks.run_ranks(target, 2, arguments, lambda *message: heard.append(message), silence_s)
        self.assertLess(time.monotonic() - start, 60)
        return error, sorted(heard)

    def test_messages_arrive(self):
        error, heard = self.run_ranks(speaks, (2, bench_ranks.SPAWN.Barrier(2)), 60)
        self.assertIsNone(error)
        self.assertEqual(heard, [(0, (2, 0)), (1, (2, 0)), (1, (2, 1))])

    def test_a_rank_that_dies(self):
        self.assertEqual(self.run_ranks(dies, (), 60), ("rank 1 ended with code 7", []))

    def test_a_rank_that_says_nothing(self):
        self.assertEqual(self.run_ranks(is_silent, (), 2), ("rank 0 said nothing for 2 s", []))


if __name__ == "__main__":
    unittest.main()
