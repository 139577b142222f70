"""tools/make_sidecar.py: the bytes of other writers of the format."""

import hashlib
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "tools/make_sidecar.py"
MICRO = ROOT / "tests/data/models/qwen35moe-micro/model.gguf"

# SHA-256 of what an independent writer makes of the same model. Its layers of whole tensors are also, byte for byte,
# those of flashmoe_sidecar.py, the format's own tool.
LAYERS = {
    "whole": [
        "62df6ce067861702feef5998d6a5a3bc76573e167a37ba07f65dd10378c4ac1d",
        "167b8a5b24028055255fb3cbe3d5c97270a8938130d2711fb59f74555948c1f5",
        "a500688c2e640d3c687d8c1ef2fce7418a8259cb1d57044a9a472c7ef1799d03",
        "2d0ba2fd9adbf0588172de719f65431531d8267b840be0fe44a2a9edcb4156b8",
    ],
    "expert": [
        "a7e56c2c1f941b3d01b2260d16332007dab9e8e510d8066a7ad7b9e8c7c2c1f4",
        "ad54dc68056cfd2e9c8b28685c41382156814b2efefa85def98b08bdd82f5296",
        "6b52fdfe90a6dddb242c76deed21312f20b8cdc71acf562d20706c6027804ca5",
        "48b64e5f4b717dd0a42b007484c3ee18df030d163f73d7135f81be7ff3159895",
    ],
}
DENSE = "3096a962acb53feba6fc01b45deb7f19eb834365034bd70ca9a68ddc698a281a"


def make(*arguments):
    return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("layout", LAYERS)
def test_layer_files_are_those_of_other_writers(tmp_path, layout):
    done = make("--layout", layout, MICRO, tmp_path / "sidecar")
    assert done.returncode == 0, done.stderr
    assert [sha256(tmp_path / f"sidecar/layer_{i:03d}.bin") for i in range(4)] == LAYERS[layout]
    manifest = json.loads((tmp_path / "sidecar/manifest.json").read_text())
    assert len(manifest["entries"]) == 12
    for entry in manifest["entries"]:
        size = (tmp_path / "sidecar" / entry["repacked_file"]).stat().st_size
        stride = entry.get("expert_stride", entry["bytes_per_expert"])
        assert entry["repacked_offset"] + 7 * stride + entry["bytes_per_expert"] <= size


def test_the_model_without_experts_is_that_of_another_writer(tmp_path):
    assert make("--dense", tmp_path / "dense.gguf", MICRO, tmp_path / "sidecar").returncode == 0
    assert sha256(tmp_path / "dense.gguf") == DENSE


def test_the_model_itself_is_not_overwritten(tmp_path):
    model = tmp_path / "model.gguf"
    model.write_bytes(MICRO.read_bytes())
    done = make("--dense", model, model, tmp_path / "sidecar")
    assert done.returncode == 1 and "is the model itself" in done.stderr
    assert model.read_bytes() == MICRO.read_bytes()


def test_what_is_no_model_with_experts_is_refused(tmp_path):
    text = tmp_path / "text.gguf"
    text.write_text("hello")
    assert "is no GGUF file" in make(text, tmp_path / "sidecar").stderr
    assert make("--dense", tmp_path / "dense.gguf", MICRO, tmp_path / "sidecar").returncode == 0
    assert "has no experts" in make(tmp_path / "dense.gguf", tmp_path / "other").stderr
