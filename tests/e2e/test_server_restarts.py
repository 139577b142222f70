"""Starting and ending: the same right answer at every start, whatever ended the server before; one line for what can't
start; and the command lines that people have."""

import concurrent.futures
import json
import random
import signal
import socket
import threading
import time

import httpx
import pytest
from server import PATIENCE, events
from streaming import Shape, fails

SUM = {"prompt": "1+1=", "n_predict": 4, "temperature": 0}
ENDLESS = {"prompt": "12+30=", "n_predict": 3500, "temperature": 0, "ignore_eos": True, "stream": True}


def right(server) -> bool:
    return server.post("/completion", SUM)["content"] == "2"


# ---- starts after starts ----


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_every_start_of_many_answers_right(serve, demo, cache, request, more):
    """With one expert slot fewer than there are experts, with as many, and with one more."""
    slots = Shape(demo).experts + more
    for i in range(30 if request.config.getoption("--full") else 10):
        server = serve("--moe-slot-bank", slots, "--no-warmup", "-c", 512, env=cache)
        assert right(server), f"start {i}"
        if i % 2 == 0:
            server.signal()
            assert server.exit_code() == 0, server.log
        else:
            server.signal(signal.SIGKILL)
            server.exit_code()


def test_a_server_killed_at_any_moment_spoils_no_start(serve, cache, tmp_path):
    folder = tmp_path / "slots"
    folder.mkdir()
    moments = random.Random(6)
    options = ["--moe-slot-bank", 8, "--slot-save-path", folder, "-c", 1024, "-np", 2]
    body = {"filename": "a.bin"}
    saves = 0
    for moment in [moments.uniform(0.0, 0.6) for _ in range(8)] + [None]:  # at last: whenever it has saved something
        server = serve(*options, env=cache, ready=False)
        stopping = threading.Event()

        def work(server=server, stopping=stopping):
            """Whatever can be going on when it is killed."""
            while not stopping.is_set():
                try:
                    assert server.url
                    httpx.post(server.url + "/completion", json={**SUM, "prompt": "1+1=" * 9}, timeout=PATIENCE)
                    httpx.post(server.url + "/slots/0?action=save", json=body, timeout=PATIENCE)
                except (AssertionError, httpx.HTTPError):
                    time.sleep(0.01)

        worker = threading.Thread(target=work)
        worker.start()
        if moment is None:
            end = time.monotonic() + PATIENCE
            while not (folder / "a.bin").exists() and time.monotonic() < end:
                time.sleep(0.01)
        else:
            time.sleep(moment)
        server.signal(signal.SIGKILL)
        server.exit_code()
        stopping.set()
        worker.join(PATIENCE)

        again = serve(*options, env=cache)
        assert right(again), again.log
        if (folder / "a.bin").exists():  # whole, or not at all
            again.post("/slots/1?action=restore", body)
            saves += 1
        again.signal()
        assert again.exit_code() == 0, again.log
    assert saves > 0


# ---- ends ----


def test_a_signal_lets_running_answers_end(serve):
    server = serve("--drain-timeout", 60)
    url = server.url
    with httpx.Client(base_url=url, timeout=PATIENCE) as client:
        with client.stream("POST", "/completion", json=ENDLESS | {"n_predict": 600}) as answer:
            stream = events(answer.iter_lines())
            next(stream)
            server.signal()
            *_, last = [event for event in stream if event != "[DONE]"]
    assert last["stop"] is True and last["timings"]["predicted_n"] == 600
    assert server.exit_code() == 0, server.log
    with pytest.raises(httpx.ConnectError):
        httpx.get(url + "/health")


def test_answers_that_take_too_long_end_with_a_reason(serve):
    server = serve("--drain-timeout", 0)
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        with client.stream("POST", "/completion", json=ENDLESS) as answer:
            stream = events(answer.iter_lines())
            next(stream)
            server.signal()
            *_, last = [event for event in stream if event != "[DONE]"]
    assert last["stop"] is True and last["stop_reason"] == "shutdown"
    assert server.exit_code() == 0, server.log


def test_a_second_signal_ends_it_at_once(serve):
    server = serve("--drain-timeout", 600)
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
        with client.stream("POST", "/completion", json=ENDLESS) as answer:
            stream = events(answer.iter_lines())  # kept: without it the client would leave
            next(stream)
            server.signal()
            time.sleep(0.2)
            assert server.process.poll() is None, "the answer is still being written"
            server.signal()
            server.exit_code()


def test_idle_connections_do_not_hold_up_the_end(serve):
    server = serve()
    host, port = server.url.removeprefix("http://").split(":")
    idle = [socket.create_connection((host, int(port)), timeout=30) for _ in range(20)]
    idle[0].sendall(b"POST /completion HTTP/1.1\r\nContent-Len")
    assert right(server)
    server.signal()
    assert server.exit_code() == 0, server.log
    for connection in idle:
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_on_either_signal(serve, number):
    server = serve()
    server.signal(number)
    assert server.exit_code() == 0, server.log


