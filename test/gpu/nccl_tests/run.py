# SPDX-License-Identifier: Apache-2.0
"""nccl-tests under libarfusion-nccl.so: are its results right, and is it faster than without?

  run.py correct|forms|programs|speed --programs FOLDER --front FILE --out FOLDER

  correct    all_reduce_perf of half, bfloat16 and float, all operations, in and out of place, 1 element to 256 MB and
             odd counts: one process with two GPUs, two threads, two processes; ARFUSION_SHARED_GPU=1: two processes
  forms      sums under graph replay, blocking and not, in larger groups, on the default stream, on odd and on
             registered buffers
  programs   all the other programs still pass
  speed      with and without by turns in one run: 8 B to 64 KiB at least 1.7 times as fast, 4 MiB and up not slower
             than 0.99

Each program must find no wrong element, and where sums were asked for, the statistics must say that some were taken.
Ends with `N passed, N failed`; the tables are in the folder `out`.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

LIMIT = 200  # seconds a program
TIMEOUT = 124
LAYOUTS = {"two GPUs": (1, ["-g", "2"]), "two threads": (1, ["-t", "2", "-g", "1"]), "two processes": (2, ["-g", "1"])}
if os.environ.get("ARFUSION_SHARED_GPU") == "1":  # NCCL has one rank a process there
    LAYOUTS = {"two processes": LAYOUTS["two processes"]}
FASTER, NOT_SLOWER = 1.7, 0.99


def run(command, processes, preload, log):
    """Runs a program; gives its exit status, rank 0's output, and the statistics of all its processes."""
    environment = dict(os.environ, ARFUSION_STATS="1", WORLD_SIZE=str(processes))
    if preload:
        environment["LD_PRELOAD"] = ":".join(filter(None, (preload, os.environ.get("LD_PRELOAD"))))
    with tempfile.NamedTemporaryFile() as ranks_file:
        environment["RANKS_FILE"] = ranks_file.name
        children = [
            subprocess.Popen(command, env=dict(environment, RANK=str(rank)), stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
            for rank in range(processes)
        ]
        outputs, status = [], 0
        for child in children:
            try:
                outputs.append(child.communicate(timeout=LIMIT)[0])
            except subprocess.TimeoutExpired:
                for each in children:
                    each.kill()
                outputs.append(child.communicate()[0])
                status = TIMEOUT
            status = status or child.returncode
    with open(log, "w", encoding="utf-8") as file:
        file.write(" ".join(command) + "\n" + "\n".join(outputs))
    return status, outputs[0], taken_of("\n".join(outputs))


def taken_of(text):
    return sum(int(number) for number in re.findall(r"ARFUSION_STATS \S+: \d+ ncclAllReduce, (\d+) taken", text))


def rows_of(text):
    """(bytes, [(microseconds, wrong) out of place, then in place]) of each line of the tables."""
    rows = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 12 and words[0].isdigit() and words[1].isdigit():  # not all name an operation
            rows.append((int(words[0]), [(float(part[0]), part[3]) for part in (words[-8:-4], words[-4:])]))
    return rows


def is_right(status, text):
    """No wrong element: by the exit status, by the last lines, and by each line of the tables."""
    rows = rows_of(text)
    wrong = [wrong for _, row in rows for _, wrong in row if wrong not in ("0", "N/A")]
    return status == 0 and rows and not wrong and re.search(r"Out of bounds values\s*:\s*0\s+OK", text)


class Cases:
    def __init__(self, arguments):
        self.arguments, self.passed, self.failed = arguments, 0, 0

    def case(self, name, program, options, layout, must_take):
        processes, placement = LAYOUTS[layout]
        log = os.path.join(self.arguments.out, re.sub(r"[^\w.-]+", "-", f"{program}-{name}-{layout}") + ".log")
        command = [os.path.join(self.arguments.programs, program + "_perf"), *placement, *options]
        status, text, taken = run(command, processes, self.arguments.front, log)
        good = bool(is_right(status, text)) and (taken > 0 or not must_take)
        self.tell(good, f"{program} {name}, {layout}: exit {status}, {taken} taken", text)

    def tell(self, good, line, text=""):
        self.passed += good
        self.failed += not good
        print(("passed " if good else "FAILED ") + line, flush=True)
        if not good:
            print("\n".join(text.splitlines()[-12:]), flush=True)


def correct(cases):
    for layout in LAYOUTS:
        for dtype, size in (("half", 2), ("bfloat16", 2), ("float", 4)):
            for sizes, words in (
                ("1 element to 256 MB", ["-b", str(size), "-e", "256M", "-f", "2"]),
                ("odd counts", ["-b", str(size * 2), "-e", str(size * 4099), "-i", str(size * 241)]),
            ):
                options = [*words, "-d", dtype, "-n", "4", "-w", "2", "-c", "1"]
                cases.case(f"{dtype} {sizes} sum", "all_reduce", [*options, "-o", "sum"], layout, True)
                few = ["-f", "16"] if "-f" in words else []
                cases.case(f"{dtype} {sizes} all operations", "all_reduce", [*options, *few, "-o", "all"], layout, True)


def forms(cases):
    sizes = ["-b", "2", "-e", "16M", "-f", "8", "-d", "half", "-o", "sum", "-c", "1", "-n", "20", "-w", "5"]
    for layout in LAYOUTS:
        for name, options, must_take in (
            ("graph replay", ["-G", "4"], True),
            ("blocking 0", ["--blocking", "0"], True),
            ("blocking 1", ["--blocking", "1"], True),
            ("8 in a group", ["-m", "8"], False),  # not alone in their group
            ("the default stream", ["-y", "1"], True),
            ("from an odd element", ["-u", "1"], True),
            ("registered buffers", ["-R", "1"], True),
        ):
            cases.case(name, "all_reduce", [*sizes, *options], layout, must_take)


def programs(cases):
    sizes = ["-b", "8", "-e", "16M", "-f", "8", "-n", "5", "-w", "2", "-c", "1"]
    there = {name.removesuffix("_perf") for name in os.listdir(cases.arguments.programs) if name.endswith("_perf")}
    for program in sorted(there - {"all_reduce"}):
        for layout in [name for name in LAYOUTS if name != "two threads"]:
            cases.case("float", program, sizes, layout, False)


def speed(cases):
    """Medians of several turns, since the clocks drift."""
    document = {}
    options = ["-b", "8", "-e", "64M", "-f", "2", "-d", "half", "-n", "200", "-w", "50", "-c", "0"]
    for layout in ("two GPUs", "two processes"):
        processes, placement = LAYOUTS[layout]
        command = [os.path.join(cases.arguments.programs, "all_reduce_perf"), *placement, *options]
        times = {"with": {}, "without": {}}
        for turn in range(5):
            for kind in ("with", "without"):
                log = os.path.join(cases.arguments.out, f"speed-{layout.replace(' ', '-')}-{kind}-{turn}.log")
                status, text, _ = run(command, processes, cases.arguments.front if kind == "with" else None, log)
                if status:
                    cases.tell(False, f"speed, {layout}, {kind}: exit {status}", text)
                    return
                for size, row in rows_of(text):
                    times[kind].setdefault(size, []).append(row[0][0])
        document[layout] = judge(cases, layout, times)
    with open(os.path.join(cases.arguments.out, "speed.json"), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)


def judge(cases, layout, times):
    ratios = {}
    for size in sorted(times["with"]):
        own, nccl = (statistics.median(times[kind][size]) for kind in ("with", "without"))
        ratios[size] = {"with_us": own, "without_us": nccl, "ratio": nccl / own}
        print(f"{layout}, {size:>9} bytes: {own:9.2f} µs with, {nccl:9.2f} without: {nccl / own:.2f}", flush=True)
    small = [row["ratio"] for size, row in ratios.items() if size <= 64 << 10]
    large = [row["ratio"] for size, row in ratios.items() if size >= 4 << 20]
    cases.tell(min(small) >= FASTER, f"{layout}, up to 64 KiB: at least {min(small):.2f} times as fast ({FASTER})")
    cases.tell(min(large) >= NOT_SLOWER, f"{layout}, from 4 MiB: at least {min(large):.2f} ({NOT_SLOWER})")
    return ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("correct", "forms", "programs", "speed"))
    parser.add_argument("--programs", required=True)
    parser.add_argument("--front", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    cases = Cases(arguments)
    globals()[arguments.part](cases)
    print(f"{cases.passed} passed, {cases.failed} failed")
    return cases.failed > 0


if __name__ == "__main__":
    sys.exit(main())
