"""What the tests of streamed experts share: models, what their files say, and lines of options."""

import pathlib
import subprocess
import sys

import gguf
import numpy as np

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
# Ends of generation in the demo model; without them its answers are as long as they may be.
ENDLESS = ["--logit-bias", "1010-1000", "--logit-bias", "1008-1000"]
GREEDY = ["--no-chat", "--temp", "0"]
SUM = [*GREEDY, "-p", "1+1=", "-n", "4"]
LONG = [*GREEDY, "-p", "12+30=", *ENDLESS]


class Shape:
    """What a file says of its experts."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        architecture = reader.fields["general.architecture"].contents()
        self.experts = int(reader.fields[f"{architecture}.expert_count"].contents())
        self.used = int(reader.fields[f"{architecture}.expert_used_count"].contents())
        self.vocabulary = len(reader.fields["tokenizer.ggml.tokens"].data)
        self.expert_bytes = {}  # by layer
        for tensor in reader.tensors:
            if tensor.name.endswith("_exps.weight"):
                layer = int(tensor.name.split(".")[1])
                self.expert_bytes[layer] = self.expert_bytes.get(layer, 0) + int(tensor.n_bytes) // self.experts

    def tokens(self, n: int) -> list[int]:
        return [int(token) for token in np.random.default_rng(n).integers(0, self.vocabulary, n)]


def fails(done, code, *words):
    """The last line is the error and has these words; nothing came out."""
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and done.stderr.count("error: ") == 1, done.stderr
    for word in words:
        assert word in last


def make_synthetic(path, *arguments):
    """Writes a model of random weights."""
    tool = [sys.executable, TOOLS / "make_synthetic_gguf.py"]
    subprocess.run([*tool, *arguments, "-o", path], check=True, capture_output=True)


def make_sidecar(model, folder, layout):
    """A sidecar of the model, and the model without experts."""
    tool = [sys.executable, TOOLS / "make_sidecar.py"]
    dense = folder / "dense.gguf"
    subprocess.run([*tool, "--layout", layout, "--dense", dense, model, folder / "sidecar"], check=True)
    return folder / "sidecar", dense


def copy_gguf(original, writer, without=()):
    """Writes the model with this GGUFWriter, without some of its metadata."""
    reader = gguf.GGUFReader(original)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", *without):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(field.name, field.contents())
        else:
            writer.add_key_value(field.name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_split(model, folder) -> pathlib.Path:
    """The model in several files; returns the first."""
    architecture = gguf.GGUFReader(model).fields["general.architecture"].contents()
    copy_gguf(model, gguf.GGUFWriter(folder / "split.gguf", architecture, split_max_tensors=20))
    files = sorted(folder.iterdir())
    assert len(files) > 1
    return files[0]
