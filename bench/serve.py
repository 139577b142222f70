#!/usr/bin/env python3
"""What a server makes of an engine: a load generator for `sluice serve` and whatever speaks llama-server's API.

    serve.py --server "build/release/sluice serve -m MODEL -np 8 -c 16384" [--peer "llama-server -m MODEL -np 8 -c 16384"]
    serve.py --url http://127.0.0.1:8080 [--peer-url ...] [--only streams,first,...] [--rounds 3] [--json]

With a peer, each measurement is made of one and then of the other, round by round, so that whatever slows the machine
slows both. Printed are medians over the rounds. The measurements:

    streams   tokens/s of 1, 2, 4 and 8 answers at once, prompts included (32-token prompts, 64 tokens each)
    first     seconds until the first token of a 1,000-token prompt
    overhead  milliseconds per token of one stream, and what the first token takes beyond computing its prompt; next to
              `sluice bench` of the same file where the server is a `sluice serve` started here
    reuse     prompt tokens computed in the turns of a conversation (made for hybrid models), and seconds
    chat      first token of a chat's second turn behind a 4,000-token history, against the first turn's
    gaps      between the tokens of 4 running answers while a 4,000-token prompt comes in; that prompt's time against alone

Prompts are drawn anew each time, so that nothing is found in a cache that is not meant to be. Needs as many slots and as
much context as the largest measurement asks for: 8 slots of 2,048 tokens for `streams`, 5,000 tokens for `chat`, and
5 slots and 10,000 tokens for `gaps`.
"""

import argparse
import asyncio
import json
import random
import shlex
import statistics
import subprocess
import sys
import time

from serving import Server, ServerError

WORDS = """the of and a to in is it you that he was for on are with as they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some so these would
other into has more her two like him see time could no make than first been its who now people my made over did down only
way find use may water long little very after words called just where most know get through back much before go good new
write our used me man too any day same right look think also around another came come work three word must because does
part even place well such here take why things help put years different away again off went old number""".split()
GREEDY = {"temperature": 0, "ignore_eos": True}


class Prompts:
    """Token sequences of any length that no request before has had."""

    def __init__(self, server, rng):
        self.server, self.rng = server, rng

    def text(self, words):
        return " ".join(self.rng.choice(WORDS) for _ in range(words))

    async def tokens(self, n):
        # A small vocabulary makes several tokens of a word, a large one makes one; what is too much is cut.
        tokens = []
        while len(tokens) < n:
            tokens += await self.server.tokenize(" " + self.text(n - len(tokens)))
        return tokens[:n]


async def complete(server, prompt, n_predict, on_token=None, **more):
    """One streamed completion: seconds to the first token, arrival of each event with a token, timings, tokens."""
    start = time.perf_counter()
    arrivals, tokens, timings = [], [], {}
    body = {"prompt": prompt, "n_predict": n_predict, "cache_prompt": True, "return_tokens": True} | GREEDY | more
    async for now, event in server.stream("/completion", body):
        if event.get("stop"):
            timings = event.get("timings", {})
        # The last event repeats nothing, but what was held back may come with it.
        if event.get("tokens") or (event.get("content") and not (event.get("stop") and arrivals)):
            arrivals.append(now)
            tokens += event.get("tokens", [])
            if on_token:
                on_token(now)
    if not arrivals or "predicted_n" not in timings:
        raise ServerError(200, "the stream of /completion ended without tokens or timings")
    return {"first_s": arrivals[0] - start, "arrivals": arrivals, "timings": timings, "tokens": tokens,
            "end_s": time.perf_counter() - start}


# --- Measurements: each returns a flat dict of figures ------------------------------------------------------------------


async def measure_streams(server, prompts, a):
    figures = {}
    for n in a.streams:
        for last in (False, True):  # the first round warms up
            asked = [await prompts.tokens(a.prompt) for _ in range(n)]
            start = time.perf_counter()
            answers = await asyncio.gather(*(complete(server, prompt, a.answer) for prompt in asked))
            if last:
                tokens = sum(answer["timings"]["predicted_n"] for answer in answers)
                figures[f"{n} streams, tokens/s"] = tokens / (time.perf_counter() - start)
    return figures


async def measure_first(server, prompts, a):
    answer = await complete(server, await prompts.tokens(a.long_prompt), 1)
    return {f"first token of {a.long_prompt}, s": answer["first_s"]}


