#!/usr/bin/env python3
"""Sluice and llama.cpp on a model that is larger than the memory they get, in alternation, and the ratio.

    streaming.py MODEL.gguf --limit 8GiB [--slots 64] [--pp 64] [--tg 32] [--rounds 3] [--threads N] [--peer-python P]

Each runs in a control group with a limit of memory (needs root, and control groups of version 1 or 2), from a file that
was put out of the page cache. llama.cpp maps the file, so the system keeps what fits and reads the rest again and again;
Sluice keeps --slots experts of each layer. Both draw random tokens and leave sampling out. Without --peer-python (a
Python that has llama-cpp-python, see peer_bench.py) only Sluice is measured. Standard library only.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
UNITS = {"KiB": 10, "MiB": 20, "GiB": 30}


def size(text):
    for unit, bits in UNITS.items():
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * 2**bits)
    return int(text)


class ControlGroup:
    """A control group with a limit of memory, for the programs that are started in it."""

    def __init__(self, limit):
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        self.v2 = not v1.is_dir()
        self.folder = (pathlib.Path("/sys/fs/cgroup") if self.v2 else v1) / f"sluice-bench-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.max" if self.v2 else "memory.limit_in_bytes")).write_text(str(limit))

    def run(self, command):
        """The JSON object that a command prints."""
        enter = lambda: (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, preexec_fn=enter)
        if done.returncode != 0:
            sys.exit(f"error: {' '.join(map(str, command))} failed:\n{done.stderr.strip()}")
        return json.loads(done.stdout)

    def remove(self):
        self.folder.rmdir()


def put_out_of_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--limit", type=size, required=True, help="memory that each program gets, such as 8GiB")
    parser.add_argument("--slots", type=int, default=64, help="experts a layer that Sluice keeps (default 64)")
    parser.add_argument("--pp", type=int, default=64)
    parser.add_argument("--tg", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sluice", type=pathlib.Path, default=HERE.parent / "build/release/sluice")
    parser.add_argument("--peer-python", type=pathlib.Path)
    a = parser.parse_args()
    lengths = ["--pp", a.pp, "--tg", a.tg, "--reps", 1, "--threads", a.threads]
    ours, theirs = [], []
    group = ControlGroup(a.limit)
    try:
        for _ in range(a.rounds):
            put_out_of_cache(a.model)
            ours.append(group.run([a.sluice, "bench", "-m", a.model, "--json", *lengths, "--moe-slot-bank", a.slots,
                                   "--no-warm-start"]))
            if a.peer_python:
                put_out_of_cache(a.model)
                theirs.append(group.run([a.peer_python, HERE / "peer_bench.py", a.model, "--json", "--quiet",
                                         "--no-repack", "--no-warmup", *lengths]))
    finally:
        group.remove()
    middle = lambda name: statistics.median(facts[name] for facts in ours)
    out = {"limit_bytes": a.limit, "slots": a.slots, "rounds": a.rounds,
           "prompt_tps": middle("pp_tps"), "answer_tps": middle("tg_tps"), "disk_gbps": middle("disk_gbps"),
           "answer_share_of_disk": middle("answer_share_of_disk"), "peak_rss_bytes": middle("peak_rss_bytes")}
    for name, part in (("prompt", "pp_tps"), ("decode", "tg_tps")):
        if theirs:
            peer = statistics.median(facts[name]["tokens_per_s"] for facts in theirs)
            out[f"peer_{name}_tps"], out[f"{name}_ratio"] = peer, middle(part) / peer
    print(json.dumps(out, indent=2))


if __name__ == "__main__":
    main()
