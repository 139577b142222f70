"""sluice pack: experts in a file of their own, the same answers, and what is refused."""

import json
import pathlib
import resource
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

IDS = ",".join(str(7 * i % 500 + 3) for i in range(40))
MODELS = ["qwen35moe-micro-fused", "qwen35moe-tiny-ud-q4_k_xl", "qwen35moe-tiny-mxfp4", "qwen3moe-tiny"]


def ends_with_error(done, code, *words):
    assert done.returncode == code, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and all(word in last for word in words), done.stderr


@pytest.fixture
def pack(sluice, tmp_path):
    def run(model, name="packed"):
        done = sluice("pack", model, tmp_path / name)
        assert done.returncode == 0, done.stderr
        return tmp_path / name

    return run


@pytest.fixture
def logits(sluice, tmp_path):
    """Runs `sluice logits` and returns the process and the bytes of the logits."""

    def run(model, *options):
        out = tmp_path / "logits.npy"
        out.unlink(missing_ok=True)
        done = sluice("logits", "-m", model, "--tokens", IDS, "--npy", out, "--no-warm-start", *options)
        return done, out.read_bytes() if out.exists() else None

    return run


def expect_same_logits(logits, model, packed):
    _, expected = logits(model)
    assert expected
    for slots in (1, 2, 3, 5, 1000):
        for more in ([], ["--verify"], ["--io", "threads", "-ub", "7"]):
            done, found = logits(model, "--moe-sidecar", packed, "--moe-slot-bank", slots, *more)
            assert found == expected, (slots, more, done.stderr)
            assert "--verify changes nothing" not in done.stderr


def test_the_demo_model_answers_the_same(pack, logits, demo):
    expect_same_logits(logits, demo, pack(demo))


def test_a_model_of_mixed_formats_answers_the_same(pack, logits, micro):
    expect_same_logits(logits, micro, pack(micro))


@pytest.mark.parametrize("name", MODELS)
def test_reference_models_answer_the_same(pack, logits, reference, name):
    model = reference / "models" / name / "model.gguf"
    expect_same_logits(logits, model, pack(model))


def test_a_split_model_packs_to_the_same_file(pack, micro, reference):
    first = next((reference / "models/qwen35moe-micro-split").glob("*-00001-of-*.gguf"))
    assert pack(first, "split").read_bytes() == pack(micro, "whole").read_bytes()


@pytest.fixture
def dense(micro, tmp_path):
    """The model without its experts."""
    out = tmp_path / "dense.gguf"
    tool = [sys.executable, ROOT / "tools/make_sidecar.py", "--dense", out, micro, tmp_path / "sidecar"]
    subprocess.run(tool, check=True, capture_output=True)
    return out


def test_a_file_without_experts_runs_with_the_packed_ones(pack, logits, micro, dense):
    packed = pack(micro)
    assert logits(dense, "--moe-sidecar", packed)[1] == logits(micro)[1]
    ends_with_error(logits(dense)[0], 1, "--moe-sidecar")


def test_figures_are_those_of_the_file(sluice, micro, tmp_path):
    done = sluice("pack", micro, tmp_path / "packed", "--json")
    figures = json.loads(done.stdout)
    assert figures["layers"] == 4 and figures["experts_per_layer"] == 8
    assert figures["file_bytes"] == (tmp_path / "packed").stat().st_size > figures["expert_bytes"]
    assert "4 layers of 8 experts" in sluice("pack", micro, tmp_path / "packed").stdout


def test_a_damaged_expert_is_found_with_verify_only(pack, logits, micro):
    packed = pack(micro)
    content = bytearray(packed.read_bytes())
    entry = content[128 + 3 * 128 :]  # of the last layer, whose last expert ends the file
    content[-int.from_bytes(entry[16:24], "little")] ^= 1
    packed.write_bytes(content)
    for slots in (2, 8):  # read when it is needed, or at the start
        options = ("--moe-sidecar", packed, "--moe-slot-bank", slots)
        assert logits(micro, *options)[0].returncode == 0
        done, _ = logits(micro, *options, "--verify")
        ends_with_error(done, 1, str(packed), "layer 3, expert 7", "checksum", "pack the model again")


def test_verify_without_checksums_says_so(logits, micro):
    done, found = logits(micro, "--verify")
    assert found and "--verify changes nothing" in done.stderr


def test_packed_experts_of_another_model_are_refused(sluice, pack, logits, micro, demo, tmp_path):
    options = ("--moe-sidecar", pack(demo))
    ends_with_error(logits(micro, *options)[0], 1, "packed", "another model")
    # The same routers and shapes, but other weights.
    other = tmp_path / "other.gguf"
    assert sluice("quantize", micro, other, "Q8_0").returncode == 0
    ends_with_error(logits(micro, "--moe-sidecar", pack(other))[0], 1, "not the same as in", "another model")


def test_the_same_shapes_with_other_content_are_refused(pack, logits, micro, tmp_path):
    packed = pack(micro)
    other = tmp_path / "other.gguf"
    content = micro.read_bytes()
    half = len(content) // 2
    other.write_bytes(content[:half] + bytes(b ^ 1 for b in content[half:]))
    ends_with_error(logits(other, "--moe-sidecar", packed)[0], 1, str(packed), "another model")


def test_errors_name_the_remedy(sluice, pack, logits, micro, dense, tmp_path):
    ends_with_error(sluice("pack", micro, micro), 2, "is the file that is read")
    ends_with_error(sluice("pack", dense, tmp_path / "none"), 1, "has no experts to pack")
    ends_with_error(sluice("pack", micro, tmp_path / "no/folder/packed"), 1, "can't create")
    assert not (tmp_path / "none").exists()
    packed = pack(micro)
    ends_with_error(logits(packed)[0], 1, "packed")
    content = packed.read_bytes()
    for damaged, words in [
        (content[:-1], "copy it again"),
        (content[:100], "cut short"),
        (content[:8] + b"\2" + content[9:], "version is 2"),
        (content[:300] + b"\0\1\2" + content[303:], "checksum"),
    ]:
        packed.write_bytes(damaged)
        ends_with_error(logits(micro, "--moe-sidecar", packed)[0], 1, str(packed), words)


def test_a_full_disk_leaves_no_file(binary, micro, tmp_path):
    def limit():  # as a full disk: a write that the system refuses
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = subprocess.run(
        [binary, "pack", micro, tmp_path / "packed"], capture_output=True, text=True, preexec_fn=limit
    )
    ends_with_error(done, 1, "packed", "writing at offset", "failed")
    assert list(tmp_path.iterdir()) == []
