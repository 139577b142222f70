"""The commands as scripts use them: machine-readable output, files written, exit codes and the one line of an error."""

import base64
import json
import pathlib

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
MICRO = DATA / "models/qwen35moe-micro"
MODEL = MICRO / "model.gguf"
DEMO = pathlib.Path(__file__).resolve().parent.parent.parent / "models/demo/sluice-demo.gguf"


def json_lines(done, n):
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == n
    return lines


def ask(sluice, *arguments, questions):
    return json_lines(sluice(*arguments, stdin="".join(json.dumps(q) + "\n" for q in questions)), len(questions))


def tensors_of(path) -> dict:
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def values_of(tensor) -> np.ndarray:
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def fails(done, code, *parts):
    """The run failed with this exit code and one line that has the parts."""
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ") and done.stderr.count("\nerror:") == 0
    for part in parts:
        assert part in last


# ---- tokenize, detokenize, template


@pytest.mark.parametrize("name", ["qwen35", "smollm2", "llama-bpe", "mistral-spm"])
def test_tokenize_gives_the_reference_ids(sluice, reference, name):
    vectors = json.loads((DATA / f"tokenizers/{name}.json").read_text())
    texts = [{"text": case["text"]} for case in vectors["encode"]]
    invalid = [{"bytes_b64": case["bytes_b64"]} for case in vectors["invalid_utf8"]]
    vocabulary = reference / f"tokenizers/{name}-vocab.gguf"
    answers = ask(sluice, "tokenize", "-m", vocabulary, "--jsonl", questions=texts + invalid)
    for case, answer in zip(vectors["encode"] + vectors["invalid_utf8"], answers):
        assert answer == {"ids": case["ids"]}, case["name"]


@pytest.mark.parametrize("name", ["qwen35", "smollm2"])
def test_detokenize_gives_the_reference_bytes_and_stream(sluice, reference, name):
    vectors = json.loads((DATA / f"tokenizers/{name}.json").read_text())["decode"]
    questions = [{"ids": case["ids"]} for case in vectors]
    vocabulary = reference / f"tokenizers/{name}-vocab.gguf"
    answers = ask(sluice, "detokenize", "-m", vocabulary, "--jsonl", questions=questions)
    for case, answer in zip(vectors, answers):
        assert answer["bytes_b64"] == case["bytes_b64"], case["name"]
        assert answer["stream"] == case["stream"], case["name"]
        assert answer["stream_end"] == case.get("stream_end", ""), case["name"]


def test_detokenize_gives_the_reference_text_of_sentencepiece(sluice, reference):
    # The reference takes away the space in front that encoding adds; a stream can't know that it stands at the start.
    vectors = json.loads((DATA / "tokenizers/mistral-spm.json").read_text())["decode"]
    questions = [{"ids": case["ids"]} for case in vectors]
    vocabulary = reference / "tokenizers/mistral-spm-vocab.gguf"
    for case, answer in zip(vectors, ask(sluice, "detokenize", "-m", vocabulary, "--jsonl", questions=questions)):
        text = "".join(answer["stream"]) + answer["stream_end"]
        assert text.removeprefix(" ") == case["decoded"], case["name"]


def test_a_line_that_cannot_be_answered_does_not_stop_the_next(sluice):
    done = sluice("tokenize", "-m", MODEL, "--jsonl", stdin='{"text": "a"}\nnonsense\n{"bytes_b64": "YQ=="}\n')
    first, wrong, last = json_lines(done, 3)
    assert "error" in wrong
    assert first == last and first["ids"]
    [wrong] = ask(sluice, "detokenize", "-m", MODEL, "--jsonl", questions=[{"ids": [10**6]}])
    assert "1000000" in wrong["error"]


def test_ids_and_bytes_of_every_byte_round_trip(sluice):
    data = base64.b64encode("Grüße, 世界! \U0001f600\n\t".encode()).decode()
    [ids] = ask(sluice, "tokenize", "-m", MODEL, "--jsonl", questions=[{"bytes_b64": data}])
    [back] = ask(sluice, "detokenize", "-m", MODEL, "--jsonl", questions=[ids])
    assert back["bytes_b64"] == data
    assert base64.b64decode(data).decode() == "".join(back["stream"]) + back["stream_end"]


