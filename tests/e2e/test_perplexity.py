"""`sluice perplexity` and `sluice logits`: against a computation of the same from the logits, and against reference
vectors of a real model."""

import json

import numpy
import pytest
from safetensors.numpy import load_file

TEXT = "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs.\n" * 3
EXACT_CACHE = ["--cache-type-k", "f32", "--cache-type-v", "f32"]


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


@pytest.fixture
def measure(sluice, micro, text):
    """measure("-c", 16) -> what `sluice perplexity --json` says of the micro model and TEXT."""

    def run(*arguments):
        done = sluice("perplexity", "-m", micro, "-f", text, "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def tokenize(sluice):
    def run(model, text):
        done = sluice("tokenize", "-m", model, "--no-parse-special", "--jsonl", stdin=json.dumps({"text": text}) + "\n")
        return json.loads(done.stdout)["ids"]

    return run


@pytest.fixture
def logits(sluice, tmp_path):
    """logits(model, ids) -> float64 [n_tokens, n_vocab]"""

    def run(model, ids, *arguments):
        out = tmp_path / "logits.npy"
        tokens = ",".join(map(str, ids))
        done = sluice("logits", "-m", model, "--tokens", tokens, "--npy", out, *arguments)
        assert done.returncode == 0, done.stderr
        return numpy.load(out).astype(numpy.float64)

    return run


def log_probabilities(logits):
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - numpy.log(numpy.exp(logits - top).sum(axis=-1, keepdims=True))


def losses(logits, following):
    """Negative log-likelihoods of the tokens that follow each row."""
    return -log_probabilities(logits)[numpy.arange(len(following)), following]


def agrees(out, nll):
    assert out["tokens"] == len(nll)
    assert out["nll_mean"] == pytest.approx(nll.mean(), rel=1e-9)
    assert out["perplexity"] == pytest.approx(numpy.exp(nll.mean()), rel=1e-9)
    spread = numpy.sqrt(nll.var() / (len(nll) - 1)) if len(nll) > 1 else 0
    assert out["stderr"] == pytest.approx(spread * numpy.exp(nll.mean()), rel=1e-6)


@pytest.mark.parametrize("window", [16, 33, 100])
def test_the_second_half_of_every_window_is_scored(measure, tokenize, logits, micro, window):
    ids = tokenize(micro, TEXT)
    assert len(ids) > 100
    nll = []
    for at in range(0, len(ids) - window + 1, window):
        piece = ids[at : at + window]
        half = window // 2
        nll.append(losses(logits(micro, piece)[half:-1], piece[half + 1 :]))
    agrees(measure("-c", window), numpy.concatenate(nll))


def test_window_0_scores_every_token_after_the_first(measure, tokenize, logits, micro):
    ids = tokenize(micro, TEXT)
    agrees(measure("-c", "0"), losses(logits(micro, ids)[:-1], ids[1:]))


def test_windows_begin_with_bos_where_the_model_wants_it(measure, tokenize, logits, micro):
    override = ["--override-kv", "tokenizer.ggml.add_bos_token=bool:true"]
    ids = [556, *tokenize(micro, TEXT)]
    nll = []
    for at in range(0, len(ids) - 31, 32):
        piece = [556, *ids[at + 1 : at + 32]]
        nll.append(losses(logits(micro, piece)[16:-1], piece[17:]))
    agrees(measure("-c", "32", *override), numpy.concatenate(nll))


@pytest.mark.parametrize("arguments", [["-ub", "1"], ["-ub", "7"], ["-t", "3"], ["--isa", "scalar"]])
def test_nothing_that_computes_changes_a_bit(measure, arguments):
    assert measure("-c", "32", *arguments) == measure("-c", "32")


def test_a_model_is_at_no_distance_from_itself(measure, tmp_path):
    base = tmp_path / "base.npy"
    first = measure("-c", "32", "--save-logits", base)
    saved = numpy.load(base)
    assert saved.shape == (first["tokens"], 640) and saved.dtype == numpy.float32
    assert "kl_mean" not in first
    out = measure("-c", "32", "--kl-base", base)
    assert abs(out["kl_mean"]) < 1e-12 and abs(out["kl_p99"]) < 1e-12 and out["top1"] == 1


def test_the_distance_from_other_logits_is_their_divergence(measure, tmp_path):
    base = tmp_path / "base.npy"
    measure("-c", "32", "--save-logits", base)
    mine = numpy.load(base)
    other = mine + numpy.random.default_rng(1).normal(size=mine.shape).astype(numpy.float32)
    numpy.save(base, other)
    p, q = log_probabilities(other.astype(numpy.float64)), log_probabilities(mine.astype(numpy.float64))
    kl = numpy.sort((numpy.exp(p) * (p - q)).sum(axis=1))
    out = measure("-c", "32", "--kl-base", base)
    assert out["kl_mean"] == pytest.approx(kl.mean(), rel=1e-9)
    assert out["kl_p99"] == pytest.approx(kl[int(0.99 * (len(kl) - 1))], rel=1e-9)
    assert out["top1"] == pytest.approx((other.argmax(axis=1) == mine.argmax(axis=1)).mean())


def test_what_cannot_be_measured_is_an_error(sluice, micro, text, tmp_path):
    other = tmp_path / "other.npy"
    numpy.save(other, numpy.zeros((3, 640), numpy.float32))
    wrong = tmp_path / "wrong.npy"
    numpy.save(wrong, numpy.zeros((3, 640), numpy.float64))
    for arguments, code, word in (
        (["-f", text, "-c", "2"], 2, "window"),
        (["-f", text, "-c", "100000"], 2, "smaller -c"),
        (["-f", tmp_path / "missing"], 1, "missing"),
        (["-f", text, "-c", "32", "--kl-base", other], 2, "3 x 640"),
        (["-f", text, "-c", "32", "--kl-base", wrong], 1, "float32"),
        (["-f", text, "-c", "32", "--kl-base", text], 1, "NumPy"),
    ):
        done = sluice("perplexity", "-m", micro, *arguments)
        assert done.returncode == code, done.stderr
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and word in done.stderr, done.stderr


def test_logits_are_the_same_in_any_batches(logits, micro):
    ids = list(range(40, 110))
    whole = logits(micro, ids)
    assert whole.shape == (70, 640)
    for batch in (1, 7, 64):
        assert numpy.array_equal(logits(micro, ids, "--batch", batch), whole)
    assert numpy.array_equal(logits(micro, ids, "--last"), whole[-1:])
    assert numpy.array_equal(logits(micro, ids, "--last", "--batch", "16"), whole[-1:])


def test_wrong_token_ids_are_usage_errors(sluice, micro, tmp_path):
    for ids in ("640", "-1", "1,,2", "1,x", "99999999999", ""):
        out = tmp_path / "out.npy"
        done = sluice("logits", "-m", micro, f"--tokens={ids}", "--npy", out)
        assert done.returncode == 2, ids
        assert done.stderr.count("\n") == 1
        assert not out.exists(), "half of a file stays behind"


# --- A real model -----------------------------------------------------------------------------------------------------
#
# The references are a forward pass in float32 over exact activations. Sluice rounds activations to 8 bits, as every
# engine with integer kernels does. That moves a logit by up to 1.1 in these prompts, and likely ones together: choices
# change only where the best two lie closer than 0.22. They are compared where those are clear.
NOISE = 1.2
CLEAR = 0.5


@pytest.fixture(scope="session")
def vectors(reference):
    return load_file(reference / "models/smollm2/reference.safetensors")


@pytest.mark.parametrize("prompt", ["raw", "chat", "code"])
def test_a_real_model_gives_its_references_logits_and_continuations(smollm2, vectors, logits, prompt):
    ids = vectors[f"prompt.{prompt}.tokens"].tolist()
    answer = vectors[f"greedy.{prompt}.tokens"].tolist()
    # The answer is given, so that one close choice does not end the comparison of the others.
    got = logits(smollm2, ids + answer[:-1], *EXACT_CACHE)

    top = vectors[f"prompt.{prompt}.top20.ids"]
    expected = vectors[f"prompt.{prompt}.top20.logits"]
    assert numpy.abs(numpy.take_along_axis(got[: len(ids)], top.astype(int), axis=1) - expected).max() < NOISE
    clear = expected[:, 0] - expected[:, 1] > CLEAR
    assert clear.mean() > 0.7
    assert numpy.array_equal(got[: len(ids)].argmax(axis=1)[clear], top[clear, 0])

    chosen = got[len(ids) - 1 :].argmax(axis=1)
    clear = vectors[f"greedy.{prompt}.margins"] > CLEAR
    assert clear.mean() > 0.6
    assert numpy.array_equal(chosen[clear], numpy.array(answer)[clear])
    assert (chosen == answer).mean() > 0.9


def test_a_real_models_first_choices_are_its_references(sluice, smollm2, reference, vectors):
    """Generation, token by token, up to the first choice that is close."""
    text = json.loads((reference / "models/smollm2/reference.json").read_text())["prompts"]["raw"]["prompt"]
    clear = int((vectors["greedy.raw.margins"] < CLEAR).argmax())
    options = ["--no-chat", "--temp", "0", "-n", "8", "--json", *EXACT_CACHE]
    out = json.loads(sluice("run", "-m", smollm2, "-p", text, *options).stdout)
    assert out["tokens"][:clear] == vectors["greedy.raw.tokens"][:clear].tolist()


def test_a_real_models_loss_on_a_short_text(smollm2, vectors, logits):
    ids = vectors["perplexity.tokens"][:96].tolist()
    nll = losses(logits(smollm2, ids, *EXACT_CACHE)[:-1], ids[1:])
    assert abs(nll - vectors["perplexity.nll"][:95]).max() < 0.53  # what rounding in simulation makes of one token
    assert nll.mean() == pytest.approx(vectors["perplexity.nll"][:95].mean(), abs=0.01)


@pytest.mark.full
def test_a_real_models_perplexity_on_a_long_text(sluice, smollm2, reference):
    """Exact activations give 20.7578, activations rounded to 8 bits in simulation 20.8194, llama.cpp 20.7693."""
    text = reference / "models/text.txt"
    options = ["-c", "0", "--json", *EXACT_CACHE]
    done = sluice("perplexity", "-m", smollm2, "-f", text, *options, timeout=3600)
    out = json.loads(done.stdout)
    assert out["tokens"] == 1475
    assert 20.7578 * 0.997 < out["perplexity"] < 20.8194 * 1.003
