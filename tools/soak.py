#!/usr/bin/env python3
"""Leaves a server to clients of all kinds for a while, and sees whether it forgets, grows or falls over.

    soak.py [--minutes 10] [--clients 8] [--seed N] [--server "build/release/sluice serve -m MODEL ..."]

Each client does one random thing after the other: completions and chats, streamed or not; streams that it leaves in the
middle, answers that it doesn't wait for; bodies that are no JSON or make no sense; slots saved, restored and erased.
What must hold: no status but the expected one; every answer at temperature 0 is the one that its question got when
nobody else was there; the resident size at the end is within 1 % of that after warming up; SIGTERM ends the server with
code 0. Whatever doesn't is told, and the exit code is 1. Standard library only.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from serving import Server, ServerError  # noqa: E402

SLOTS = 4
TEXTS = [
    "1+1=", "What is 1+1?", "What is 27+35?", "What is 81-19?", "What is 7 times 8?", "What is the capital of France?",
    "Which day comes after Monday?", "My code is 4711. Remember it.", "Tell me a story about a fox.",
    "Repeat: red green blue.", "Which month comes before May?", "The cat sat on the mat and looked at the moon. " * 12,
]
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
# Bodies of POST /completion and /v1/chat/completions that must be refused.
MALFORMED = [
    b"", b"{", b"null", b"[]", b"\"text\"", b"{\"prompt\":", b"\xff\xfe{}", b"{}", b"[" * 100_000, b"{\"a\":" * 50_000,
    b'{"prompt": {"x": 1}, "messages": 7}', b'{"prompt": [1, "x", null, {}], "messages": [1]}',
    b'{"prompt": [-1], "messages": [{}]}', b'{"prompt": [999999999], "messages": [{"role": 5}]}',
    b'{"prompt": "a", "messages": "a", "temperature": "hot"}', b'{"prompt": "a", "messages": [], "n_predict": "x"}',
    b'{"prompt": "a", "stop": [{}], "messages": [{"role": "user", "content": "a"}], "temperature": []}',
]  # fmt: skip
GARBAGE = [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"POST /completion HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
           b"GET / HTTP/9.9\r\n\r\n", b"POST /completion HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"]


def questions():
    """(path, body) of all that is asked at temperature 0; the seed of an order that is the same each time."""
    rng = random.Random(1)
    asked = []
    for text in TEXTS:
        asked.append(("/completion", {"prompt": text, "n_predict": rng.randint(4, 48), "temperature": 0}))
        chat = {"messages": [{"role": "user", "content": text}], "max_tokens": rng.randint(8, 64), "temperature": 0}
        asked.append(("/v1/chat/completions", chat))
    turns = []
    for text, answer in zip(TEXTS[:4], ["2", "2", "62", "62"]):  # a chat that becomes longer shares its beginning
        turns = turns + [{"role": "user", "content": text}]
        asked.append(("/v1/chat/completions", {"messages": turns, "max_tokens": 24, "temperature": 0}))
        turns = turns + [{"role": "assistant", "content": answer}]
    weather = [{"role": "user", "content": "What is the weather in Paris?"}]
    asked.append(("/v1/chat/completions", {"messages": weather, "tools": TOOLS, "max_tokens": 64, "temperature": 0}))
    return asked


def text_of(reply):
    """What an answer says, of either kind of question."""
    if "content" in reply:
        return reply["content"], "", ""
    message = reply["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or []]
    return message.get("content") or "", message.get("reasoning_content") or "", json.dumps(calls, sort_keys=True)


class Soak:
    def __init__(self, server, rng, log):
        self.server, self.rng, self.log = server, rng, log
        self.questions = questions()
        self.solo = []
        self.counts = collections.Counter()
        self.problems = collections.Counter()
        self.saved = set()
        self.sizes = []  # (seconds, bytes)
        self.kinds = {
            self.whole: 6, self.streamed: 6, self.sampled: 2, self.leaves_a_stream: 3, self.does_not_wait: 2,
            self.malformed: 3, self.garbage: 1, self.saves: 1, self.restores: 1, self.erases: 1, self.looks: 2,
        }  # fmt: skip

    def problem(self, what):
        self.problems[what] += 1
        if self.problems[what] == 1:
            self.log(f"  {what}")

    def expect(self, reply, *statuses):
        if reply.status not in statuses:
            self.problem(f"status {reply.status} where {statuses} was due: {reply.text[:300]}")
            return False
        return True

    # --- What clients do ------------------------------------------------------------------------------------------------

    async def whole(self):
        i = self.rng.randrange(len(self.questions))
        path, body = self.questions[i]
        reply = await self.server.request("POST", path, body)
        if self.expect(reply, 200):
            self.compare(i, text_of(reply.json()))

    async def streamed(self):
        i = self.rng.randrange(len(self.questions))
        path, body = self.questions[i]
        content, reasoning, calls = "", "", {}
        async for _, event in self.server.stream(path, body):
            content += event.get("content", "")
            for choice in event.get("choices", []):
                delta = choice.get("delta", {})
                content += delta.get("content") or ""
                reasoning += delta.get("reasoning_content") or ""
                for part in delta.get("tool_calls", []):
                    call = calls.setdefault(part["index"], {"name": "", "arguments": ""})
                    for field, text in part.get("function", {}).items():
                        call[field] += text or ""
        self.compare(i, (content, reasoning, json.dumps(list(calls.values()), sort_keys=True) if self.solo[i][2] else ""))

    def compare(self, i, answer):
        if answer != self.solo[i]:
            path, body = self.questions[i]
            self.problem(f"another answer than alone to {path} {json.dumps(body)[:200]}: {answer} instead of {self.solo[i]}")

    async def sampled(self):
        body = {"prompt": self.rng.choice(TEXTS), "n_predict": 32, "temperature": 1.5, "top_p": 0.9,
                "seed": self.rng.randrange(1 << 31), "n_probs": self.rng.choice([0, 5])}
        self.expect(await self.server.request("POST", "/completion", body), 200)

    async def leaves_a_stream(self):
        path, body = self.rng.choice(self.questions)
        left = self.rng.randint(0, 12)
        body = body | {"stream": True, "max_tokens": 400, "n_predict": 400, "ignore_eos": True}
        answer = await self.server.send("POST", path, body)
        try:
            if answer.status != 200:
                self.problem(f"status {answer.status} of a stream: {(await answer.text())[:300]}")
                return
            async with contextlib.aclosing(answer.events()) as events:
                async for _ in events:
                    if (left := left - 1) < 0:
                        break
        finally:
            answer.close()

    async def does_not_wait(self):
        path, body = self.rng.choice(self.questions)
        patience = self.rng.random() * 0.3
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.server.request("POST", path, body | {"max_tokens": 400, "n_predict": 400}), patience)

    async def malformed(self):
        path = self.rng.choice(["/completion", "/v1/chat/completions"])
        self.expect(await self.server.request("POST", path, raw=self.rng.choice(MALFORMED)), 400)

    async def garbage(self):
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
        try:
            writer.write(self.rng.choice(GARBAGE))
            writer.write_eof()
            await writer.drain()
            answer = await reader.read()
            if answer and not answer.startswith(b"HTTP/1.1 400 "):
                self.problem(f"garbage got {answer[:100]}")
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def slot_action(self, action, slot, body, *statuses):
        reply = await self.server.request("POST", f"/slots/{slot}?action={action}", body)
        if self.expect(reply, *statuses):
            self.counts[f"slot {action}: {reply.status}"] += 1
        return reply.status == 200

    async def saves(self):
        name = f"soak-{self.rng.randrange(8)}.bin"
        # A slot that is busy can't be saved now.
        if await self.slot_action("save", self.rng.randrange(SLOTS), {"filename": name}, 200, 400, 409):
            self.saved.add(name)

    async def restores(self):
        if self.saved and self.rng.random() < 0.8:
            name = self.rng.choice(sorted(self.saved))
            await self.slot_action("restore", self.rng.randrange(SLOTS), {"filename": name}, 200, 400, 409)
        else:
            name = self.rng.choice(["nothing.bin", "../../etc/passwd", "/etc/passwd", ""])
            await self.slot_action("restore", self.rng.randrange(SLOTS), {"filename": name}, 400, 404, 409)

    async def erases(self):
        await self.slot_action("erase", self.rng.randrange(SLOTS), {}, 200, 400, 409)

    async def looks(self):
        path = self.rng.choice(["/health", "/slots", "/metrics", "/props", "/v1/models"])
        self.expect(await self.server.request("GET", path), 200)
        self.expect(await self.server.request("GET", "/nothing-here"), 404)

    # --- Running --------------------------------------------------------------------------------------------------------

    async def ask_alone(self):
        for path, body in self.questions:
            self.solo.append(text_of(await self.server.post(path, body)))

    async def client(self, end):
        kinds, weights = list(self.kinds), list(self.kinds.values())
        while time.monotonic() < end:
            kind = self.rng.choices(kinds, weights)[0]
            self.counts[kind.__name__] += 1
            try:
                await asyncio.wait_for(kind(), 120)
            except asyncio.TimeoutError:
                self.problem(f"{kind.__name__}: no answer within 120 s")
            except (ServerError, OSError, asyncio.IncompleteReadError, ValueError, KeyError) as error:
                self.problem(f"{kind.__name__}: {error!r}")
                await asyncio.sleep(0.1)
            if self.server.process and self.server.process.poll() is not None:
                return

    async def watch(self, end):
        start = time.monotonic()
        while time.monotonic() < end and self.server.process and self.server.process.poll() is None:
            self.sizes.append((time.monotonic() - start, self.server.resident_bytes()))
            await asyncio.sleep(0.5)

    async def run(self, seconds, clients):
        await self.ask_alone()
        end = time.monotonic() + seconds
        await asyncio.gather(self.watch(end), *(self.client(end) for _ in range(clients)))
        if self.server.process and (code := self.server.process.poll()) is not None:
            self.problem(f"the server ended with {code}:\n{self.server.log.read_text()[-3000:]}")
        for action in ("save", "restore", "erase"):
            if self.counts[action + "s"] > 20 and not self.counts[f"slot {action}: 200"]:
                self.problem(f"no slot could ever be {action}d")
        self.check_size(seconds)

    def check_size(self, seconds):
        """Medians of the second and the last fifth: what a moment's answers need cancels out."""
        early = [size for at, size in self.sizes if 0.2 <= at / seconds < 0.4]
        late = [size for at, size in self.sizes if at / seconds >= 0.8]
        if not early or not late:
            return
        early, late = statistics.median(early), statistics.median(late)
        self.log(f"resident: {early / 2**20:.1f} MiB after warming up, {late / 2**20:.1f} MiB at the end "
                 f"({100 * (late / early - 1):+.2f} %)")
        if late > early * 1.01:
            self.problem("the resident size has grown by more than 1 %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--server", help=f"command; {SLOTS} slots and --slot-save-path are asked for in any case")
    a = parser.parse_args()
    model = ROOT / "models/demo/sluice-demo.gguf"
    folder = tempfile.mkdtemp(prefix="soak-")
    # A prompt cache of so few bytes is full before the warm-up ends: from then on nothing has a reason to grow.
    command = a.server or f"{ROOT / 'build/release/sluice'} serve -m {model} -c 4096 --cache-ram 8 --metrics"
    command += f" -np {SLOTS} --slot-save-path {folder}"
    print(f"soak: {a.minutes:g} minutes, {a.clients} clients, --seed {a.seed}", flush=True)

    async def soak():
        server = await Server.start(command)
        try:
            it = Soak(server, random.Random(a.seed), lambda line: print(line, flush=True))
            await it.run(a.minutes * 60, a.clients)
        finally:
            code = server.stop()
        if code != 0 and not any("the server ended" in problem for problem in it.problems):
            it.problem(f"SIGTERM ended the server with {code}:\n{server.log.read_text()[-3000:]}")
        return it

    try:
        it = asyncio.run(soak())
    except (ServerError, OSError) as error:
        sys.exit(f"error: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(it.counts.items())))
    for problem, times in it.problems.items():
        print(f"PROBLEM ({times}x): {problem}")
    print("failed" if it.problems else "all is well")
    return 1 if it.problems else 0


if __name__ == "__main__":
    sys.exit(main())
