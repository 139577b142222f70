"""Experts that are read from disk while the model computes: whatever is kept in memory, and however the rest is read,
the answers are those with everything in memory."""

import json
import shutil
import signal

import pytest
from pairwise import pairwise
from streaming import ENDLESS, GREEDY, LONG, SUM, Shape, fails, make_sidecar, make_split

POLICIES = ("lru", "frequency", "guarded", "adaptive")
MOE_MODELS = ("qwen35moe-tiny", "qwen35moe-tiny-hk4", "qwen35moe-tiny-q8_0", "qwen35moe-tiny-q4_0",
              "qwen35moe-tiny-q4_k_m", "qwen35moe-tiny-ud-q4_k_xl", "qwen35moe-tiny-iq", "qwen35moe-tiny-mxfp4",
              "qwen35moe-tiny-mtp", "qwen3moe-tiny", "qwen35moe-micro-fused")  # fmt: skip


@pytest.fixture(scope="session")
def logits(sluice, tmp_path_factory):
    """logits(model, tokens, *options) -> the bytes of the file written."""
    out = tmp_path_factory.mktemp("logits") / "logits.npy"

    def run(model, tokens, *arguments):
        ids = ",".join(map(str, tokens))
        done = sluice("logits", "-m", model, "--tokens", ids, "--npy", out, *arguments)
        assert done.returncode == 0, done.stderr
        data = out.read_bytes()
        out.unlink()
        return data

    return run


@pytest.fixture(scope="session")
def has_uring(sluice, micro) -> bool:
    """Whether this system lets the program have an io_uring."""
    done = sluice("run", "-m", micro, *SUM, "--moe-slot-bank", "4", "--io", "uring")
    assert done.returncode == 0 or "io_uring" in done.stderr, done.stderr
    return done.returncode == 0


# ---- the same bits


def test_logits_are_the_same_with_any_number_of_experts_in_memory(logits, demo):
    tokens = Shape(demo).tokens(60)
    expected = logits(demo, tokens)
    batches = (0, 1, 7, 16)
    for n in range(1, 33):
        batch = batches[n % len(batches)]
        options = ["--moe-slot-bank", n, "--batch", batch]
        assert logits(demo, tokens, *options) == expected, options