# ---- what can't start ----


def test_a_port_in_use_is_one_line(sluice, demo):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fails(sluice("serve", "-m", demo, "--port", port), 1, str(port), "in use")


def test_an_address_that_is_not_of_this_machine_is_one_line(sluice, demo):
    fails(sluice("serve", "-m", demo, "--host", "192.0.2.1", "--port", 0), 1, "192.0.2.1")


def test_a_missing_model_is_one_line(sluice, tmp_path):
    fails(sluice("serve", "-m", tmp_path / "missing.gguf", "--port", 0), 1, "missing.gguf", "No such file")
    fails(sluice("serve", "--port", 0), 2)


def test_files_of_options_that_cannot_be_read_are_one_line(sluice, demo, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("\n\n")
    missing = tmp_path / "missing"
    for option, file in (
        ("--api-key-file", missing),
        ("--api-key-file", tmp_path),
        ("--api-key-file", empty),
        ("--chat-template-file", missing),
        ("--slot-save-path", missing),
    ):
        fails(sluice("serve", "-m", demo, "--port", 0, option, file), 1, str(file))


@pytest.mark.parametrize(
    "arguments", [["--abacus"], ["-np", "0"], ["--port", "70000"], ["--port", "x"], ["--reasoning-format", "loud"]]
)
def test_options_that_make_no_sense_are_one_line(sluice, demo, arguments):
    fails(sluice("serve", "-m", demo, *arguments), 2, arguments[0])


# ---- how people start it ----

STREAMED = (
    "--moe-mode slot-bank --moe-slot-bank 256 --moe-slot-path persistent --moe-topk 4 --ctx-size 4096 "
    "--no-warmup"
)
DRAFTED = (
    "--spec-draft-model qwen36-dflash.gguf --spec-type dflash --spec-dflash-cross-ctx 1024 --spec-draft-ngl all "
    "--ctx-size 32768 --n-gpu-layers 999 --n-cpu-moe 4 --flash-attn on --cache-type-k turbo3 --cache-type-v turbo3 "
    "-b 1024 -ub 512 -np 1 --jinja"
)


def test_command_lines_of_other_servers_start_and_say_what_is_used_instead(serve, demo):
    assert right(serve("--moe-sidecar", demo, *STREAMED.split()))
    server = serve(*DRAFTED.split())
    assert right(server)
    for word in ("--spec-draft-model", "--spec-type", "turbo3", "--gpu-layers", "--n-cpu-moe"):
        assert word in server.log, word


def test_options_come_from_the_environment_and_a_file(serve, tmp_path):
    config = tmp_path / "config"
    config.write_text("parallel = 3\nalias = from the file\n")
    server = serve("--config", config, env={"LLAMA_ARG_ALIAS": "from llama", "SLUICE_ALIAS": "from the environment"})
    client = server.client()
    assert client.get("/props").json()["total_slots"] == 3
    name = client.get("/v1/models").json()["data"][0]["id"]
    assert name in ("from the environment", "from the file")
    option = serve("--config", config, "--alias", "from the line", "-np", 2).client()
    assert option.get("/v1/models").json()["data"][0]["id"] == "from the line"
    assert option.get("/props").json()["total_slots"] == 2


def test_a_log_of_json_is_an_object_a_line(serve):
    server = serve("--log-format", "json")
    assert right(server)
    server.post("/completion", SUM, headers={"User-Agent": 'a"\\\tb'})
    server.signal()
    server.exit_code()
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    assert lines and all({"time", "level", "event"} <= set(line) for line in lines)
    assert any("completion" in json.dumps(line) for line in lines), "requests are in it"


# ---- many clients ----


def test_idle_and_slow_clients_hold_nobody_up(serve):
    server = serve("--threads-http", 1)
    host, port = server.url.removeprefix("http://").split(":")
    connections = [socket.create_connection((host, int(port)), timeout=30) for _ in range(500)]
    for connection in connections[::2]:
        connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    start = time.monotonic()
    assert right(server)
    assert time.monotonic() - start < PATIENCE / 2, "a thread for each would wait"
    for connection in connections:
        connection.close()


def test_clients_that_come_and_go_leave_it_as_it_was(serve):
    server = serve("-np", 2)

    def visit(i):
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
            with client.stream("POST", "/completion", json=ENDLESS | {"prompt": [17] * (40 + i)}) as answer:
                for _, _ in zip(range(i % 5), answer.iter_lines(), strict=False):
                    pass

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(visit, range(40)))
    assert right(server)
    end = time.monotonic() + PATIENCE
    while any(slot["is_processing"] for slot in server.client().get("/slots").json()):
        assert time.monotonic() < end, "a slot works for nobody"
        time.sleep(0.05)