def test_templates_render_as_the_reference(sluice):
    cases = json.loads((DATA / "templates/real.json").read_text())
    index = {entry["file"]: entry for entry in json.loads((DATA / "templates/real/index.json").read_text())}
    contexts = {c["name"]: c["context"] for c in json.loads((DATA / "templates/conversations.json").read_text())}
    cases = [case for case in cases if "expected" in case and "strftime_now" not in template_of(case)]
    questions = []
    for case in cases:
        tokens = index[pathlib.Path(case["template_file"]).name]["special_tokens"]
        questions.append({"template": template_of(case), "context": tokens | contexts[case["conversation"]]})
    for case, answer in zip(cases, ask(sluice, "template", "--jsonl", questions=questions)):
        assert answer == {"text": case["expected"]}, case["name"]


def template_of(case) -> str:
    return (DATA / "templates" / case["template_file"]).read_text()


def test_a_template_error_says_kind_message_and_line(sluice):
    [answer] = ask(
        sluice, "template", "--jsonl", questions=[{"template": "a\n{{ 1 // 0 }}", "context": {}}]
    )
    assert answer["error"]["kind"] == "zero_division"
    assert answer["error"]["line"] == 2
    assert answer["error"]["message"]


# ---- info, plan


def test_info_agrees_with_another_reader_of_the_file(sluice):
    out = json.loads(sluice("info", MODEL, "--json").stdout)
    tensors = tensors_of(MODEL)
    types = {}
    for tensor in tensors.values():
        entry = types.setdefault(tensor.tensor_type.name, {"count": 0, "bytes": 0})
        entry["count"] += 1
        entry["bytes"] += int(tensor.n_bytes)
    assert out["types"] == types
    assert out["tensors"] == len(tensors)
    assert out["parameters"] == sum(int(t.n_elements) for t in tensors.values())
    assert out["file_bytes"] == MODEL.stat().st_size
    assert (out["architecture"], out["layers"], out["experts"], out["experts_used"]) == ("qwen35moe", 4, 8, 2)
    assert out["context_length"] == 8192
    assert out["tokenizer"]["model"] == "gpt2" and out["tokenizer"]["tokens"] == 640
    assert out["tokenizer"]["chat_template"] is True
    # The experts that are not used, and all rows of the embedding but one, are not read for a token.
    total = sum(entry["bytes"] for entry in types.values())
    experts = sum(int(t.n_bytes) for name, t in tensors.items() if "_exps" in name)
    embedding = int(tensors["token_embd.weight"].n_bytes)
    assert out["bytes_per_token"] == total - experts * 6 // 8 - embedding // 640 * 639
    assert out["memory"] == json.loads(sluice("plan", "-m", MODEL, "--json").stdout)["categories"]


def test_info_lists_tensors_where_they_lie(sluice):
    listed = json.loads(sluice("info", MODEL, "--tensors", "--json").stdout)["tensor_list"]
    for tensor, found in zip(gguf.GGUFReader(MODEL).tensors, listed, strict=True):
        assert found["name"] == tensor.name
        assert found["shape"] == [int(n) for n in tensor.shape]
        assert (found["type"], found["bytes"]) == (tensor.tensor_type.name, int(tensor.n_bytes))
        assert found["offset"] == tensor.data_offset
    page = sluice("info", MODEL, "--tensors").stdout
    assert all(found["name"] in page for found in listed)


def test_info_describes_a_vocabulary(sluice, reference):
    path = reference / "tokenizers/qwen35-vocab.gguf"
    out = json.loads(sluice("info", path, "--json").stdout)
    assert out["tokenizer"]["tokens"] == 248320
    assert out["tensors"] == 0 and out["memory"] is None
    assert "248320 tokens" in sluice("info", path).stdout


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "blk.0.ffn_down_exps.weight", "blk.3.ffn_up_exps.weight", "output_norm.weight"]
)
def test_info_writes_a_tensor_as_dequantized_elsewhere(sluice, tmp_path, name):
    done = sluice("info", MODEL, "--tensor", name, "--npy", tmp_path / "t.npy")
    assert done.returncode == 0, done.stderr
    found, wanted = np.load(tmp_path / "t.npy"), values_of(tensors_of(MODEL)[name])
    assert found.dtype == np.float32 and found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


def test_plan_adds_up_and_follows_the_options(sluice):
    def plan(*options):
        return json.loads(sluice("plan", "-m", MODEL, "--json", *options).stdout)

    small, large = plan("-c", 512), plan("-c", 4096, "-ctk", "f32", "-ctv", "f32")
    for out in (small, large):
        assert out["total_bytes"] == sum(out["categories"].values())
        assert out["fits"] == (out["total_bytes"] <= out["available_bytes"])
    assert large["categories"]["KV cache"] > 8 * small["categories"]["KV cache"]
    assert large["categories"]["dense weights"] == small["categories"]["dense weights"]


