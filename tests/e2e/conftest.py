"""What the end-to-end tests share: the program under test and the places of models and reference vectors."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SMOLLM2 = ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"


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
def smollm2() -> pathlib.Path:
    """SmolLM2-135M-Instruct, a real model; `./dev setup` fetches it."""
    if not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2.name} is not here: ./dev setup fetches it")
    return SMOLLM2
