# SPDX-License-Identifier: Apache-2.0
"""test/bench/llama.py, the small model on the host device: the same tokens every way; differences are noticed."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ranks import KIND, PACKAGE

if KIND != "torch":
    raise unittest.SkipTest("the model on the host device needs PyTorch (TEST_ARRAYS=torch)")

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))
import llama  # noqa: E402


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": PACKAGE}
    command = [sys.executable, str(BENCH / "llama.py"), "--device", "host", "--size", "small", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


class Llama(unittest.TestCase):
    def test_the_same_tokens_every_way(self):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "llama.json")
            done = run("--batch", "1,3", "--json", file)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(file, encoding="utf-8") as document:
                said = json.load(document)
        self.assertTrue(said["equal"])
        self.assertEqual(said["machine"]["backend"], "gloo")
        measured = [(m["batch"], m["variant"]) for m in said["measurements"]]
        self.assertEqual(measured, [(b, v) for b in (1, 3) for v in ("torch", "unfused", "fused")])
        for m in said["measurements"]:
            self.assertLess(0, m["without_communication_ms"])
            self.assertLessEqual(m["p10_ms"], m["ms_per_token"])
            self.assertLessEqual(m["ms_per_token"], m["p90_ms"])
        self.assertEqual([set(row) for row in said["comparison"]], [{"batch", "fewer_ms_than_torch_percent"}] * 2)
        self.assertIn("| 3 | ", done.stdout)

    def test_differences_are_noticed(self):
        results = llama.Results()
        for name in ("torch", "unfused", "fused"):
            for rank in range(2):
                answer = {"batch": 1, "attention": "sdpa", "tokens": {name: [[5], [6]]}, "logits": {name: f"{rank}"}}
                results.take(rank, {**answer, "ms": {}})
        self.assertEqual(results.check(1, 2), [])
        results.logits[1, "unfused", 1] = "other"
        results.tokens[1, "torch", 1] = [[5], [7]]
        self.assertEqual(
            results.check(1, 2),
            ["batch 1: the ranks' tokens differ with torch", "batch 1: the logits of unfused are not those of fused"],
        )

    def test_wrong_arguments(self):
        for words, arguments in (
            ("--preload: there is no NCCL on the host", ("--preload", "libarfusion-nccl.so")),
            ("invalid number_list value: '0,1'", ("--batch", "0,1")),
        ):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
