"""A server under test: starts it, waits until it listens and is ready, keeps what it logs, and ends it."""

import json
import re
import signal
import subprocess
import threading
import time

import httpx

PATIENCE = 60  # seconds for what takes a fraction of one
LISTENING = re.compile(r"listening on (http://[0-9a-z.:\[\]-]+)")
CONTINUE = {"temperature": 0, "ignore_eos": True}  # an answer as long as it may be, the same each time


class Server:
    def __init__(self, binary, environment, model, *arguments, port=0):
        command = [binary, "serve", "-m", model, "--port", port, *arguments]
        self.lines = []  # of its standard error
        self.url = None
        self._listening = threading.Event()
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._clients = []

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if found := LISTENING.search(line):
                self.url = found.group(1).rstrip("/")
                self._listening.set()
        self._listening.set()  # there is nothing to wait for any more

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def wait_until_ready(self):
        assert self._listening.wait(PATIENCE) and self.url, f"it does not listen:\n{self.log}"
        end = time.monotonic() + PATIENCE
        while True:
            answer = httpx.get(self.url + "/health")
            if answer.status_code == 200:
                assert answer.json()["status"] == "ok"
                return self
            assert time.monotonic() < end and self.process.poll() is None, f"{answer.text}\n{self.log}"
            time.sleep(0.02)

    def client(self, **keywords) -> httpx.Client:
        self._clients.append(httpx.Client(base_url=self.url, timeout=PATIENCE, **keywords))
        return self._clients[-1]

    def post(self, path, body, **keywords) -> dict:
        """The object that a request is answered with, which must be a success."""
        answer = httpx.post(self.url + path, json=body, timeout=PATIENCE, **keywords)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def complete(self, prompt, n=8, **fields) -> dict:
        return self.post("/completion", {"prompt": prompt, "n_predict": n, **CONTINUE, **fields})

    def chat(self, messages, **fields) -> dict:
        return self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """It must end by itself."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def stop(self):
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.exit_code()


def events(lines):
    """The events of a stream, as they come: objects, and the text [DONE]. Comments are left out."""
    for line in lines:
        if line.startswith("data: "):
            data = line.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)
        else:
            assert line == "" or line.startswith(":"), f"no line of a stream: {line!r}"


def stream(client, path, body) -> list:
    """All events of a streamed answer."""
    with client.stream("POST", path, json=body | {"stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        return list(events(answer.iter_lines()))


def error_of(answer, status, *words) -> dict:
    """The error that a request is answered with; its message has these words."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == status and error["type"]
    for word in words:
        assert word in error["message"], error
    return error