async def measure_overhead(server, prompts, a):
    per_token, beyond = [], []
    for _ in range(3):
        answer = await complete(server, await prompts.tokens(a.prompt), a.answer)
        arrivals = answer["arrivals"]
        per_token.append((arrivals[-1] - arrivals[0]) / (answer["timings"]["predicted_n"] - 1))
        beyond.append(answer["first_s"] - answer["timings"]["prompt_ms"] / 1000)
    figures = {"per token, ms": statistics.median(per_token) * 1000,
               "first token beyond its prompt, ms": statistics.median(beyond) * 1000}
    if server.bench:
        bench = json.loads(subprocess.run(server.bench, capture_output=True, text=True, check=True).stdout)
        figures["per token by `sluice bench`, ms"] = 1000 / bench["tg_tps"]
        figures["server adds, %"] = 100 * (figures["per token, ms"] * bench["tg_tps"] / 1000 - 1)
    return figures


async def measure_reuse(server, prompts, a):
    n = a.long_prompt
    first = await prompts.tokens(n)
    answer = await complete(server, first, 32)
    conversation = first + answer["tokens"]
    if len(conversation) != n + 32:
        raise ServerError(200, "/completion does not tell its tokens (return_tokens)")
    second = conversation + await prompts.tokens(50)
    turns = {
        "+ 32 generated + 50 new": second,
        "the same again": second,
        "last 50 replaced": conversation + await prompts.tokens(50),
        "diverges in the middle": first[: n // 2] + await prompts.tokens(n - n // 2),
        "back to the earlier one, + 5": second + await prompts.tokens(5),
    }
    figures = {f"reuse: first ({n})": answer["timings"]["prompt_n"], "reuse: first, s": answer["first_s"]}
    for name, prompt in turns.items():
        answer = await complete(server, prompt, 8)
        figures[f"reuse: {name} ({len(prompt)})"] = answer["timings"]["prompt_n"]
        figures[f"reuse: {name}, s"] = answer["first_s"]
    return figures


async def first_of_chat(server, messages):
    """Seconds to the first text of a chat's answer, and the message to send back."""
    start, first = time.perf_counter(), None
    content, reasoning = "", ""
    async for now, event in server.stream("/v1/chat/completions", {"messages": messages, "max_tokens": 32, "temperature": 0}):
        for choice in event.get("choices", []):
            delta = choice.get("delta", {})
            text = delta.get("content") or "", delta.get("reasoning_content") or ""
            content, reasoning = content + text[0], reasoning + text[1]
            if first is None and any(text):
                first = now - start
    if first is None:
        raise ServerError(200, "the chat's answer has no text")
    message = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    return first, message


async def measure_chat(server, prompts, a):
    text = prompts.text(a.history)
    tokens = len(await server.tokenize(text))
    text = text[: len(text) * a.history // max(tokens, 1)] if tokens > a.history else text
    messages = [{"role": "user", "content": text}]
    first, message = await first_of_chat(server, messages)
    messages += [message, {"role": "user", "content": prompts.text(10)}]
    second, _ = await first_of_chat(server, messages)
    return {"chat: first turn, s": first, "chat: second turn, s": second, "chat: second to first, %": 100 * second / first}


async def measure_gaps(server, prompts, a):
    runners = 4
    arrivals = [[] for _ in range(runners)]
    asked = [await prompts.tokens(a.prompt) for _ in range(runners)]
    long_prompts = [await prompts.tokens(a.history) for _ in range(2)]
    tasks = [asyncio.create_task(complete(server, prompt, 1500, arrivals[i].append)) for i, prompt in enumerate(asked)]
    try:
        while any(len(times) < 10 for times in arrivals):
            if broken := next((task for task in tasks if task.done()), None):
                broken.result()  # raises what ended it
                raise ServerError(200, "a running answer ended early")
            await asyncio.sleep(0.01)
        start = time.perf_counter()
        among = await complete(server, long_prompts[0], 1)
        end = time.perf_counter()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # A gap counts if it overlaps with the prompt's time; the last one reaches to its end.
    gaps = []
    for times in arrivals:
        times.append(end)
        gaps += [(b - a_) * 1000 for a_, b in zip(times, times[1:]) if b > start]
    gaps.sort()
    await asyncio.sleep(0.5)  # the server notices that the others have left
    alone = await complete(server, long_prompts[1], 1)
    return {
        "gaps: longest, ms": gaps[-1],
        "gaps: 99th percentile, ms": gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))],
        "gaps: median, ms": statistics.median(gaps),
        f"gaps: prompt of {a.history}, s": among["first_s"],
        f"gaps: prompt of {a.history} alone, s": alone["first_s"],
        "gaps: prompt, times alone": among["first_s"] / alone["first_s"],
    }


