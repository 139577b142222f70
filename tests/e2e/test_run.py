"""`sluice run` answering once: where the text comes from, what comes out, and what changes nothing."""

import json

import gguf
import pytest
from streaming import copy_gguf

FIELDS = {"text", "reasoning", "tokens", "prompt_tokens", "cached_tokens", "stop", "timings", "experts"}
TIMINGS = {
    "prompt_n",
    "prompt_ms",
    "prompt_per_second",
    "predicted_n",
    "predicted_ms",
    "predicted_per_second",
    "load_ms",
}
# Ends of generation in the micro model; without them its answers are as long as they may be.
ENDLESS = [word for token in (556, 558, 564, 565, 566) for word in ("--logit-bias", f"{token}-1000")]


@pytest.fixture
def ask(sluice, micro):
    """Runs the micro model with --json: ask("-p", "hi") -> the object that came out."""

    def run(*arguments, model=micro, **keywords):
        done = sluice("run", "-m", model, "--json", *arguments, **keywords)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def plain(*arguments):
    """Options of a greedy continuation of eight tokens."""
    return ["--no-chat", "--temp", "0", "-n", "8", *ENDLESS, *arguments]


def fails(done, code, *words):
    """The error is one line with these words, and nothing came out."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


def test_json_has_the_fields_of_the_contract(ask):
    out = ask(*plain("-p", "hello"))
    assert set(out) == FIELDS
    assert set(out["timings"]) == TIMINGS
    assert len(out["tokens"]) == out["timings"]["predicted_n"] == 8
    assert out["prompt_tokens"] == out["timings"]["prompt_n"] > 0
    assert out["cached_tokens"] == 0
    assert out["stop"] == "limit"
    assert out["reasoning"] == ""
    assert out["experts"]["slots"] == out["experts"]["experts"] == 4 * 8


def test_the_text_comes_from_option_file_standard_input_or_a_pipe(ask, tmp_path):
    text = "Grüße, hello\n"
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8")
    expected = ask(*plain("-p", text))
    for arguments, stdin in ((["-f", file], ""), (["-f", "-"], text), (["-"], text), ([], text)):
        assert ask(*plain(*arguments), stdin=stdin)["tokens"] == expected["tokens"], arguments


def test_without_json_the_text_alone_comes_out(sluice, ask, micro):
    done = sluice("run", "-m", micro, *plain("-p", "hello"))
    assert done.returncode == 0
    assert done.stdout == ask(*plain("-p", "hello"))["text"] + "\n"
    assert done.stderr == ""


def test_chat_is_the_rendered_template_continued(ask):
    chat = ask("-p", "hello", "--system", "be brief", "--temp", "0", "-n", "8", *ENDLESS)
    text = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert chat["tokens"] == ask(*plain("-p", text))["tokens"]
    assert chat["prompt_tokens"] == ask(*plain("-p", text))["prompt_tokens"]


def test_messages_are_a_whole_conversation(ask, tmp_path):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
    ]
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(messages))
    options = ["--temp", "0", "-n", "4", *ENDLESS]
    assert ask("--messages", file, *options)["tokens"] == ask("-p", "hello", "-sys", "be brief", *options)["tokens"]


def test_tools_and_thinking_reach_the_template(ask, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ tools[0].function.name if tools }}|{{ enable_thinking }}|{{ messages[0].content }}")
    tools = tmp_path / "tools.json"
    tools.write_text('[{"type": "function", "function": {"name": "clock"}}]')
    common = ["--chat-template-file", template, "-p", "hi", "--temp", "0", "-n", "4", *ENDLESS]
    for arguments, prompt in (
        ([], "||hi"),
        (["--think"], "|True|hi"),
        (["--no-think"], "|False|hi"),
        (["--tools", tools], "clock||hi"),
    ):
        assert ask(*common, *arguments)["tokens"] == ask(*plain("-p", prompt))["tokens"][:4], arguments


def test_an_answer_inside_a_think_block_is_reasoning(ask, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}<think>\n")
    out = ask("--chat-template-file", template, "-p", "hi", "--temp", "0", "-n", "4", "--logit-bias", "64+1000")
    assert out["text"] == ""
    assert len(out["reasoning"]) == 4


@pytest.mark.parametrize("n", [0, 1, 5])
def test_at_most_n_tokens(ask, n):
    out = ask(*plain("-p", "hello"), "-n", n)
    assert len(out["tokens"]) == n
    assert out["stop"] == "limit"


def test_without_n_the_answer_ends_with_the_context(ask):
    out = ask("--no-chat", "--temp", "0", "-p", "hello", "-c", "40", *ENDLESS)
    assert out["stop"] == "limit"
    assert out["prompt_tokens"] + len(out["tokens"]) == 41  # the last one is known, and has no room


def test_an_end_of_generation_token_ends_the_answer(ask):
    out = ask("-p", "hello", "--logit-bias", "558+1000")
    assert out["tokens"] == [] and out["text"] == "" and out["stop"] == "eos"


def test_a_stop_string_ends_the_answer_before_it(ask):
    text = ask(*plain("-p", "hello"))["text"]
    stop = text[3:5]
    out = ask(*plain("-p", "hello", "--stop", "not in the answer", "--stop", stop))
    assert out["stop"] == "stop-string"
    assert out["text"] == text[: text.index(stop)]


def test_a_seed_is_an_answer(ask):
    def tokens(*arguments):
        return ask("-p", "hello", "-n", "12", "--temp", "1.5", *ENDLESS, *arguments)["tokens"]

    assert tokens("--seed", "1") == tokens("--seed", "1")
    assert tokens("--seed", "1") != tokens("--seed", "2")
    assert len({tuple(tokens()) for _ in range(3)}) > 1, "without a seed every run has another"


@pytest.mark.parametrize("temperature", ["0", "1.2"])
def test_neither_threads_nor_kernels_nor_batches_change_a_token(ask, sluice, temperature):
    prompt = "the quick brown fox jumps over the lazy dog, " * 4

    def tokens(*arguments):
        common = ["--temp", temperature, "--seed", "3", "-n", "12", *ENDLESS]
        return ask("--no-chat", "-p", prompt, *common, *arguments)["tokens"]

    expected = tokens()
    for threads in (1, 2, 3):
        assert tokens("--threads", threads) == expected, f"{threads} threads"
    for isa in json.loads(sluice("version", "--json").stdout)["isa_usable"]:
        assert tokens("--isa", isa) == expected, isa
    for rows in (1, 7, 512):
        assert tokens("-ub", rows) == expected, f"{rows} rows at a time"
    assert tokens("-c", "512") == expected


def test_sampling_defaults_are_the_files_and_options_win(ask):
    greedy = ["--override-kv", "general.sampling.temp=float:0"]
    expected = ask(*plain("-p", "hello"))["tokens"]
    common = ["--no-chat", "-p", "hello", "-n", "8", *ENDLESS]
    assert ask(*common, *greedy)["tokens"] == expected
    assert ask(*common, *greedy, "--temp", "1.5", "--seed", "1")["tokens"] != expected


def test_overridden_metadata_is_used(ask):
    without = ask(*plain("-p", "hello"))["prompt_tokens"]
    override = ["--override-kv", "tokenizer.ggml.add_bos_token=bool:true"]
    assert ask(*plain("-p", "hello"), *override)["prompt_tokens"] == without + 1


def test_options_come_from_the_environment_too(sluice, micro):
    def tokens(env, *arguments):
        done = sluice("run", "--json", "--no-chat", "--temp", "0", "-p", "hello", *ENDLESS, *arguments, env=env)
        assert done.returncode == 0, done.stderr
        return len(json.loads(done.stdout)["tokens"])

    for prefix in ("SLUICE_", "LLAMA_ARG_"):
        assert tokens({prefix + "MODEL": str(micro), prefix + "N_PREDICT": "3"}) == 3
    both = {"SLUICE_MODEL": str(micro), "SLUICE_N_PREDICT": "3", "LLAMA_ARG_N_PREDICT": "4"}
    assert tokens(both) == 3
    assert tokens(both, "-n", "5") == 5


def test_options_that_change_nothing_say_so_in_a_line_each(sluice, ask, micro):
    accepted = ["-ngl", "99", "--no-mmap", "--jinja", "-fa", "on", "--cpu-moe", "--no-warmup", "-kvu"]
    done = sluice("run", "-m", micro, *plain("-p", "hello"), *accepted)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 7
    assert all(line.startswith("note: -") and "changes nothing" in line for line in lines), lines
    assert done.stdout == ask(*plain("-p", "hello"))["text"] + "\n"


def test_files_that_cannot_be_run_are_one_line_and_exit_code_1(sluice, micro, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(micro.read_bytes()[:100_000])
    text = tmp_path / "text.gguf"
    text.write_text("this is no model")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    for model, *words in (
        (tmp_path / "missing.gguf", "missing.gguf", "No such file"),
        (tmp_path, str(tmp_path), "directory"),
        (damaged, "output.weight", "truncated"),
        (text, "text.gguf"),
        (empty, "empty.gguf"),
    ):
        fails(sluice("run", "-m", model, "-p", "hi"), 1, *words)
    unknown = ["--override-kv", "general.architecture=str:abacus"]
    fails(sluice("run", "-m", micro, "-p", "hi", *unknown), 1, "abacus", "qwen35moe")


def test_texts_that_cannot_be_read_or_rendered_are_one_line(sluice, micro, tmp_path):
    missing = tmp_path / "missing"
    for option in ("-f", "--messages"):
        fails(sluice("run", "-m", micro, option, missing), 1, str(missing))
    for option in ("--tools", "--chat-template-file"):
        fails(sluice("run", "-m", micro, "-p", "hi", option, missing), 1, str(missing))
    broken = tmp_path / "broken"
    broken.write_text("[{")
    fails(sluice("run", "-m", micro, "--messages", broken), 1)
    broken.write_text("one\n{% if %}")
    fails(sluice("run", "-m", micro, "-p", "hi", "--chat-template-file", broken), 1, "line 2")


def test_a_model_without_a_chat_template_says_what_to_do(sluice, micro, tmp_path):
    model = tmp_path / "no-template.gguf"
    copy_gguf(micro, gguf.GGUFWriter(model, "qwen35moe"), without=("tokenizer.chat_template",))
    fails(sluice("run", "-m", model, "-p", "hi"), 1, "--chat-template-file", "--no-chat")
    assert sluice("run", "-m", model, "-n", "2", "--no-chat", "-p", "hi").returncode == 0


def test_a_prompt_longer_than_the_context_says_both_numbers(sluice, micro):
    fails(sluice("run", "-m", micro, "--no-chat", "-p", "hello " * 50, "-c", "16"), 1, "context of 16", "--ctx-size")


def test_wrong_usage_is_one_line_and_exit_code_2(sluice, micro, tmp_path):
    file = tmp_path / "text"
    file.write_text("hi")
    for arguments in (
        ["-p", "hi"],  # no model
        ["-m", micro, "-p", "hi", "-f", file],
        ["-m", micro, "-p", "hi", "--temp", "-1"],
        ["-m", micro, "-p", "hi", "--top-p", "2"],
        ["-m", micro, "-p", "hi", "-n", "many"],
        ["-m", micro, "-p", "hi", "--threads", "0"],
        ["-m", micro, "-p", "hi", "--isa", "abacus"],
        ["-m", micro, "-p", "hi", "--override-kv", "nonsense"],
        ["-m", micro, "-p", "hi", "--logit-bias", "640+1"],
        ["-m", micro, "-p", "hi", "--logit-bias", "1"],
        ["-m", micro, "-p", "hi", "-ub", "0"],
        ["-m", micro, "--no-chat", "-"],  # an empty text
        ["-m", micro, "-p", "hi", "--messages", file],
        ["-m", micro, "-p", "hi", "--no-chat", "--system", "be brief"],
        ["-m", micro, "-p", "hi", "--no-chat", "--think"],
    ):
        fails(sluice("run", *arguments), 2)


@pytest.mark.parametrize("arguments", [["--no-chat"], []])
def test_the_demo_model_sums(ask, demo, arguments):
    out = ask("-p", "1+1=", "--temp", "0", "-n", "200", *arguments, model=demo)
    assert out["text"].strip() == "2"
    assert out["stop"] == "eos"
