"""Experts that are read from disk: what is noted for the next start, files that change, and memory."""

import ctypes
import json
import mmap
import os
import pathlib
import shutil
import time

import gguf
import numpy as np
import pytest
from streaming import GREEDY, LONG, SUM, make_synthetic

# ---- warm start


WARM = [*SUM, "--moe-slot-bank", 24, "--look-ahead", "off"]


def notes(cache) -> list[pathlib.Path]:
    folder = pathlib.Path(cache["XDG_CACHE_HOME"]) / "sluice"
    return list(folder.iterdir()) if folder.is_dir() else []


def test_the_next_start_reads_what_was_in_memory(ask_demo, cache):
    first = ask_demo(*WARM)["experts"]
    [note] = notes(cache)
    assert 0 < note.stat().st_size < 10_000
    second = ask_demo(*WARM)["experts"]
    assert second["hit_rate"] > first["hit_rate"] + 0.3
    assert notes(cache) == [note]
    before = note.read_bytes()
    cold = ask_demo(*WARM, "--no-warm-start")["experts"]
    assert (cold["hits"], cold["misses"]) == (first["hits"], first["misses"])
    assert note.read_bytes() == before


def test_without_warm_start_or_with_all_in_memory_nothing_is_noted(ask_demo, cache):
    ask_demo(*WARM, "--no-warm-start")
    ask_demo(*SUM)
    ask_demo(*SUM, "--moe-slot-bank", 32)
    assert notes(cache) == []


def test_the_note_follows_home_when_no_cache_folder_is_named(ask_demo, tmp_path):
    ask_demo(*WARM, env={"XDG_CACHE_HOME": "", "HOME": str(tmp_path)})
    assert len(list((tmp_path / ".cache/sluice").iterdir())) == 1
    assert ask_demo(*WARM, env={"XDG_CACHE_HOME": "", "HOME": ""})["text"] == "2"


