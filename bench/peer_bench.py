#!/usr/bin/env python3
"""Measure llama.cpp on a GGUF model, as a peer to compare an inference engine with.

This is an instrument for developers.  It drives llama.cpp through the low-level
bindings of llama-cpp-python (no chat templates, no sampling chain, no server), so
that speed, memory, disk traffic and logits can be set side by side with another
engine that reads the same file on the same machine.

Install (Python 3.9 or newer; compiles llama.cpp, about 3-6 minutes on two cores):

    CMAKE_ARGS="-DGGML_NATIVE=ON" pip install llama-cpp-python==0.3.36

It has been checked with 0.3.36 (llama.cpp commit 0c1e57098) only: the binding's
structures follow llama.cpp's, so another version may need other field names.

Modes (the first is the default; each prints one JSON object on standard output)

  peer_bench.py MODEL.gguf [bench]        prompt and decode speed, load time, memory, disk
      --pp 512 --tg 64 --depth 0 --reps 2 --batch 512 --ubatch 512 --threads 2
      --no-mmap --no-repack --kv-type q8_0 --flash-attn auto --streams 1
  peer_bench.py MODEL.gguf --greedy 64 --tokens 1,2,3
      greedy continuation: ids, and for each step the best and second-best logit
  peer_bench.py MODEL.gguf --logits-out F.npy --tokens 1,2,3
      float32 logits after every given token, shape [tokens, vocabulary]
  peer_bench.py MODEL.gguf perplexity --text F [--chunk 512]
      the convention of llama.cpp's own perplexity tool: cut the text into chunks,
      score the second half of each

What is measured in bench mode
  * prompt: --pp random tokens in calls of --batch tokens, computed in pieces of
    --ubatch; only the last one's logits are asked for.
  * decode: --tg single random tokens, one call each, after --depth tokens of context
    (with --streams N: N sequences with a token each per call).  Sampling is left out.
  * Each repetition starts from an empty context.  A warm-up of one prompt piece
    and two single tokens comes first (--no-warmup: none); it is timed apart.
  * cpu_s is user plus system time of the process, so cpu_s / wall_s is the number of
    busy cores (llama.cpp's threads spin while they wait, so this is an upper bound
    of the useful work).
  * disk_read_bytes is what the process made the block layer read (/proc/self/io);
    reads that the page cache served are not in it, those of a memory-mapped file
    that went to the disk are.
  * peak_rss is VmHWM; peak_anon and peak_file are the largest of the samples that a
    thread takes of RssAnon and RssFile (twice a second), so they need not be of the
    same moment.

On Linux only the memory and disk figures are complete; elsewhere they are null.
"""
import argparse
import ctypes
import json
import os
import platform
import random
import sys
import threading
import time

KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20}


# ------------------------------------------------------------------ the process
def status_kib():
    out = {}
    try:
        with open("/proc/self/status") as f:
            for line in f:
                key, _, rest = line.partition(":")
                if key in ("VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem"):
                    out[key] = int(rest.split()[0])
    except OSError:
        pass
    return out


def disk_read():
    try:
        with open("/proc/self/io") as f:
            for line in f:
                if line.startswith("read_bytes:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def major_faults():
    try:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    except ImportError:
        return None


class Watch(threading.Thread):
    """Keeps the largest RssAnon and RssFile seen."""

    def __init__(self, period=0.5):
        super().__init__(daemon=True)
        self.period, self.peak, self.halt = period, {}, threading.Event()

    def sample(self):
        for k, v in status_kib().items():
            self.peak[k] = max(v, self.peak.get(k, 0))

    def run(self):
        while not self.halt.wait(self.period):
            self.sample()

    def report(self):
        self.sample()
        mib = {k: round(v / 1024.0, 1) for k, v in self.peak.items()}
        return {"peak_rss_mib": mib.get("VmHWM"), "peak_anon_mib": mib.get("RssAnon"),
                "peak_file_mib": mib.get("RssFile")}


class Span:
    """Wall time, CPU time, disk reads and major faults between enter and exit."""

    def __enter__(self):
        self.io, self.maj, self.cpu, self.t = disk_read(), major_faults(), time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_):
        self.wall = time.perf_counter() - self.t
        self.cpu = time.process_time() - self.cpu
        io, maj = disk_read(), major_faults()
        self.io = None if io is None or self.io is None else io - self.io
        self.maj = None if maj is None or self.maj is None else maj - self.maj

    def facts(self):
        return {"wall_s": round(self.wall, 4), "cpu_s": round(self.cpu, 3),
                "disk_read_bytes": self.io, "major_faults": self.maj}


