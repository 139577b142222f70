#!/usr/bin/env python3
"""Sluice and llama.cpp on the same file, in alternation, and the ratios of their speeds.

    versus.py MODEL.gguf [--pp 512] [--tg 64] [--depth 0] [--streams N] [--rounds 3] [--threads N]

A round runs `sluice bench` once and peer_bench.py once for each way to run llama.cpp: weights repacked or in the
file's layout, mapped or read into memory. Whatever slows the machine for a while so slows both. Printed are medians
over the rounds; llama.cpp's is that of its fastest way, chosen for each figure apart. --peer-python names a Python that
has llama-cpp-python (peer_bench.py says how to install it).

Both draw random tokens and leave sampling out. Both are one process at a time, so that neither waits for the other's
threads or memory; a large model is therefore read once for each run.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WAYS = {
    "mmap+repack": [],
    "mmap": ["--no-repack"],
    "read+repack": ["--no-mmap"],
    "read": ["--no-mmap", "--no-repack"],
}


def run(command):
    """The JSON object that a command prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))} failed:\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def sluice_figures(a):
    common = [a.sluice, "bench", "-m", a.model, "--json", "--reps", 1, "--depth", a.depth, "-t", a.threads]
    common += ["--tg", a.tg]
    if a.streams > 1:
        return {"decode": run(common + ["--streams", a.streams])["streams_tps"]}
    facts = run(common + ["--pp", a.pp])
    return {"prompt": facts["pp_tps"], "decode": facts["tg_tps"], "share": facts["share_of_bandwidth"]}


def peer_figures(a, way):
    pp = 0 if a.streams > 1 else a.pp
    facts = run([a.peer_python, HERE / "peer_bench.py", a.model, "--json", "--quiet", "--reps", 1, "--pp", pp,
                 "--tg", a.tg, "--depth", a.depth, "--streams", a.streams, "--threads", a.threads, *WAYS[way]])
    return {name: facts[name]["tokens_per_s"] for name in ("prompt", "decode") if facts[name]}


def report(a, sluice, peers):
    """Medians and ratios; `sluice` is a list of figures by round, `peers` one for each way."""
    out = {"model": str(a.model), "threads": a.threads, "rounds": a.rounds, "depth": a.depth, "streams": a.streams}
    for name in ("prompt", "decode"):
        if name not in sluice[0]:
            continue
        ours = statistics.median(figures[name] for figures in sluice)
        by_way = {way: statistics.median(figures[name] for figures in rounds) for way, rounds in peers.items()}
        best = max(by_way, key=by_way.get)
        out[name] = {"sluice_tps": ours, "peer_tps": by_way[best], "ratio": ours / by_way[best], "peer_way": best,
                     "peer_by_way": by_way}
    if "share" in sluice[0]:
        out["share_of_bandwidth"] = statistics.median(figures["share"] for figures in sluice)
    return out


def show(a, out):
    print(f"{a.model.name}, {a.threads} threads, medians of {a.rounds}")
    print(f"{'tokens/s':<24}{'Sluice':>10}{'llama.cpp':>12}{'ratio':>8}")
    what = {"prompt": f"prompt of {a.pp}", "decode": f"answer of {a.tg}"}
    if a.streams > 1:
        what["decode"] = f"{a.streams} answers of {a.tg}"
    if a.depth:
        what["decode"] += f" at {a.depth}"
    for name in ("prompt", "decode"):
        if name in out:
            f = out[name]
            print(f"{what[name]:<24}{f['sluice_tps']:>10.1f}{f['peer_tps']:>12.1f}{f['ratio']:>8.2f}   {f['peer_way']}")
    if "share_of_bandwidth" in out:
        print(f"Sluice's answer takes {100 * out['share_of_bandwidth']:.0f} % of the memory bandwidth")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.gguf", type=pathlib.Path)
    parser.add_argument("--pp", type=int, default=512, help="tokens of the prompt (default 512)")
    parser.add_argument("--tg", type=int, default=64, help="tokens to generate (default 64)")
    parser.add_argument("--depth", type=int, default=0, help="tokens in the context before (default 0)")
    parser.add_argument("--streams", type=int, default=1, help="sequences that generate together (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both (default 2)")
    parser.add_argument("--ways", default=",".join(WAYS), metavar="WAY,...",
                        help="ways to run llama.cpp (default: %(default)s)")
    parser.add_argument("--sluice", type=pathlib.Path, default=HERE.parent / "build/release/sluice")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    a = parser.parse_args()
    ways = a.ways.split(",")
    for way in ways:
        if way not in WAYS:
            parser.error(f"--ways {way}: must be some of {','.join(WAYS)}")
    if min(a.pp, a.tg, a.rounds, a.threads, a.streams) < 1:
        parser.error("counts must be at least 1")
    sluice, peers = [], {way: [] for way in ways}
    for turn in range(a.rounds):
        print(f"round {turn + 1} of {a.rounds}", file=sys.stderr)
        sluice.append(sluice_figures(a))
        for way in ways:
            peers[way].append(peer_figures(a, way))
    out = report(a, sluice, peers)
    if a.json:
        print(json.dumps(out))
    else:
        show(a, out)


if __name__ == "__main__":
    main()