@pytest.mark.parametrize("name", MOE_MODELS)
def test_logits_of_every_format_are_the_same(logits, reference, name):
    model = reference / f"models/{name}/model.gguf"
    shape = Shape(model)
    tokens = shape.tokens(20)
    expected = logits(model, tokens)
    for n, batch in ((1, 0), (shape.used, 1), (shape.experts // 2, 6)):
        options = ["--moe-slot-bank", n, "--batch", batch]
        assert logits(model, tokens, *options) == expected, options


class Place:
    """Where a model's experts lie: `options` to name them, and `whole`, a plain file of the same model."""

    def __init__(self, name, whole, *options):
        self.name, self.whole, self.options = name, whole, [str(option) for option in options]
        self.shape = Shape(whole)


@pytest.fixture(scope="session")
def places(demo, micro, synthetic, tmp_path_factory):
    """A model in its own file, in a split one and in sidecars, with and without experts in the model's file, too."""
    found = [Place("demo", demo, "-m", demo), Place("synthetic", synthetic, "-m", synthetic)]
    for layout in ("whole", "expert"):
        folder, dense = make_sidecar(micro, tmp_path_factory.mktemp(layout), layout)
        # pairs of layouts and models crosswise, so that few places show all
        model = dense if layout == "whole" else micro
        found.append(Place(f"sidecar-{layout}", micro, "-m", model, "--moe-sidecar", folder))
    return [*found, Place("split", micro, "-m", make_split(micro, tmp_path_factory.mktemp("split")))]


@pytest.fixture(scope="session")
def all_places(places, demo, micro, reference, synthetic, tmp_path_factory):
    """Those, the reference's own sidecars, all reference models, and the larger models in sidecars."""
    found = list(places)
    micros = reference / "models/qwen35moe-micro-sidecar"
    for layout in ("whole", "expert_major"):
        for name, model in (("dense", micros / "dense.gguf"), ("full", micro)):
            found.append(Place(f"{layout}-{name}", micro, "-m", model, "--moe-sidecar", micros / layout))
    for name in ("split", "split-meta"):
        model = reference / f"models/qwen35moe-micro-{name}/qwen35moe-micro-00001-of-00003.gguf"
        found.append(Place(f"reference-{name}", micro, "-m", model))
    for name in MOE_MODELS:
        model = reference / f"models/{name}/model.gguf"
        found.append(Place(name, model, "-m", model))
    for name, model in (("demo", demo), ("synthetic", synthetic)):
        folder, dense = make_sidecar(model, tmp_path_factory.mktemp(name), "expert")
        found.append(Place(f"{name}-sidecar", model, "-m", dense, "--moe-sidecar", folder))
    return found


SLOTS = {
    "1": lambda s: 1,
    "used - 1": lambda s: s.used - 1,
    "used": lambda s: s.used,
    "used + 1": lambda s: s.used + 1,
    "half": lambda s: s.experts // 2,
    "all - 1": lambda s: s.experts - 1,
    "all": lambda s: s.experts,
    "all + 1": lambda s: s.experts + 1,
}


def check_combinations(sluice, tmp_path, places, has_uring, seed):
    """Runs rows that hold every pair of values, and lists those whose logits differ from those of all experts in
    memory."""
    factors = {
        "place": places,
        "slots": list(SLOTS),
        "--expert-policy": list(POLICIES),
        "--io": ["uring", "threads", "auto"] if has_uring else ["threads", "auto"],
        "--look-ahead": ["on", "off", "auto"],
        "eager": [False, True],
        "--threads": [1, 2, 3],
        "--batch": [1, 5, 0],
        "-ub": [2, 512],
    }
    out = tmp_path / "logits.npy"
    expected, wrong = {}, []
    for row in pairwise(factors, seed):
        place = row["place"]
        ids = ",".join(map(str, place.shape.tokens(9)))
        if place.name not in expected:
            whole = sluice("logits", "-m", place.whole, "--expert-memory", "all", "--tokens", ids, "--npy", out)
            assert whole.returncode == 0, whole.stderr
            expected[place.name] = out.read_bytes()
        options = [word for key in row if key.startswith("-") for word in (key, str(row[key]))]
        options += ["--moe-slot-bank", str(SLOTS[row["slots"]](place.shape))]
        options += ["--moe-eager-load"] if row["eager"] else []
        done = sluice("logits", *place.options, "--tokens", ids, "--npy", out, *options)
        if done.returncode != 0 or out.read_bytes() != expected[place.name]:
            wrong.append((" ".join(place.options + options), done.returncode, done.stderr))
        out.unlink(missing_ok=True)
    assert not wrong, "\n".join(map(str, wrong))


def test_logits_are_the_same_with_any_two_options(sluice, tmp_path, places, has_uring):
    check_combinations(sluice, tmp_path, places, has_uring, seed=1)


@pytest.mark.full
@pytest.mark.parametrize("seed", [2, 3])
def test_logits_are_the_same_with_any_two_options_on_every_model(sluice, tmp_path, all_places, has_uring, seed):
    check_combinations(sluice, tmp_path, all_places, has_uring, seed)


@pytest.mark.parametrize("sampling", [["--temp", "0"], ["--temp", "1.2", "--seed", "3"]])
def test_long_answers_are_the_same(ask_demo, sampling):
    common = ["--no-chat", "-p", "12+30=", "-n", "120", *ENDLESS, *sampling]
    expected = ask_demo(*common)["tokens"]
    assert len(expected) == 120
    for n, policy, ahead in ((1, "lru", "on"), (3, "guarded", "auto"), (4, "frequency", "on"), (16, "lru", "auto"),
                             (31, "guarded", "off"), (32, "guarded", "on")):  # fmt: skip
        options = ["--moe-slot-bank", n, "--expert-policy", policy, "--look-ahead", ahead]
        assert ask_demo(*common, *options)["tokens"] == expected, options


# ---- restarts


def kill_in_mid_answer(start, model, *options, env):
    process = start("run", "-m", model, *LONG, "-n", "3000", *options, env=env)
    assert process.stdout.read(10)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("slots", [31, 32, 33])
def test_the_answer_after_many_restarts_is_that_of_the_first(ask_demo, start, demo, cache, slots):
    # A user's report: with a slot for every expert another engine answered nonsense after some 15 restarts.
    options = ["--moe-mode", "slot-bank", "--moe-slot-bank", slots]
    for i in range(10):
        if i % 3 == 2:
            kill_in_mid_answer(start, demo, *options, env=cache)
        out = ask_demo(*SUM, *options)
        assert (out["text"], out["stop"]) == ("2", "eos"), f"restart {i}"


def test_command_line_of_the_report(sluice, demo, cache):
    options = f"--moe-sidecar {demo} --moe-mode slot-bank --moe-slot-bank 256 --moe-slot-path persistent --moe-topk 4"
    options += " --ctx-size 4096 --no-warmup"
    done = sluice("run", "-m", demo, *SUM, *options.split(), env=cache)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert "--moe-slot-bank 256 is more than the model's 32 experts a layer" in done.stderr
    for option in ("--moe-slot-path", "--no-warmup"):
        assert f"note: {option}: " in done.stderr


# ---- how many are in memory


def slot_bytes(sluice, model, *options) -> int:
    done = sluice("plan", "-m", model, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["categories"]["expert slots"]


def test_expert_memory_is_an_upper_limit(sluice, ask_demo, demo):
    everything = slot_bytes(sluice, demo, "--expert-memory", "all")
    assert everything == slot_bytes(sluice, demo) == slot_bytes(sluice, demo, "--expert-memory", "auto")
    slots = []
    for size in ("100KiB", "1MiB", "3000000", "5MiB"):
        done = ask_demo(*SUM, "--expert-memory", size)
        assert done["text"] == "2"
        slots.append(done["experts"]["slots"])
        limit = int(size) if size.isdigit() else int(size[:-3]) << {"K": 10, "M": 20}[size[-3]]
        used = slot_bytes(sluice, demo, "--expert-memory", size)
        assert limit * 0.7 < used <= limit, "as much as may be, in whole slots of each size"
    assert slots == sorted(set(slots)) and slots[-1] < 256
    for size in ("all", "1GiB"):
        assert slot_bytes(sluice, demo, "--expert-memory", size) == everything
        assert ask_demo(*SUM, "--expert-memory", size)["experts"]["slots"] == 256


def test_too_little_memory_for_one_expert_of_each_size_names_the_least(sluice, demo):
    done = sluice("run", "-m", demo, *SUM, "--expert-memory", "10K")
    fails(done, 1, "10240 bytes", "--expert-memory")
    least = int(done.stderr.split("at least ")[1].split()[0])
    fails(sluice("plan", "-m", demo, "--expert-memory", least - 1), 1, str(least))
    done = sluice("run", "-m", demo, *SUM, "--expert-memory", least)
    assert done.stdout == "2\n"
    assert slot_bytes(sluice, demo, "--expert-memory", least) <= least


def test_what_is_in_memory_is_said(sluice, demo):
    def notices(*options):
        done = sluice("run", "-m", demo, *SUM, *options)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
        return done.stderr

    assert notices() == notices("--moe-slot-bank", 32) == notices("--moe-mode", "slot-bank") == ""
    assert "64 of 256 experts" in notices("--moe-slot-bank", 8)
    assert "read by threads" in notices("--moe-slot-bank", 8, "--io", "threads")
    assert "33 is more than the model's 32" in notices("--moe-slot-bank", 33)
    few = "a token uses 4 experts of each layer"
    assert few in notices("--moe-slot-bank", 3) and few not in notices("--moe-slot-bank", 4)


@pytest.mark.parametrize("mode", ["resident", "stock", "resident-bank", "slot-bank", "resident-slot-bank"])
def test_modes(sluice, ask_demo, demo, mode):
    assert ask_demo(*SUM, "--moe-mode", mode)["experts"]["slots"] == 256
    done = sluice("run", "-m", demo, *SUM, "--moe-mode", mode, "--moe-slot-bank", 8)
    if mode.endswith("slot-bank"):
        assert done.stdout == "2\n" and "64 of 256 experts" in done.stderr
    else:
        fails(done, 2, "--moe-mode", "--moe-slot-bank")


def test_options_come_from_the_environment_too(ask_demo, demo):
    for prefix in ("SLUICE_", "LLAMA_ARG_"):

        def experts(**variables):
            out = ask_demo(*SUM, env={prefix + name: value for name, value in variables.items()})
            assert out["text"] == "2"
            return out["experts"]

        assert experts(MOE_SLOT_BANK="8")["slots"] == 64
        assert 20 < experts(EXPERT_MEMORY="1MiB")["slots"] < 40
        assert experts(MOE_SLOT_BANK="8", IO="threads", EXPERT_POLICY="lru")["io"] == "threads"
        assert experts(MOE_SLOT_BANK="8", LOOK_AHEAD="on")["read_ahead"] > 0
        used = experts(MOE_TOPK="1", MOE_MODE="resident")
        assert used["slots"] == 256 and used["hits"] < experts()["hits"]
    assert ask_demo(*SUM, "--moe-slot-bank", "9", env={"SLUICE_MOE_SLOT_BANK": "8"})["experts"]["slots"] == 72


@pytest.mark.parametrize("variables, options, slots", [
    ({"SLUICE_EXPERT_MEMORY": "1MiB"}, ["--moe-slot-bank", "8"], 64),
    ({"SLUICE_MOE_SLOT_BANK": "8"}, ["--expert-memory", "all"], 256),
    ({"SLUICE_MOE_SLOT_BANK": "8"}, ["--expert-memory", "auto"], 256),
    ({"SLUICE_MOE_SLOT_BANK": "8"}, ["--moe-mode", "resident"], 256),
])  # fmt: skip
def test_the_command_line_wins_over_the_environment(sluice, demo, variables, options, slots):
    done = sluice("run", "-m", demo, "--json", *SUM, *options, env=variables)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["experts"]["slots"] == slots


def test_wrong_usage_is_one_line_and_exit_code_2(sluice, demo):
    for options in (
        ["--expert-memory", "1MiB", "--moe-slot-bank", "4"],
        ["--expert-memory", "1MiB", "--moe-mode", "resident"],
        ["--expert-memory", "lots"],
        ["--expert-memory", "-1"],
        ["--expert-memory", ""],
        ["--moe-slot-bank", "0"],
        ["--moe-slot-bank", "-1"],
        ["--moe-slot-bank", "99999999999999999999"],
        ["--moe-mode", "nonsense"],
        ["--moe-topk", "0"],
        ["--moe-topk", "5"],
        ["--io", "nonsense"],
        ["--expert-policy", "nonsense"],
        ["--look-ahead", "nonsense"],
        ["--moe-slot-path", "nonsense"],
    ):
        fails(sluice("run", "-m", demo, *SUM, *options), 2, options[0])


# ---- what the other options do


def test_accepted_options_say_that_they_change_nothing(sluice, demo):
    options = ["--moe-coalesced-sync", "--moe-cache-io-split", "4", "--moe-prefetch-temporal"]
    done = sluice("run", "-m", demo, *SUM, *options)
    assert (done.returncode, done.stdout) == (0, "2\n")
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("note: --moe-") and "changes nothing" in line for line in lines), lines


def test_fewer_experts_a_token_are_announced_and_cost_quality(sluice, demo, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("12+30=42\n1+1=2\nThe capital of Italy is Rome.\n" * 8)

    def perplexity(*options):
        done = sluice("perplexity", "-m", demo, "-f", text, "-c", "64", "--json", *options)
        assert done.returncode == 0, done.stderr
        out = json.loads(done.stdout)
        assert ("own_perplexity" in out) == ("--moe-topk" in options)
        assert out.get("own_perplexity", own) == own
        return out["perplexity"], done.stderr

    own = None
    whole, said = perplexity()
    assert said == ""
    own = whole
    fewer, said = perplexity("--moe-topk", 1)
    assert "--moe-topk" in said and "answers are not its own" in said
    assert fewer > whole
    assert perplexity("--moe-topk", 1, "--moe-slot-bank", 2)[0] == fewer
    assert perplexity("--moe-topk", 4)[0] == whole


def test_the_models_own_number_of_experts_is_no_change(sluice, demo):
    assert sluice("run", "-m", demo, *SUM, "--moe-topk", 4).stderr == ""


def test_fewer_experts_are_fewer_reads(ask_demo):
    common = [*LONG, "-n", "20", "--moe-slot-bank", 1, "--look-ahead", "off"]
    reads = [ask_demo(*common, "--moe-topk", k)["experts"]["misses"] for k in (1, 2, 3)]
    assert reads == sorted(set(reads))


def test_policies_keep_other_experts_and_answer_the_same(ask_demo):
    common = [*LONG, "-n", "60", "--moe-slot-bank", 8, "--no-warm-start", "--look-ahead", "off"]
    answers, hits = set(), []
    for policy in POLICIES:
        out = [ask_demo(*common, "--expert-policy", policy) for _ in range(2)]
        answers |= {tuple(o["tokens"]) for o in out}
        assert out[0]["experts"]["hits"] == out[1]["experts"]["hits"], f"{policy} depends on something else"
        hits.append(out[0]["experts"]["hits"])
    assert len(answers) == 1
    assert len(set(hits)) > 1


def test_look_ahead_reads_what_is_then_used(ask_demo):
    common = [*LONG, "-n", "60", "--moe-slot-bank", 8]
    on, off = (ask_demo(*common, "--look-ahead", mode) for mode in ("on", "off"))
    assert on["tokens"] == off["tokens"]
    assert off["experts"]["read_ahead"] == 0
    assert 0 < on["experts"]["read_ahead_used"] <= on["experts"]["read_ahead"]


def test_eager_loading_reads_before_the_first_token(ask_demo):
    options = [*SUM, "--moe-slot-bank", 31, "--no-warm-start", "--look-ahead", "off"]
    late, early = ask_demo(*options)["experts"], ask_demo(*options, "--moe-eager-load")["experts"]
    assert late["misses"] > 50
    assert early["misses"] <= 8
    assert early["hits"] + early["misses"] == late["hits"] + late["misses"]


def test_dense_models_say_that_they_have_no_experts(sluice, reference):
    model = reference / "models/llama-tiny/model.gguf"
    expected = sluice("run", "-m", model, *SUM).stdout
    for options in (["--moe-slot-bank", 4], ["--expert-memory", "1MiB"], ["--moe-topk", 2], ["--moe-mode", "stock"]):
        done = sluice("run", "-m", model, *SUM, *options)
        assert (done.returncode, done.stdout) == (0, expected)
        assert "no experts" in done.stderr and done.stderr.count("\n") == 1, options


@pytest.mark.parametrize("option", ["--moe-eager-load", "--moe-sidecar"])
def test_dense_models_say_so_of_every_option_of_experts(sluice, reference, option):
    sidecars = [reference / "models/qwen35moe-micro-sidecar/whole"] if option == "--moe-sidecar" else []
    done = sluice("run", "-m", reference / "models/llama-tiny/model.gguf", *SUM, option, *sidecars)
    assert "no experts" in done.stderr


# ---- sidecars and other makers' files


def test_wrong_sidecars_are_refused_by_name(sluice, demo, micro, tmp_path):
    folder, dense = make_sidecar(micro, tmp_path, "whole")

    def run(model, *options):
        return sluice("run", "-m", model, *SUM, *options)

    fails(run(dense), 1, str(dense), "--moe-sidecar")
    fails(run(demo, "--moe-sidecar", folder), 1, str(folder), "of another model")
    fails(run(demo, "--moe-sidecar", tmp_path / "missing"), 1, str(tmp_path / "missing"))
    fails(run(demo, "--moe-sidecar", tmp_path), 1, "manifest.json")
    fails(run(demo, "--moe-sidecar", micro), 2, str(micro), "other than the model")
    layer = folder / "layer_002.bin"
    other = bytes(byte ^ 0x55 for byte in layer.read_bytes())
    layer.write_bytes(other)
    fails(run(micro, "--moe-sidecar", folder), 1, str(folder), "layer 2", "of another model")
    layer.write_bytes(other[:-1])
    fails(run(dense, "--moe-sidecar", folder), 1, str(folder), "layer_002.bin")
    layer.unlink()
    fails(run(dense, "--moe-sidecar", folder), 1, "layer_002.bin")


def test_a_sidecar_takes_the_place_of_the_files_experts(sluice, micro, tmp_path):
    folder, dense = make_sidecar(micro, tmp_path, "expert")
    ask = [*GREEDY, "-p", "hello", "-n", "12"]
    expected = sluice("run", "-m", micro, *ask).stdout
    assert expected.strip()
    for model in (dense, micro):
        for options in ([], ["--moe-slot-bank", 3]):
            assert sluice("run", "-m", model, *ask, "--moe-sidecar", folder, *options).stdout == expected
            variable = {"LLAMA_ARG_MOE_SIDECAR": str(folder)}
            assert sluice("run", "-m", model, *ask, *options, env=variable).stdout == expected
    # It is the sidecar that is read: where the files say different things, its experts are those that answer.
    for file in folder.glob("layer_*.bin"):
        file.write_bytes(file.read_bytes()[::-1])
    done = sluice("run", "-m", dense, *ask, "--moe-sidecar", folder, "--moe-slot-bank", 3)
    assert done.stdout != expected


def test_a_model_of_another_ending_and_other_layouts(sluice, demo, tmp_path):
    copy = tmp_path / "demo.streammoe.gguf"
    shutil.copyfile(demo, copy)
    known = ["--override-kv", "stream_moe.layout=str:sections-v1"]
    for options in ([], ["--moe-sidecar", copy, "--moe-slot-bank", 8], known):
        done = sluice("run", "-m", copy, *SUM, *options)
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    unknown = ["--override-kv", "stream_moe.layout=str:expert-blocks-v2"]
    done = sluice("run", "-m", copy, *SUM, *unknown)
    fails(done, 1, str(copy), "stream_moe.layout", "expert-blocks-v2", "original GGUF")
    fails(sluice("plan", "-m", copy, *unknown), 1, "expert-blocks-v2")


# ---- what is reported


def check_counts(experts, shape):
    layers = experts["layers"]
    assert experts["experts"] == shape.experts * len(shape.expert_bytes)
    for key in ("hits", "misses", "bytes_read"):
        assert experts[key] == sum(layer[key] for layer in layers), key
    for layer, size in shape.expert_bytes.items():
        assert layers[layer]["bytes_read"] == layers[layer]["misses"] * size, f"layer {layer}"
    uses = experts["hits"] + experts["misses"]
    assert experts["hit_rate"] == pytest.approx(experts["hits"] / uses)


@pytest.mark.parametrize("slots", [1, 4, 16, 31])
def test_reported_bytes_are_those_of_the_experts_that_were_missing(ask_demo, demo, slots):
    shape = Shape(demo)
    # the file holds a block to draft tokens, too, which answers don't use
    shape.expert_bytes = {layer: size for layer, size in shape.expert_bytes.items() if layer < 8}
    out = ask_demo(*LONG, "-n", "40", "--moe-slot-bank", slots, "--look-ahead", "off", "--no-warm-start")
    experts = out["experts"]
    check_counts(experts, shape)
    assert experts["slots"] == 8 * slots
    assert 0 < experts["misses"] and 0 <= experts["stall_s"]
    assert experts["read_gbps"] == pytest.approx(experts["bytes_read"] / experts["read_s"] / 1e9)
    # The prompt's step and one for each further token; each uses 4 experts in each of 8 layers, or more.
    assert experts["hits"] + experts["misses"] >= 40 * 4 * 8


def test_with_all_experts_in_memory_nothing_is_read(ask_demo):
    for options in ([], ["--moe-slot-bank", 32], ["--moe-slot-bank", 33], ["--expert-memory", "all"]):
        experts = ask_demo(*SUM, *options)["experts"]
        assert (experts["slots"], experts["hit_rate"], experts["bytes_read"], experts["misses"]) == (256, 1.0, 0, 0)


def test_bench_reports_experts(sluice, demo):
    def experts(*options):
        common = ["--pp", "8", "--tg", "8", "--reps", "2", "--json"]
        done = sluice("bench", "-m", demo, *common, *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["experts"]

    some = experts("--moe-slot-bank", 8)
    assert {"slots", "hit_rate", "bytes_read", "stall_s", "read_gbps"} <= set(some)
    assert some["slots"] == 64 and 0 < some["hit_rate"] < 1 and some["bytes_read"] > 0
    whole = experts()
    assert (whole["slots"], whole["hit_rate"], whole["bytes_read"]) == (256, 1.0, 0)
