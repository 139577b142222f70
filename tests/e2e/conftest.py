"""What the end-to-end tests share: the program under test and the places of models and reference vectors."""

import json
import os
import pathlib
import subprocess

import pytest
from server import Server
from streaming import make_synthetic

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MICRO = ROOT / "tests/data/models/qwen35moe-micro/model.gguf"
DEMO = ROOT / "models/demo/sluice-demo.gguf"
SMOLLM2 = ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the tests that take minutes, too")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: takes minutes; runs with --full only")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--full"):
        return
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.skip(reason="takes minutes: ./dev test --full runs it"))


@pytest.fixture(scope="session")
def binary() -> pathlib.Path:
    path = pathlib.Path(os.environ.get("SLUICE_BINARY", ROOT / "build/release/sluice"))
    assert path.exists(), f"{path} is missing: ./dev build release, or set SLUICE_BINARY"
    return path


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> dict[str, str]:
    """The environment of the program: none of its own variables, and a cache folder that no other run has written."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "LLAMA_ARG_"))}
    return clean | {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="session")
def sluice(binary, environment):
    """Runs the program: sluice("info", path, stdin="...", env={...}) -> CompletedProcess with text output."""

    def run(*arguments, stdin="", env=None, timeout=300):
        return subprocess.run(
            [binary, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment | (env or {}),
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="session")
def start(binary, environment):
    """Starts the program: start("run", ..., env={...}) -> Popen with unbuffered pipes."""

    def begin(*arguments, env=None, **keywords):
        return subprocess.Popen(
            [binary, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # so that communicate() still gives what read() left
            env=environment | (env or {}),
            **keywords,
        )

    return begin


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory):
    """A model of random weights, 300 MB large: 4 layers of 64 experts, of which 8 are used."""
    path = tmp_path_factory.mktemp("synthetic") / "model.gguf"
    make_synthetic(path, "--preset", "mini", "--layers", "4")
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def reference() -> pathlib.Path:
    """The folder of the full reference vectors."""
    folder = os.environ.get("SLUICE_REFERENCE")
    if not folder:
        pytest.skip("SLUICE_REFERENCE is not set: the full reference vectors are not here")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def micro() -> pathlib.Path:
    """A model of random weights with a chat template: its answers mean nothing, but every part of it is there."""
    return MICRO


@pytest.fixture(scope="session")
def demo() -> pathlib.Path:
    """The demo model, which can sum."""
    if not DEMO.exists():
        pytest.skip(f"{DEMO.relative_to(ROOT)} is not here")
    return DEMO


@pytest.fixture(scope="session")
def smollm2() -> pathlib.Path:
    """SmolLM2-135M-Instruct, a real model; `./dev setup` fetches it."""
    if not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2.name} is not here: ./dev setup fetches it")
    return SMOLLM2


@pytest.fixture
def serve(binary, environment, demo):
    """Starts a server that is ready: serve("-np", 2) -> Server. Ends when the test does."""
    servers = []

    def begin(*arguments, model=demo, env=None, ready=True, **keywords):
        servers.append(Server(binary, environment | (env or {}), model, *arguments, **keywords))
        return servers[-1].wait_until_ready() if ready else servers[-1]

    yield begin
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def server(binary, environment, demo):
    """A server of the demo model that the tests of a file share. It must be alive when they are over."""
    shared = Server(binary, environment, demo, "-np", 4, "--metrics", "--threads-http", 2).wait_until_ready()
    yield shared
    code = shared.process.poll()
    shared.stop()
    assert code is None, f"it ended with {code}:\n{shared.log}"


@pytest.fixture(scope="module")
def client(server):
    return server.client()


@pytest.fixture
def cache(tmp_path) -> dict[str, str]:
    """An environment with a cache folder of the test's own."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def ask_demo(sluice, demo, cache):
    """Runs the demo model with --json: ask_demo("-p", "hi") -> the object that came out."""

    def run(*arguments, model=demo, env=None):
        done = sluice("run", "-m", model, "--json", *arguments, env=cache | (env or {}))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run