TITLE = b"sluice experts in memory, version 1\n"
DAMAGE = {
    "empty": b"",
    "random": bytes(np.random.default_rng(1).integers(0, 256, 5000, dtype=np.uint8)),
    "title": TITLE,
    "no-layer": TITLE + b"0 1\n99 1\n",
    "no-expert": TITLE + b"0 32\n",
    "negative": TITLE + b"0 -1\n-1 0\n",
    "overflow": TITLE + b"99999999999999999999 0\n",
    "words": TITLE + b"0 1\nzero one\n",
    "half-a-line": TITLE + b"0 1\n0",
    "many-times": TITLE + b"3 3\n" * 1000,
    "every-expert": TITLE + b"".join(b"%d %d\n" % (layer, e) for layer in range(8) for e in range(32)),
    "newer": b"sluice experts in memory, version 2\n0 1\n",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_note_does_no_harm(ask_demo, cache, damage):
    ask_demo(*WARM)
    [note] = notes(cache)
    sound = note.read_bytes()
    assert sound.startswith(TITLE), "else nothing here is tested"
    note.write_bytes(DAMAGE[damage])
    assert ask_demo(*WARM)["text"] == "2"
    assert note.read_bytes().startswith(TITLE), "and is replaced"
    assert ask_demo(*WARM)["experts"]["hit_rate"] > 0.5


def test_the_note_of_another_model_does_no_harm(ask_demo, cache, synthetic):
    ask_demo(*WARM)
    [note] = notes(cache)
    ask_demo(*GREEDY, "-p", "hi", "-n", "2", "--moe-slot-bank", 16, model=synthetic)
    [other] = [path for path in notes(cache) if path != note]
    assert other.read_bytes() != note.read_bytes()
    note.write_bytes(other.read_bytes())
    assert ask_demo(*WARM)["text"] == "2"


@pytest.mark.parametrize("thing", ["huge", "directory", "pipe"])
def test_what_is_no_note_does_no_harm(ask_demo, cache, thing):
    ask_demo(*WARM)
    [note] = notes(cache)
    note.unlink()
    if thing == "huge":
        with open(note, "wb") as file:
            file.truncate(1 << 30)
    elif thing == "directory":
        note.mkdir()
    else:
        os.mkfifo(note)
    assert ask_demo(*WARM)["text"] == "2"


def test_a_cache_folder_that_cannot_be_written_is_one_line(sluice, demo, tmp_path):
    (tmp_path / "file").touch()
    done = sluice("run", "-m", demo, *WARM, env={"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert (done.returncode, done.stdout) == (0, "2\n")
    assert "could not be noted" in done.stderr


# ---- faults while it runs


@pytest.fixture(scope="session")
def long_answer(sluice, demo) -> str:
    done = sluice("run", "-m", demo, *LONG, "-n", "600")
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


@pytest.fixture
def answer_while(start, demo, tmp_path, cache):
    """answer_while(change, *options): a long answer of a copy of the demo model, whose file is changed in mid-answer.
    Returns the exit code, what came out, stderr and the copy's path."""

    def run(change, *options):
        model = tmp_path / "model.gguf"
        shutil.copyfile(demo, model)
        process = start("run", "-m", model, *LONG, "-n", "600", *options, env=cache)
        head = process.stdout.read(20)
        assert process.poll() is None, "it has answered before the file was changed"
        change(model)
        rest, said = process.communicate(timeout=120)
        return process.returncode, (head + rest).decode().rstrip("\n"), said.decode(), model

    return run


LONGEST_TOKEN = 16  # of the demo model, in characters


def truncate(model):
    os.truncate(model, 100_000)


def empty(model):
    os.truncate(model, 0)


def overwrite(model):
    with open(model, "r+b") as file:
        file.seek(1 << 20)
        file.write(b"\x55" * (6 << 20))


def extend(model):
    with open(model, "ab") as file:
        file.write(b"\0" * 4096)


def replace(model):
    other = model.with_suffix(".new")
    other.write_bytes(b"something else")
    other.rename(model)


@pytest.mark.parametrize("io", ["auto", "threads"])
@pytest.mark.parametrize("change", [truncate, empty, overwrite, extend])
def test_a_file_that_changes_under_an_answer_ends_it(answer_while, long_answer, change, io):
    code, text, said, model = answer_while(change, "--moe-slot-bank", 1, "--io", io)
    assert code == 1, said
    [error] = [line for line in said.splitlines() if line.startswith("error: ")]
    assert str(model) in error and said.endswith(error + "\n")
    assert 0 < len(text) < len(long_answer)
    right = len(os.path.commonprefix([text, long_answer]))
    assert len(text) - right <= LONGEST_TOKEN, "more than the step that was under way was wrong"


def test_no_token_of_a_changed_file_comes_out(answer_while, long_answer):
    _, text, _, _ = answer_while(overwrite, "--moe-slot-bank", 1)
    assert long_answer.startswith(text)


def test_a_file_that_is_replaced_is_read_on(answer_while, long_answer):
    code, text, said, _ = answer_while(replace, "--moe-slot-bank", 1)
    assert (code, text) == (0, long_answer), said


def test_with_all_experts_in_memory_the_file_is_not_needed(answer_while, long_answer):
    code, text, said, _ = answer_while(empty, "--moe-slot-bank", 32)
    assert (code, text) == (0, long_answer), said


# ---- memory


def cached_pages(path) -> np.ndarray:
    """For each page of a file, whether it is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    size = path.stat().st_size
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    with open(path, "rb") as file:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    assert address != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    assert libc.mincore(address, size, pages) == 0, os.strerror(ctypes.get_errno())
    libc.munmap(address, size)
    return np.frombuffer(pages.raw[: len(pages)], np.uint8) & 1 == 1


def drop_from_cache(path):
    with open(path, "r+b") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_pages(path).mean() > 0.001:
        pytest.skip(f"{path.parent}: this file system keeps its files in memory")


def peak_while_running(process):
    """The most memory that a process has had resident. (wait4's figure can be of the process that started it.)"""
    peak = 0
    while process.poll() is None:
        lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
        peak = max([peak, *(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))])
        time.sleep(0.005)
    return peak


def test_memory_stays_within_the_plan_and_the_file_out_of_the_cache(start, sluice, synthetic):
    options = ["--moe-slot-bank", 16, "--no-warm-start", "-c", "1024", "-b", "128"]
    plan = json.loads(sluice("plan", "-m", synthetic, "--json", *options).stdout)["total_bytes"]
    assert plan < synthetic.stat().st_size * 0.8
    drop_from_cache(synthetic)
    process = start("run", "-m", synthetic, *GREEDY, "-p", "hello", "-n", "20", *options)
    peak = peak_while_running(process)
    said = process.stderr.read().decode()
    assert process.returncode == 0, said
    assert "64 of 256 experts" in said
    assert plan / 2 < peak < 1.03 * plan + (16 << 20)
    # Small tensors that are read once, at the start, may be there; experts may not.
    cached = cached_pages(synthetic)
    for tensor in gguf.GGUFReader(synthetic).tensors:
        if tensor.name.endswith("_exps.weight"):
            begin, end = int(tensor.data_offset), int(tensor.data_offset) + int(tensor.n_bytes)
            share = cached[begin // mmap.PAGESIZE + 1 : end // mmap.PAGESIZE].mean()
            assert share < 0.02, f"{share:.1%} of {tensor.name}"


class ControlGroup:
    """A control group of its own with a limit of memory, version 1 or 2; skips the test where none can be made."""

    def __init__(self, limit):
        if os.geteuid() != 0:
            pytest.skip("only root may make a control group with a limit of memory")
        name = f"sluice-test-{os.getpid()}"
        try:
            v1 = pathlib.Path("/sys/fs/cgroup/memory")
            self.v2 = not v1.is_dir()
            self.folder = (pathlib.Path("/sys/fs/cgroup") if self.v2 else v1) / name
            self.folder.mkdir()
            (self.folder / ("memory.max" if self.v2 else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError as error:
            if self.folder.is_dir():
                self.folder.rmdir()
            pytest.skip(f"no control group with a limit of memory can be made here: {error}")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self) -> int:
        text = (self.folder / ("memory.events" if self.v2 else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])

    def peak(self) -> int:
        return int((self.folder / ("memory.peak" if self.v2 else "memory.max_usage_in_bytes")).read_text())

    def remove(self):
        self.folder.rmdir()


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """A model of random weights, 1.5 GB large, with the shapes of a real one but few layers."""
    path = tmp_path_factory.mktemp("large") / "model.gguf"
    make_synthetic(path, "--layers", "3", "--vocab", "32768")
    yield path
    path.unlink()


@pytest.mark.full
def test_in_a_control_group_of_a_third_of_its_size_a_model_answers(start, sluice, large):
    limit = large.stat().st_size // 3
    ask = [*GREEDY, "-p", "hello", "-n", "16", "--no-warm-start"]
    expected = sluice("run", "-m", large, *ask).stdout
    drop_from_cache(large)
    group = ControlGroup(limit)
    try:
        process = start("run", "-m", large, *ask, "--expert-memory", "auto", preexec_fn=group.enter)
        out, said = (text.decode() for text in process.communicate(timeout=300))
        assert process.returncode == 0, said
        assert out == expected
        assert " of 768 experts fit into memory" in said
        assert group.kills() == 0
        assert limit / 2 < group.peak() <= limit, "the memory that there is gets used"
        assert cached_pages(large).mean() < 0.02
    finally:
        group.remove()
