"""A running server to ask: started here or elsewhere, over plain asyncio streams. It speaks llama-server's API, whoever
it is. Standard library only; shared by serve.py and tools/soak.py."""

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import shlex
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse


class ServerError(Exception):
    """An answer that is an error, or none."""

    def __init__(self, status, text):
        super().__init__(f"HTTP {status}: {text.strip()[:500]}")
        self.status = status
        self.text = text


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    def json(self):
        return json.loads(self.text)


class Answer:
    """One answer on its way: its head has been read, its body has not."""

    def __init__(self, reader, writer, status, headers):
        self.status, self.headers = status, headers
        self._reader, self._writer = reader, writer

    async def pieces(self):
        """The body's bytes as they come."""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int((await self._reader.readline()).split(b";")[0], 16):
                yield await self._reader.readexactly(size)
                await self._reader.readexactly(2)
            await self._reader.readline()
        elif "content-length" in self.headers:
            yield await self._reader.readexactly(int(self.headers["content-length"]))
        else:
            while piece := await self._reader.read(65536):
                yield piece

    async def text(self):
        return b"".join([piece async for piece in self.pieces()]).decode()

    async def events(self):
        """The `data:` of each server-sent event with the time of its arrival, decoded, up to [DONE] or the end."""
        rest = b""
        async for piece in self.pieces():
            now = time.perf_counter()
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"error:"):
                    raise ServerError(self.status, line.decode())
                if not line.startswith(b"data:"):
                    continue
                if line[5:].strip() == b"[DONE]":
                    return
                event = json.loads(line[5:])
                if "error" in event:
                    raise ServerError(event["error"].get("code", self.status), json.dumps(event))
                yield now, event

    def close(self):
        """Hangs up; in the middle of an answer that is a client who left."""
        self._writer.close()


class Server:
    def __init__(self, url, process=None, log=None):
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.process, self.log = process, log

    @classmethod
    async def start(cls, command, patience=600):
        """Runs `command`, with --port unless it has one, and returns once GET /health says ok."""
        words = shlex.split(command) if isinstance(command, str) else list(map(str, command))
        if "--port" not in words:
            words += ["--port", str(free_port())]
        log = pathlib.Path(tempfile.mkstemp(prefix="server-", suffix=".log")[1])
        with log.open("w") as out:
            process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        server = cls(f"http://127.0.0.1:{words[words.index('--port') + 1]}", process, log)
        try:
            await server._wait_until_ready(patience)
        except BaseException:
            server.stop()
            raise
        return server

    async def _wait_until_ready(self, patience):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise ServerError(0, f"the server ended with {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                if (await self.request("GET", "/health")).status == 200:
                    return
            await asyncio.sleep(0.05)
        raise ServerError(0, f"not ready within {patience} s:\n{self.log.read_text()[-2000:]}")

    def stop(self, patience=60):
        """Ends a server that was started here; its exit code."""
        if not self.process:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def resident_bytes(self):
        """What the process has in memory now, or None when it was started elsewhere."""
        if not self.process:
            return None
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return None

    async def send(self, method, path, body=None, raw=None, content_type="application/json"):
        """Asks, and returns an Answer whose head has come; close() it."""
        payload = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n"
        if payload or method == "POST":
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(payload)}\r\n"
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 24)
        try:
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            writer.write(head.encode() + b"\r\n" + payload)
            await writer.drain()
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except BaseException:
            writer.close()
            raise
        fields = (line.split(":", 1) for line in lines[1:] if ":" in line)
        headers = {name.lower(): value.strip() for name, value in fields}
        return Answer(reader, writer, int(lines[0].split()[1]), headers)

    async def request(self, method, path, body=None, **how):
        """Asks and reads the whole answer, whatever its status."""
        answer = await self.send(method, path, body, **how)
        try:
            return Reply(answer.status, answer.headers, await answer.text())
        finally:
            answer.close()

    async def post(self, path, body):
        """The answer's JSON. Raises ServerError unless the status is 200."""
        reply = await self.request("POST", path, body)
        if reply.status != 200:
            raise ServerError(reply.status, reply.text)
        return reply.json()

    async def stream(self, path, body):
        """(time, event) of a streamed answer. Raises ServerError unless the status is 200."""
        answer = await self.send("POST", path, body | {"stream": True})
        try:
            if answer.status != 200:
                raise ServerError(answer.status, await answer.text())
            async for arrival in answer.events():
                yield arrival
        finally:
            answer.close()

    async def tokenize(self, text):
        return (await self.post("/tokenize", {"content": text}))["tokens"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