# ---- logits


def divergence(wanted, found) -> np.ndarray:
    """KL(wanted || found) of every row of logits, in nats."""

    def log_softmax(z):
        z = z.astype(np.float64) - z.max(axis=-1, keepdims=True)
        return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))

    p, q = log_softmax(wanted), log_softmax(found)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def test_no_instruction_set_nor_threads_nor_batches_change_a_bit(sluice, tmp_path):
    out = tmp_path / "logits.npy"
    ids = ",".join(str(3 * i % 1000) for i in range(70))

    def logits(*options):
        done = sluice("logits", "-m", DEMO, "--tokens", ids, "--npy", out, *options)
        assert done.returncode == 0, done.stderr
        return out.read_bytes()

    expected = logits()
    for isa in json.loads(sluice("version", "--json").stdout)["isa_usable"]:
        for threads in (1, 2, 3):
            for rows in (1, 5, 64, 512):
                if isa != "scalar" or rows == 5:  # which is slow
                    assert logits("--isa", isa, "-t", threads, "-ub", rows) == expected, (isa, threads, rows)


def test_logits_are_those_of_the_reference(sluice, tmp_path):
    wanted = load_file(MICRO / "reference.safetensors")
    allowed = json.loads((MICRO / "reference.json").read_text())["tolerance"]["rounded_activations_kl_mean"]
    rows = []
    for n in (1, 5, 65):
        ids = ",".join(map(str, wanted[f"prompt.{n}.tokens"]))

        def logits(*options):
            out = tmp_path / "logits.npy"
            done = sluice("logits", "-m", MODEL, "--tokens", ids, "--npy", out, "-ctk", "f32", "-ctv", "f32", *options)
            assert done.returncode == 0, done.stderr
            return np.load(out)

        found, expected = logits(), wanted[f"prompt.{n}.logits"]
        assert found.dtype == np.float32 and found.shape == expected.shape
        rows.append(divergence(expected, found))
        assert logits("--batch", 3).tobytes() == found.tobytes()
        assert logits("--last", "-t", 1).tobytes() == found[-1:].tobytes()
    assert np.concatenate(rows).mean() <= allowed


# ---- quantize


def test_f32_copies_hold_the_dequantized_bits(sluice, tmp_path):
    assert sluice("quantize", MODEL, tmp_path / "out.gguf", "F32").returncode == 0
    before, after = tensors_of(MODEL), tensors_of(tmp_path / "out.gguf")
    assert list(before) == list(after)
    for name, tensor in after.items():
        assert tensor.tensor_type.name == "F32"
        assert values_of(tensor).tobytes() == values_of(before[name]).tobytes(), name


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_0", "BF16"])
def test_blocks_are_those_of_the_reference_quantizer(sluice, tmp_path, type_name):
    assert sluice("quantize", MODEL, tmp_path / "f32.gguf", "F32").returncode == 0
    for threads in (1, 3):
        done = sluice("quantize", tmp_path / "f32.gguf", tmp_path / f"{threads}.gguf", type_name, "-t", threads)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()
    kind = gguf.GGMLQuantizationType[type_name]
    source = tensors_of(tmp_path / "f32.gguf")
    converted = 0
    for name, tensor in tensors_of(tmp_path / "1.gguf").items():
        if tensor.tensor_type != kind:
            assert tensor.data.tobytes() == source[name].data.tobytes(), name
            continue
        converted += 1
        assert tensor.data.tobytes() == gguf.quants.quantize(source[name].data, kind).tobytes(), name
    assert converted == 44


def test_small_tensors_stay_and_overrides_choose_by_name(sluice, tmp_path):
    out = tmp_path / "out.gguf"
    overrides = ["--override", "ffn_(up|gate)_exps=Q5_1", "--override", "exps|^output=F16"]
    assert sluice("quantize", MODEL, out, "q8_0", *overrides).returncode == 0
    before, after = tensors_of(MODEL), tensors_of(out)
    for name, tensor in after.items():
        if "up_exps" in name or "gate_exps" in name:
            wanted = "Q5_1"
        elif "down_exps" in name or name == "output.weight":
            wanted = "F16"
        elif "norm" in name or "gate_inp" in name or "conv1d" in name or not name.endswith(".weight"):
            wanted = before[name].tensor_type.name
        else:
            wanted = "Q8_0"
        assert tensor.tensor_type.name == wanted, name
    fields = gguf.GGUFReader(out).fields
    assert fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q8_0
    assert fields["general.quantization_version"].contents() == 2