def quantile(values, q):
    v = sorted(values)
    return v[min(len(v) - 1, int(q * len(v)))] if v else None


# -------------------------------------------------------------------- the engine
class Peer:
    """A model and one context of llama.cpp, through the low-level bindings."""

    def __init__(self, a, n_ctx, n_seq=1, outputs=0):
        import llama_cpp as L
        self.L, self.a, self.log, self.repacked, self.streams = L, a, [], {}, n_seq

        def on_log(level, text, _):
            s = text.decode("utf-8", "replace")
            if "repack tensor" in s:
                kind = "repacked to " + s.split()[-1]
                self.repacked[kind] = self.repacked.get(kind, 0) + 1
            elif "buffer size" in s or "Gated Delta Net" in s or "Flash Attention" in s:
                self.log.append(s.strip())
            if a.verbose or (level == 4 and not a.quiet):      # 4 is an error; the rest stays silent
                sys.stderr.write(s)
        self._cb = L.llama_log_callback(on_log)                # kept: C holds the pointer
        L.llama_log_set(self._cb, ctypes.c_void_p(0))
        L.llama_backend_init()

        mp = L.llama_model_default_params()
        mp.n_gpu_layers = 0
        if hasattr(mp, "load_mode"):
            mp.load_mode = (L.LLAMA_LOAD_MODE_DIRECT_IO if a.direct_io else
                            L.LLAMA_LOAD_MODE_NONE if a.no_mmap else L.LLAMA_LOAD_MODE_MMAP)
        else:                                                  # older bindings
            mp.use_mmap = not a.no_mmap
        if a.no_repack:
            mp.use_extra_bufts = False
        with Span() as self.load:
            self.model = L.llama_model_load_from_file(os.fsencode(a.model), mp)
        if not self.model:
            sys.exit("cannot load %s (try --verbose)" % a.model)
        self.vocab = L.llama_model_get_vocab(self.model)
        self.n_vocab = L.llama_vocab_n_tokens(self.vocab)

        cp = L.llama_context_default_params()
        cp.n_ctx = n_ctx * n_seq
        cp.n_batch = max(a.batch, n_seq)
        cp.n_ubatch = min(max(a.ubatch, n_seq), cp.n_batch)
        cp.n_seq_max = n_seq
        cp.n_threads = a.threads
        cp.n_threads_batch = a.threads_batch or a.threads
        cp.flash_attn_type = {"auto": -1, "off": 0, "on": 1}[a.flash_attn]
        cp.type_k = KV_TYPES[a.kv_type]
        cp.type_v = KV_TYPES[a.kv_type_v or a.kv_type]
        cp.no_perf = True
        if outputs and hasattr(cp, "n_outputs_max"):
            cp.n_outputs_max = max(outputs, n_seq)             # keeps the logits buffer small
        with Span() as self.init:
            self.ctx = L.llama_init_from_model(self.model, cp)
        if not self.ctx:
            sys.exit("cannot create a context (try --verbose)")
        self.n_ctx, self.n_batch = n_ctx, cp.n_batch
        self.batch = L.llama_batch_init(cp.n_batch, 0, 1)

    def clear(self):
        self.L.llama_memory_clear(self.L.llama_get_memory(self.ctx), True)

    def decode(self, items):
        """items: (token, position, sequence, wanted) ..., at most n_batch of them."""
        b = self.batch
        b.n_tokens = len(items)
        for i, (tok, pos, seq, want) in enumerate(items):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = tok, pos, 1, want
            b.seq_id[i][0] = seq
        rc = self.L.llama_decode(self.ctx, b)
        if rc:
            sys.exit("llama_decode returned %d" % rc)
        self.L.llama_synchronize(self.ctx)

    def prompt(self, tokens, start=0, seq=0, want_last=True):
        n = len(tokens)
        for i in range(0, n, self.n_batch):
            j = min(n, i + self.n_batch)
            self.decode([(tokens[k], start + k, seq, int(want_last and k == n - 1)) for k in range(i, j)])

    def row(self, i):
        import numpy as np
        p = self.L.llama_get_logits_ith(self.ctx, i)
        return np.ctypeslib.as_array(p, shape=(self.n_vocab,))

    def tokenize(self, text, special):
        data = text.encode("utf-8")
        buf = (ctypes.c_int32 * (len(data) + 16))()
        n = self.L.llama_tokenize(self.vocab, data, len(data), buf, len(buf), special, special)
        if n < 0:
            sys.exit("cannot tokenize: %d" % n)
        return list(buf[:n])

    def facts(self):
        L = self.L
        desc = ctypes.create_string_buffer(256)
        L.llama_model_desc(self.model, desc, 256)
        return {
            "model": os.path.basename(self.a.model), "desc": desc.value.decode(),
            "model_bytes": L.llama_model_size(self.model), "parameters": L.llama_model_n_params(self.model),
            "vocab": self.n_vocab, "bindings": getattr(L, "__version__", None),
            "system": L.llama_print_system_info().decode(), "buffers": self.log, "repacked_tensors": self.repacked,
            "threads": self.a.threads, "batch": self.n_batch, "ubatch": min(self.a.ubatch, self.n_batch),
            "load_mode": "direct" if self.a.direct_io else "read" if self.a.no_mmap else "mmap",
            "repack": not self.a.no_repack, "kv_type": self.a.kv_type, "flash_attn": self.a.flash_attn,
            "load": self.load.facts(), "context_init": self.init.facts(),
        }