MEASUREMENTS = {
    "streams": measure_streams,
    "first": measure_first,
    "overhead": measure_overhead,
    "reuse": measure_reuse,
    "chat": measure_chat,
    "gaps": measure_gaps,
}

# --- Running and telling ------------------------------------------------------------------------------------------------


def value_of(words, *names):
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if word in names), None)


def bench_command(command, a):
    """`sluice bench` of the model that `command` serves; None when that is no `sluice serve`."""
    words = shlex.split(command)
    if words[1:2] != ["serve"] or not (model := value_of(words, "-m", "--model")):
        return None
    bench = [words[0], "bench", "-m", model, "--json", "--pp", a.prompt, "--tg", a.answer, "--depth", a.prompt, "--reps", 3]
    if threads := value_of(words, "-t", "--threads"):
        bench += ["-t", threads]
    return [str(word) for word in bench]


async def open_servers(a):
    servers = {}
    for name, command, url in (("server", a.server, a.url), ("peer", a.peer, a.peer_url)):
        if not command and not url:
            continue
        servers[name] = await Server.start(command) if command else Server(url)
        servers[name].bench = bench_command(command, a) if command else None
    return servers


async def measure_all(a):
    servers = {}
    rows = {}  # (measurement, figure) -> server -> values by round
    problems = []
    try:
        servers = await open_servers(a)
        for name in a.only:
            for round_number in range(a.rounds):
                for who, server in servers.items():
                    prompts = Prompts(server, random.Random(f"{a.seed} {name} {round_number}"))
                    try:
                        figures = await MEASUREMENTS[name](server, prompts, a)
                    except (ServerError, OSError, asyncio.IncompleteReadError) as error:
                        problems.append(f"{who}: {name}: {error!r}" if not str(error) else f"{who}: {name}: {error}")
                        continue
                    for figure, value in figures.items():
                        rows.setdefault((name, figure), {}).setdefault(who, []).append(value)
    finally:
        for server in servers.values():
            server.stop()
    return rows, problems


def show(rows, names):
    print(f"{'':<46}" + "".join(f"{name:>12}" for name in names) + (f"{'ratio':>8}" if len(names) > 1 else ""))
    for (_, figure), by_server in rows.items():
        medians = [statistics.median(by_server[name]) if name in by_server else None for name in names]
        line = f"{figure:<46}" + "".join(f"{'-':>12}" if m is None else f"{m:>12.4g}" for m in medians)
        if len(names) > 1 and all(medians):
            line += f"{medians[0] / medians[1]:>8.2f}"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--server", metavar="COMMAND", help="starts the server to measure; --port is added")
    where.add_argument("--url", help="measures one that runs already")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--peer", metavar="COMMAND", help="another one, measured in turn")
    peer.add_argument("--peer-url", metavar="URL")
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help="measurements, with commas (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", default="1,2,4,8", help="numbers of answers at once")
    parser.add_argument("--prompt", type=int, default=32, help="tokens of a short prompt")
    parser.add_argument("--answer", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--long-prompt", type=int, default=1000, help="tokens of `first` and `reuse`")
    parser.add_argument("--history", type=int, default=4000, help="tokens of `chat` and `gaps`")
    parser.add_argument("--seed", type=int, help="of the prompts (default: another each time)")
    parser.add_argument("--json", action="store_true", help="prints all rounds as JSON")
    a = parser.parse_args()
    a.only = a.only.split(",")
    a.streams = [int(n) for n in a.streams.split(",")]
    if unknown := [name for name in a.only if name not in MEASUREMENTS]:
        parser.error(f"no such measurement: {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}")
    if a.seed is None:
        a.seed = random.SystemRandom().randrange(1 << 32)

    try:
        rows, problems = asyncio.run(measure_all(a))
    except (ServerError, OSError) as error:
        sys.exit(f"error: {error}")
    if a.json:
        nested = {}
        for (measurement, figure), by_server in rows.items():
            nested.setdefault(measurement, {})[figure] = by_server
        print(json.dumps({"seed": a.seed, "rounds": a.rounds, "figures": nested, "problems": problems}, indent=1))
    else:
        show(rows, ["server", "peer"] if a.peer or a.peer_url else ["server"])
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
