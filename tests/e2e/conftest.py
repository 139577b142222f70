"""What the end-to-end tests share: the program under test and the places of models and reference vectors."""

import os
import pathlib
import subprocess

import pytest

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
def sluice(binary):
    """Runs the program: sluice("info", path, stdin="...", env={...}) -> CompletedProcess with text output."""

    def run(*arguments, stdin="", env=None, timeout=300):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "LLAMA_ARG_"))}
        return subprocess.run(
            [binary, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            env=clean | (env or {}),
            timeout=timeout,
        )

    return run


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