# ------------------------------------------------------------------------ modes
def bench(a, watch):
    need = max(a.depth + a.tg, a.pp, 1) + 8
    p = Peer(a, a.ctx or need, a.streams, outputs=1)
    rng = random.Random(a.seed)
    out = p.facts()
    top = a.token_max or p.n_vocab

    run = [0]                                                 # the 64-id block of the current run

    def one():
        if a.token_runs:
            if rng.random() * a.token_runs < 1:
                run[0] = rng.randrange(max(1, top // 64))
            return min(top - 1, 64 * run[0] + rng.randrange(64))
        return rng.randrange(top)

    def rand(n):
        return [one() for _ in range(n)]

    if not a.no_warmup:
        with Span() as s:
            p.prompt(rand(min(p.n_batch, a.ubatch, max(a.pp, 1))))
            p.clear()
            for i in range(2):
                p.decode([(t, i, q, 1) for q, t in enumerate(rand(a.streams))])
        out["warmup"] = s.facts()
    pp, tg, filled = [], [], []
    for _ in range(a.reps):
        if a.pp:
            p.clear()
            toks = rand(a.pp)
            with Span() as s:
                p.prompt(toks)
            pp.append(dict(s.facts(), tokens_per_s=round(a.pp / s.wall, 3)))
        if a.tg:
            p.clear()
            if a.depth:
                with Span() as s:
                    for q in range(a.streams):
                        p.prompt(rand(a.depth), seq=q)
                filled.append(dict(s.facts(), tokens_per_s=round(a.depth * a.streams / s.wall, 3)))
            steps = [rand(a.streams) for _ in range(a.tg)]
            lat = []
            with Span() as s:
                for i, toks in enumerate(steps):
                    t = time.perf_counter()
                    p.decode([(t_, a.depth + i, q, 1) for q, t_ in enumerate(toks)])
                    lat.append(time.perf_counter() - t)
            tg.append(dict(s.facts(), tokens_per_s=round(a.tg * a.streams / s.wall, 3),
                           ms_median=round(1e3 * quantile(lat, 0.5), 3), ms_p95=round(1e3 * quantile(lat, 0.95), 3),
                           ms_max=round(1e3 * max(lat), 3)))

    def summary(runs):
        v = [r["tokens_per_s"] for r in runs]
        return {"tokens_per_s": round(sum(v) / len(v), 3), "best": max(v), "worst": min(v), "runs": runs} if v else None

    out.update({"mode": "bench", "pp": a.pp, "tg": a.tg, "depth": a.depth, "streams": a.streams, "reps": a.reps,
                "prompt": summary(pp), "fill": summary(filled), "decode": summary(tg)})
    return out


def wanted_tokens(a, p):
    if a.tokens:
        toks = [int(x) for x in a.tokens.replace(",", " ").split()]
    elif a.tokens_file:
        with open(a.tokens_file) as f:
            toks = [int(x) for x in f.read().replace(",", " ").split()]
    elif a.prompt is not None:
        toks = p.tokenize(a.prompt, True)
    else:
        sys.exit("give --tokens, --tokens-file or --prompt")
    bad = [t for t in toks if not 0 <= t < p.n_vocab]
    if bad or not toks:
        sys.exit("token ids outside the vocabulary: %s" % bad if bad else "no tokens")
    return toks


def count_tokens_hint(a):
    if a.tokens:
        return len(a.tokens.replace(",", " ").split())
    if a.tokens_file:
        with open(a.tokens_file) as f:
            return len(f.read().replace(",", " ").split())
    return len((a.prompt or "").encode()) + 16


def feed(p, toks, one_by_one):
    """Decode the prompt; returns the batch index under which its last token's logits lie."""
    if one_by_one:
        for i, t in enumerate(toks):
            p.decode([(t, i, 0, 1)])
        return 0
    p.prompt(toks)
    return (len(toks) - 1) % p.n_batch


def greedy(a, watch):
    import numpy as np
    p = Peer(a, a.ctx or count_tokens_hint(a) + a.greedy + 8, outputs=1)
    toks = wanted_tokens(a, p)
    steps, ids = [], []
    with Span() as s:
        row = feed(p, toks, a.one_by_one)
        pos = len(toks)
        for k in range(a.greedy):
            z = p.row(row)
            two = np.argpartition(z, -2)[-2:]
            two = two[np.lexsort((two, -z[two]))]              # best first; equal logits: lower id first
            best = int(np.argmax(z))                           # argmax takes the lowest id of equal ones
            other = int(two[1] if two[0] == best else two[0])
            ids.append(best)
            steps.append({"id": best, "top1": round(float(z[best]), 6), "id2": other,
                          "top2": round(float(z[other]), 6), "margin": round(float(z[best] - z[other]), 6)})
            if k + 1 < a.greedy:
                p.decode([(best, pos, 0, 1)])
                pos, row = pos + 1, 0
    out = p.facts()
    out.update({"mode": "greedy", "prompt_ids": toks, "ids": ids, "steps": steps, "run": s.facts(),
                "smallest_margin": min(x["margin"] for x in steps) if steps else None})
    return out


def logits(a, watch):
    import numpy as np
    p = Peer(a, a.ctx or count_tokens_hint(a) + 8)
    toks = wanted_tokens(a, p)
    z = np.empty((len(toks), p.n_vocab), dtype=np.float32)
    step = 1 if a.one_by_one else p.n_batch
    with Span() as s:
        for i in range(0, len(toks), step):
            part = toks[i:i + step]
            p.decode([(t, i + k, 0, 1) for k, t in enumerate(part)])
            for k in range(len(part)):
                z[i + k] = p.row(k)
    with open(a.logits_out, "wb") as f:
        np.save(f, z)
    out = p.facts()
    out.update({"mode": "logits", "tokens": toks, "file": os.path.basename(a.logits_out), "shape": list(z.shape),
                "argmax": [int(x) for x in z.argmax(axis=1)], "finite": bool(np.isfinite(z).all()),
                "run": s.facts()})
    return out


def perplexity(a, watch):
    import numpy as np
    if a.batch % a.chunk and a.chunk % a.batch:
        sys.exit("--batch and --chunk must divide one another")
    p = Peer(a, a.ctx or a.chunk + 8)
    with open(a.text, encoding="utf-8") as f:
        toks = p.tokenize(f.read(), True)
    n, first = a.chunk, a.chunk // 2
    chunks = len(toks) // n
    if a.max_chunks:
        chunks = min(chunks, a.max_chunks)
    if not chunks:
        sys.exit("the text has %d tokens, fewer than one chunk of %d" % (len(toks), n))
    L = p.L
    bos = L.llama_vocab_bos(p.vocab) if L.llama_vocab_get_add_bos(p.vocab) else None
    nll, nll2, count = 0.0, 0.0, 0
    with Span() as s:
        for c in range(chunks):
            part = toks[c * n:(c + 1) * n]
            given = list(part)
            if bos is not None:
                given[0] = bos
            p.clear()
            for i in range(0, n, p.n_batch):
                j = min(n, i + p.n_batch)
                p.decode([(given[k], k, 0, int(first <= k < n - 1)) for k in range(i, j)])
                for k in range(max(i, first), min(j, n - 1)):
                    z = p.row(k - i).astype(np.float64)
                    m = z.max()
                    x = float(m + np.log(np.exp(z - m).sum()) - z[part[k + 1]])
                    nll, nll2, count = nll + x, nll2 + x * x, count + 1
            if not a.quiet:
                sys.stderr.write("chunk %d of %d: perplexity %.4f\n" % (c + 1, chunks, np.exp(nll / count)))
    mean = nll / count
    var = max(0.0, nll2 / count - mean * mean)
    out = p.facts()
    out.update({"mode": "perplexity", "text": os.path.basename(a.text), "text_tokens": len(toks), "chunk": n,
                "chunks": chunks, "scored_tokens": count, "nll": mean, "perplexity": float(np.exp(mean)),
                "perplexity_error": float(np.exp(mean) * (var / max(1, count - 1)) ** 0.5), "run": s.facts()})
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", metavar="MODEL.gguf", help="the model; of a split one, the first file")
    ap.add_argument("mode", nargs="?", choices=("bench", "greedy", "logits", "perplexity"), default=None,
                    help="what to do (default: what the other options ask for, else bench)")
    g = ap.add_argument_group("how the model is run")
    g.add_argument("--threads", type=int, default=2, help="threads that compute (default 2)")
    g.add_argument("--threads-batch", type=int, default=0, help="threads for prompts, if other than --threads")
    g.add_argument("--batch", type=int, default=512, help="tokens of one call (default 512)")
    g.add_argument("--ubatch", type=int, default=512, help="tokens computed at once (default 512)")
    g.add_argument("--ctx", type=int, default=0, help="context per sequence (default: just what is needed)")
    g.add_argument("--no-mmap", action="store_true", help="read the file into memory instead of mapping it")
    g.add_argument("--direct-io", action="store_true", help="read it past the page cache")
    g.add_argument("--no-repack", action="store_true", help="leave the weights in the file's layout")
    g.add_argument("--kv-type", choices=sorted(KV_TYPES), default="f16", help="type of the key and value cache")
    g.add_argument("--kv-type-v", choices=sorted(KV_TYPES), default=None, help="of the values, if another")
    g.add_argument("--flash-attn", choices=("auto", "on", "off"), default="auto")
    g = ap.add_argument_group("bench")
    g.add_argument("--pp", type=int, default=512, help="prompt tokens (0: none)")
    g.add_argument("--tg", type=int, default=64, help="decoded tokens per sequence (0: none)")
    g.add_argument("--depth", type=int, default=0, help="context tokens before decoding is timed")
    g.add_argument("--streams", type=int, default=1, help="sequences decoded together")
    g.add_argument("--reps", type=int, default=2, help="repetitions (default 2)")
    g.add_argument("--seed", type=int, default=1, help="of the random tokens (default 1)")
    g.add_argument("--token-max", type=int, default=0, help="random tokens below this id (default: the vocabulary)")
    g.add_argument("--token-runs", type=float, default=0, metavar="R",
                   help="draw tokens in runs of about R from blocks of 64 ids (for expert locality in models that "
                        "make_synthetic_gguf.py --skew wrote; default: all independent)")
    g.add_argument("--no-warmup", action="store_true", help="measure from the first call on")
    g = ap.add_argument_group("greedy and logits")
    g.add_argument("--greedy", type=int, default=0, metavar="N", help="write N tokens greedily")
    g.add_argument("--logits-out", metavar="F.npy", help="write logits of every given token")
    g.add_argument("--tokens", help="token ids, separated by commas")
    g.add_argument("--tokens-file", help="a file of token ids")
    g.add_argument("--prompt", help="text, tokenized by the model's tokenizer (special tokens understood)")
    g.add_argument("--one-by-one", action="store_true", help="feed the prompt a token per call")
    g = ap.add_argument_group("perplexity")
    g.add_argument("--text", metavar="F", help="the text to score")
    g.add_argument("--chunk", type=int, default=512, help="tokens of a chunk (default 512)")
    g.add_argument("--max-chunks", type=int, default=0, help="chunks to score (default: all)")
    g = ap.add_argument_group("output")
    g.add_argument("--json", action="store_true", help="on one line (default: indented)")
    g.add_argument("--verbose", action="store_true", help="show llama.cpp's own log")
    g.add_argument("--quiet", action="store_true", help="nothing on standard error")
    a = ap.parse_args()
    mode = a.mode or ("greedy" if a.greedy else "logits" if a.logits_out else "perplexity" if a.text else "bench")
    if mode == "greedy" and a.greedy <= 0:
        ap.error("greedy needs --greedy N")
    if mode == "logits" and not a.logits_out:
        ap.error("logits needs --logits-out F.npy")
    if mode == "perplexity" and not a.text:
        ap.error("perplexity needs --text F")
    if min(a.threads, a.batch, a.ubatch, a.streams, a.reps) < 1 or min(a.pp, a.tg, a.depth) < 0:
        ap.error("counts must be positive")
    if not os.path.isfile(a.model):
        ap.error("no such file: %s" % a.model)
    try:
        import llama_cpp                                       # noqa: F401
    except ImportError as e:
        ap.exit(2, "llama_cpp cannot be imported (%s); pip install llama-cpp-python==0.3.36\n" % e)
    watch = Watch()
    watch.start()
    t = time.perf_counter()
    out = {"bench": bench, "greedy": greedy, "logits": logits, "perplexity": perplexity}[mode](a, watch)
    watch.halt.set()
    out.update(watch.report())
    out.update({"total_wall_s": round(time.perf_counter() - t, 2), "total_cpu_s": round(time.process_time(), 2),
                "total_disk_read_bytes": disk_read(), "cpus": os.cpu_count(), "machine": platform.machine()})
    if a.json:
        print(json.dumps(out))
    else:
        print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