def test_rows_that_no_super_block_divides_take_smaller_blocks_and_say_so(sluice, tmp_path):
    for type_name, taken in (("Q4_K", "Q5_0"), ("Q5_K", "Q5_1"), ("Q6_K", "Q8_0")):
        done = sluice("quantize", MODEL, tmp_path / "out.gguf", type_name)
        assert done.returncode == 0
        assert f"note: {taken} instead of {type_name} for 44 tensors" in done.stderr
        assert tensors_of(tmp_path / "out.gguf")["blk.0.ffn_up_exps.weight"].tensor_type.name == taken


def test_a_split_model_becomes_one_file(sluice, reference, tmp_path):
    folder = reference / "models/qwen35moe-micro-split"
    done = sluice("quantize", sorted(folder.glob("*.gguf"))[0], tmp_path / "out.gguf", "F32")
    assert done.returncode == 0, done.stderr
    assert not [key for key in gguf.GGUFReader(tmp_path / "out.gguf").fields if key.startswith("split.")]
    whole = tensors_of(MODEL)
    for name, tensor in tensors_of(tmp_path / "out.gguf").items():
        assert tensor.data.tobytes() == values_of(whole[name]).tobytes(), name


def write_model(path, **tensors):
    writer = gguf.GGUFWriter(path, "llama")
    for name, values in tensors.items():
        writer.add_tensor(name, np.asarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_each_row_length_gets_the_format_that_fits_it(sluice, tmp_path):
    rng = np.random.default_rng(1)
    widths = {"super.weight": 512, "small.weight": 96, "odd.weight": 48}
    write_model(tmp_path / "in.gguf", **{name: rng.standard_normal((3, n)) for name, n in widths.items()})
    done = sluice("quantize", tmp_path / "in.gguf", tmp_path / "out.gguf", "Q6_K")
    found = {name: t.tensor_type.name for name, t in tensors_of(tmp_path / "out.gguf").items()}
    assert found == {"super.weight": "Q6_K", "small.weight": "Q8_0", "odd.weight": "F16"}
    assert done.stderr.count("note: ") == 2


def test_a_value_that_a_format_cannot_hold_leaves_no_file(sluice, tmp_path):
    values = np.ones((3, 64), np.float32)
    for value, type_name in ((np.nan, "Q8_0"), (1e5, "F16")):
        values[2, 40] = value
        write_model(tmp_path / "in.gguf", **{"blk.0.attn_q.weight": values})
        done = sluice("quantize", tmp_path / "in.gguf", tmp_path / "out.gguf", type_name)
        fails(done, 1, "in.gguf", "blk.0.attn_q.weight", "row 2", "BF16")
        assert [path.name for path in tmp_path.iterdir()] == ["in.gguf"]


# ---- exit codes and errors


def test_errors_name_the_remedy(sluice, tmp_path):
    out = tmp_path / "out.gguf"
    fails(sluice("inf", MODEL), 2, "did you mean info?")
    fails(sluice("info"), 2, "MODEL")
    fails(sluice("info", MODEL, "--tensor", "tokn_embd.weight", "--npy", out), 2, "token_embd.weight")
    fails(sluice("info", MODEL, "--tensor", "token_embd.weight"), 2, "--npy")
    fails(sluice("info", tmp_path / "missing.gguf"), 1, "missing.gguf")
    fails(sluice("plan", "-m", MODEL, "--theads", 2), 2, "--threads")
    fails(sluice("quantize", MODEL, out, "Q3_K"), 2, "only reads", "Q4_K")
    fails(sluice("quantize", MODEL, out, "Q4_K_M"), 2, "no weight format", "Q4_K")
    fails(sluice("quantize", MODEL, MODEL, "Q8_0"), 2, "name another")
    fails(sluice("quantize", MODEL, out, "Q8_0", "--override", "("), 2, "REGEX=TYPE")
    fails(sluice("quantize", MODEL, out, "Q8_0", "--override", "(=F16"), 2, "regular expression")
    fails(sluice("quantize", MODEL, out, "Q8_0", "--override", "norm=F16"), 2, "matches none")
    fails(sluice("quantize", MODEL, tmp_path / "no/out.gguf", "Q8_0"), 1, "no/out.gguf")
    fails(sluice("logits", "-m", MODEL, "--tokens", "1,x", "--npy", out), 2, "1,x")
    assert not out.exists()


@pytest.mark.parametrize("cut", [3, 100, 40000, 700000])
def test_a_truncated_model_is_one_line(sluice, tmp_path, cut):
    path = tmp_path / "cut.gguf"
    path.write_bytes(MODEL.read_bytes()[:cut])
    fails(sluice("info", path), 1, "cut.gguf")
    fails(sluice("plan", "-m", path), 1, "cut.gguf")


# ---- trace, simulate


def traced(sluice, tmp_path, *options):
    text, out = tmp_path / "text.txt", tmp_path / "out.trace"
    text.write_text("Hello world, hello again.")
    done = sluice("trace", "-m", MODEL, "-f", text, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return out


def test_trace_has_a_line_for_each_token_and_layer(sluice, tmp_path):
    lines = [json.loads(line) for line in traced(sluice, tmp_path, "-n", "5").read_text().splitlines()]
    head = lines.pop(0)
    info = json.loads(sluice("info", MODEL, "--json").stdout)
    assert (head["n_experts"], head["experts_used"]) == (info["experts"], info["experts_used"])
    assert len(head["expert_bytes"]) == head["n_layers"]
    assert [(x["pos"], x["layer"]) for x in lines] == [
        (pos, layer) for pos in range(head["tokens"]) for layer in range(head["n_layers"])
    ]
    for line in lines:
        assert len(set(line["experts"])) == head["experts_used"]
        assert all(0 <= expert < head["n_experts"] for expert in line["experts"])


def test_trace_does_not_depend_on_batches_and_its_forms_say_the_same(sluice, tmp_path):
    whole = traced(sluice, tmp_path).read_bytes()
    assert traced(sluice, tmp_path, "-ub", "3").read_bytes() == whole
    answers = []
    for form in ("lines", "binary"):
        path = traced(sluice, tmp_path, "--form", form)
        answers.append(sluice("simulate", path, "--slots", "2,3,8", "--json").stdout)
    assert answers[0] == answers[1]


def test_simulate_agrees_with_a_replay_by_hand(sluice, tmp_path):
    path = traced(sluice, tmp_path)
    head, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    slots, bank, hits, uses, read = 3, [], 0, 0, 0
    for line in lines:
        units = [(line["layer"], expert) for expert in line["experts"]]
        missing = [unit for unit in units if unit not in bank]
        bank = [unit for unit in bank if unit not in units]
        bank = bank[max(0, len(bank) + len(units) - slots * head["n_layers"]) :] + units
        hits, uses = hits + len(units) - len(missing), uses + len(units)
        read += len(missing) * head["expert_bytes"][line["layer"]]
    answers = json.loads(sluice("simulate", path, "--slots", slots, "--json").stdout)
    rates = {answer["policy"]: answer["hit_rate"] for answer in answers}
    assert answers[0] == {"policy": "lru", "slots": slots, "hit_rate": pytest.approx(hits / uses), "bytes": read}
    assert all(rate <= rates["optimal"] for rate in rates.values())


def test_simulate_chooses_policies_slots_and_half(sluice):
    cycle = DATA / "traces/cycle.trace"
    out = json.loads(
        sluice("simulate", cycle, "--slots", "48,96", "--total", "--policy", "lru,optimal", "--half", "second", "--json").stdout
    )
    assert [(x["policy"], x["slots"]) for x in out] == [("lru", 48), ("optimal", 48), ("lru", 96), ("optimal", 96)]
    assert out[0]["hit_rate"] == 0 and out[1]["hit_rate"] > 0.2
    assert out[0]["bytes"] is None  # the trace does not know them
    table = sluice("simulate", cycle, "--slots", "16").stdout
    assert "below bound" in table and "adaptive" in table


def test_simulate_refuses_what_makes_no_sense(sluice, tmp_path):
    cycle = DATA / "traces/cycle.trace"
    fails(sluice("simulate", cycle, "--slots", "1"), 2, "3 slots", "8 experts")
    fails(sluice("simulate", cycle, "--slots", "0"), 2, "--slots")
    fails(sluice("simulate", cycle, "--slots", "16", "--policy", "magic"), 2, "magic", "lru")
    broken = tmp_path / "broken.trace"
    broken.write_bytes(cycle.read_bytes()[:-1])
    fails(sluice("simulate", broken, "--slots", "16"), 1, "broken.trace", "line 2")
    fails(sluice("trace", "-m", MODEL, "-f", tmp_path / "none", "-o", broken), 1, "none")
