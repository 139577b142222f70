#!/usr/bin/env python3
"""Holds the limits that `sluice bench --machine` measures against independent measurements of the same machine.

    check_machine.py [--sluice PATH] [--threads N] [--rounds 5] [--file FILE]

A weak probe would flatter every share of a limit that is printed. So this compiles a loop of its own (C, whatever the
compiler makes of it with -O3 -march=native), runs it and Sluice's probe in alternation, and prints medians and the
ratio; below 1 Sluice's probe is the weaker one. Memory: a sum over 32-bit integers, each thread its own gigabyte's
part, as STREAM does it; and Debian's `mbw -n 5 512` where that is installed (it copies, so its rate counts twice).
Arithmetic: multiply-adds of f32 in registers. With --file: `fio` reading that file past the page cache, where installed.
"""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST_THREADS = 1024, CHAINS = 96, ROUNDS = 4000000, PASSES = 5 };
static const size_t kBytes = (size_t)1 << 30;
static uint32_t *memory;
static size_t threads;
static volatile uint32_t sink;
static volatile float float_sink;
static pthread_barrier_t gate;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static uint32_t sum(const uint32_t *p, size_t n) {
  uint32_t s = 0;
  for (size_t i = 0; i < n; ++i) s += p[i];
  return s;
}
static float fma_loop(void) {
  float x[CHAINS] = {0};
  float half = 0.5f;
  __asm__ volatile("" : "+r"(half));
  for (int r = 0; r < ROUNDS; ++r)
    for (int i = 0; i < CHAINS; ++i) x[i] = x[i] * half + 1.0f;
  float s = 0;
  for (int i = 0; i < CHAINS; ++i) s += x[i];
  return s;
}
static void *work(void *argument) {
  size_t i = (size_t)argument, n = kBytes / sizeof *memory / threads;
  memset(memory + i * n, 1, n * sizeof *memory);
  for (int pass = 0; pass < PASSES; ++pass) {
    pthread_barrier_wait(&gate);
    double start = now();
    sink = sum(memory + i * n, n);
    pthread_barrier_wait(&gate);
    if (i == 0) printf("read %f\n", kBytes / (now() - start) / 1e9);
    pthread_barrier_wait(&gate);
    start = now();
    float_sink = fma_loop();
    pthread_barrier_wait(&gate);
    if (i == 0) printf("fma %f\n", 2.0 * CHAINS * ROUNDS * threads / (now() - start) / 1e9);
  }
  return 0;
}
int main(int argc, char **argv) {
  threads = argc > 1 ? atoi(argv[1]) : 1;
  if (threads < 1 || threads > MOST_THREADS) return 1;
  memory = mmap(0, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, kBytes, MADV_HUGEPAGE);
  pthread_barrier_init(&gate, 0, threads);
  pthread_t t[MOST_THREADS];
  for (size_t i = 1; i < threads; ++i) pthread_create(&t[i], 0, work, (void *)i);
  work(0);
  for (size_t i = 1; i < threads; ++i) pthread_join(t[i], 0);
  return 0;
}
"""


def output(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))} failed:\n{done.stderr.strip()}")
    return done.stdout


def compile_loop(folder):
    source, program = pathlib.Path(folder) / "loop.c", pathlib.Path(folder) / "loop"
    source.write_text(SOURCE)
    output(["cc", "-O3", "-march=native", "-ffast-math", source, "-o", program, "-pthread"])
    return program


def medians(text):
    """The medians of a loop's lines by their first word."""
    found = {}
    for name, value in re.findall(r"^(\w+) ([\d.]+)$", text, re.M):
        found.setdefault(name, []).append(float(value))
    return {name: statistics.median(values) for name, values in found.items()}


def mbw():
    """GB/s of memory traffic that mbw's memcpy makes on one thread: what it reads and what it writes."""
    rates = re.findall(r"^AVG\s+Method: MEMCPY.*Copy: ([\d.]+) MiB/s", output(["mbw", "-q", "-n", 5, "-t", 0, 512]), re.M)
    return 2 * float(rates[0]) * (1 << 20) / 1e9


def fio(file):
    job = ["fio", "--name=read", f"--filename={file}", "--direct=1", "--readonly", "--rw=read", "--bs=8m",
           "--ioengine=psync", "--runtime=3", "--time_based", "--output-format=json"]
    return json.loads(output(job))["jobs"][0]["read"]["bw_bytes"] / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", type=pathlib.Path, default=HERE.parent / "build/release/sluice")
    parser.add_argument("--threads", type=int, default=0, help="(default: as many as Sluice takes)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--file", type=pathlib.Path, help="a large file on the disk to measure")
    a = parser.parse_args()
    machine = [a.sluice, "bench", "--machine", "--json"]
    machine += ["-t", a.threads] if a.threads else []
    machine += ["-m", a.file] if a.file else []
    figures = {}  # by name: Sluice's, the other's

    def add(name, ours, theirs):
        figures.setdefault(name, ([], []))
        figures[name][0].append(ours)
        figures[name][1].append(theirs)

    with tempfile.TemporaryDirectory() as folder:
        loop = compile_loop(folder)
        for _ in range(a.rounds):
            ours = json.loads(output(machine))
            threads = str(ours["threads"])
            for count in sorted({"1", threads}, key=int):
                theirs = medians(output([loop, count]))
                add(f"memory read, {count} threads, GB/s: C loop", ours["read_gbps"][count], theirs["read"])
                f32 = next(iter(ours.get("f32_gops_by_threads", {}).values()), None)
                if f32:
                    add(f"f32 multiply-add, {count} threads, GOP/s: C loop", f32[count], theirs["fma"])
            if shutil.which("mbw"):
                add("memory, 1 thread, GB/s: mbw (reads and writes)", ours["read_gbps"]["1"], mbw())
            if a.file and shutil.which("fio") and ours["disk"]["direct_gbps"]:
                add("disk read, GB/s: fio", ours["disk"]["direct_gbps"], fio(a.file))
    print(f"{'medians of ' + str(a.rounds):<52}{'Sluice':>9}{'other':>9}{'ratio':>7}")
    for name, (ours, theirs) in figures.items():
        one, other = statistics.median(ours), statistics.median(theirs)
        print(f"{name:<52}{one:>9.2f}{other:>9.2f}{one / other:>7.2f}")


if __name__ == "__main__":
    main()
