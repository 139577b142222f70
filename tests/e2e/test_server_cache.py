"""The prompt cache by the tokens that it leaves to compute: turns, repeats, edits and branches of a hybrid model's
conversations, and slots that are saved in one process and restored in another. Whatever is reused, the answer is that
of a server which computes everything."""

import json
import random

import pytest
from server import error_of


def tokens(n, seed) -> list[int]:
    """Tokens of text, other ones for every seed."""
    return random.Random(seed).choices(range(100, 900), k=n)


def computed(answer) -> int:
    """Tokens of the prompt that were computed; the numbers agree with one another."""
    timings = answer["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == answer["tokens_evaluated"]
    return timings["prompt_n"]


def whole(server, prompt, n) -> str:
    """The answer where nothing is reused."""
    answer = server.complete(prompt, n, cache_prompt=False)
    assert computed(answer) == len(prompt)
    return answer["content"]


# ---- prompts of tokens ----


@pytest.mark.parametrize("slots", [1, 2])
def test_what_llama_server_reuses_of_a_hybrid_s_prompt_is_reused(serve, slots):
    """Its numbers for 1,000 tokens: 51, 4, 51, 516 and 9 are computed. Other slots serve as well."""
    server = serve("-np", slots)
    last = slots - 1

    def ask(prompt, most, slot, n=8):
        answer = server.complete(prompt, n, id_slot=slot, return_tokens=True)
        assert computed(answer) <= most, answer["timings"]
        assert answer["content"] == whole(server, prompt, n)
        return answer["tokens"]

    first = tokens(1000, 1)
    answer = ask(first, 1000, 0, n=32)
    second = first + answer + tokens(50, 2)
    ask(second, 51, 0)
    ask(second, 4, last)
    ask(second[:-50] + tokens(50, 3), 51, last)
    ask(first[:500] + tokens(500, 4), 516, last)
    ask(second + tokens(5, 5), 9, 0)


def test_why_tokens_were_computed_is_said(serve):
    server = serve("-np", 1)

    def reason(prompt, **fields):
        return server.complete(prompt, 2, **fields)["timings"]["cache_reason"]

    prompt = tokens(200, 1)
    reasons = [
        reason(prompt),
        reason(prompt),
        reason(prompt + tokens(100, 2)),
        reason(prompt[:100] + tokens(100, 3)),
        reason(prompt, cache_prompt=False),
    ]
    assert all(reasons) and len(set(reasons)) >= 3, reasons
    diverged = server.complete(prompt[:60] + tokens(100, 4), 2)["timings"]
    assert diverged["cache_diverged_at"] == 60


def test_without_memory_for_it_only_a_slot_s_own_state_serves(serve):
    server = serve("-np", 1, "--cache-ram", 0)
    prompt = tokens(300, 1)
    answer = server.complete(prompt, 8, return_tokens=True)
    assert computed(answer) == 300
    longer = prompt + answer["tokens"] + tokens(20, 2)
    assert computed(server.complete(longer, 2)) <= 21
    assert computed(server.complete(tokens(300, 3), 2)) == 300
    assert computed(server.complete(prompt, 2)) == 300


def test_a_small_budget_lets_states_go_and_answers_stay_right(serve):
    server = serve("-np", 2, "-c", 2048, "--cache-ram", 1)
    prompts = [tokens(400, seed) for seed in range(8)]
    expected = [whole(server, prompt, 4) for prompt in prompts]
    for _ in range(3):
        for prompt, content in zip(prompts, expected, strict=True):
            assert server.complete(prompt, 4)["content"] == content


# ---- chats ----


@pytest.fixture
def chat(serve):
    """chat(messages) -> (the answer's message, prompt tokens, of those computed)."""
    server = serve("-np", 2)

    def ask(messages, **fields):
        answer = server.chat(messages, max_tokens=48, enable_thinking=False, **fields)
        usage, timings = answer["usage"], answer["timings"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached == timings["cache_n"] and usage["prompt_tokens"] == cached + timings["prompt_n"]
        plain = server.chat(messages, max_tokens=48, enable_thinking=False, cache_prompt=False, **fields)
        assert plain["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert plain["choices"][0]["message"]["content"] == answer["choices"][0]["message"]["content"]
        return answer["choices"][0]["message"], usage["prompt_tokens"], timings["prompt_n"]

    return ask


def system(n=60):
    return {"role": "system", "content": "Be brief and kind. " * n}


def user(text):
    return {"role": "user", "content": text}


def test_a_second_turn_computes_what_is_new(chat):
    messages = [system(), user("I am Dora.")]
    answer, n, new = chat(messages)
    assert new == n
    _, n2, new = chat([*messages, answer, user("What is my name?")])
    # The template writes an answer of earlier turns without the empty think block that it was asked for with.
    assert new <= n2 - n + 8 and new < n / 4


def test_a_regenerated_answer_computes_next_to_nothing(chat):
    messages = [system(), user("Tell me a story about a fox.")]
    chat(messages)
    assert chat(messages)[2] <= 4


def test_an_edited_turn_resumes_from_its_start(chat):
    messages = [system(), user("I am Dora.")]
    answer, n, _ = chat(messages)
    second = [*messages, answer, user("What is my name?")]
    chat(second)
    assert chat([*messages, answer, user("What is 1+1?")])[2] < 60, "the second turn alone"
    assert chat([system(), user("I am Emma.")])[2] < 60, "the first one, not the system prompt"


def test_branches_of_a_conversation_are_all_kept(chat):
    messages = [system(), user("I am Dora.")]
    answer, *_ = chat(messages)
    branches = [[*messages, answer, user(text)] for text in ("What is 1+1?", "What is 2+2?", "What is my name?")]
    for branch in branches:
        chat(branch)
    for branch in branches:
        assert chat(branch)[2] <= 4, "back to where it was"


def test_one_system_prompt_serves_every_conversation(chat):
    _, n, _ = chat([system(), user("What is 1+1?")])
    for text in ("What is 2+2?", "I am Dora.", "Tell me a story about a fox."):
        assert chat([system(), user(text)])[2] < n / 4


# ---- slots that are saved ----


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "slots"
    path.mkdir()
    return path


def act(server, action, slot=0, **body):
    return server.post(f"/slots/{slot}?action={action}", body)


def test_a_slot_goes_on_in_another_process(serve, folder):
    prompt = tokens(300, 1)
    options = ["-np", 2, "--slot-save-path", folder]
    one = serve(*options)
    answer = one.complete(prompt, 16, id_slot=0, return_tokens=True)
    saved = act(one, "save", filename="chat.bin")
    assert saved["id_slot"] == 0 and saved["filename"] == "chat.bin"
    assert saved["n_written"] == (folder / "chat.bin").stat().st_size
    assert saved["n_saved"] in (315, 316) and saved["timings"]["save_ms"] >= 0
    longer = prompt + answer["tokens"] + tokens(10, 2)
    expected = one.complete(longer, 16, id_slot=0)["content"]
    one.stop()

    other = serve(*options)
    restored = act(other, "restore", slot=1, filename="chat.bin")
    assert restored["n_restored"] == saved["n_saved"] and restored["n_read"] == saved["n_written"]
    answer = other.complete(longer, 16, id_slot=1)
    assert computed(answer) <= 11 and answer["content"] == expected
    # The snapshots came along: the prompt can be answered anew.
    assert computed(other.complete(prompt, 4)) <= 4
    erased = act(other, "erase", slot=1)
    assert erased["n_erased"] > 0


def test_a_damaged_file_is_refused_and_the_slot_stays(serve, folder):
    server = serve("-np", 1, "--slot-save-path", folder)
    prompt = tokens(200, 1)
    answer = server.complete(prompt, 8, return_tokens=True)
    act(server, "save", filename="good.bin")
    good = (folder / "good.bin").read_bytes()
    client = server.client()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 16
    for content in (flipped, good[:-1], good + b"\0", good[:100], b"", b"nonsense" * 100):
        (folder / "bad.bin").write_bytes(content)
        error_of(client.post("/slots/0?action=restore", json={"filename": "bad.bin"}), 400, "bad.bin")
    longer = prompt + answer["tokens"] + tokens(5, 2)
    assert computed(server.complete(longer, 4)) <= 6, "the state is still there"


def test_a_file_of_another_model_or_cache_type_is_refused(serve, folder, micro):
    one = serve("-np", 1, "--slot-save-path", folder)
    one.complete(tokens(100, 1), 4)
    act(one, "save", filename="demo.bin")
    one.stop()
    others = [
        (serve("--slot-save-path", folder, model=micro), "model"),
        (serve("--slot-save-path", folder, "--cache-type-k", "bf16", "--cache-type-v", "bf16"), "cache_type"),
        (serve("--slot-save-path", folder, "--moe-topk", 2), "model"),
    ]
    for other, word in others:
        error_of(other.client().post("/slots/0?action=restore", json={"filename": "demo.bin"}), 400, word)


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/etc/passwd", "a\0b", ".hidden", "a" * 300, 5, None])
def test_only_plain_names_of_files_are_taken(serve, folder, name):
    client = serve("--slot-save-path", folder).client()
    for action in ("save", "restore"):
        error_of(client.post(f"/slots/0?action={action}", json={"filename": name}), 400, "filename")
    assert list(folder.iterdir()) == []


def test_what_cannot_be_done_to_a_slot_is_an_error(serve, folder):
    client = serve("-np", 1, "--slot-save-path", folder).client()
    body = {"filename": "a.bin"}
    error_of(client.post("/slots/7?action=save", json=body), 400)
    error_of(client.post("/slots/x?action=save", json=body), 400)
    error_of(client.post("/slots/0?action=abacus", json=body), 400, "action")
    error_of(client.post("/slots/0", json=body), 400, "action")
    missing = client.post("/slots/0?action=restore", json={"filename": "missing.bin"})
    assert missing.status_code in (400, 404, 500) and "missing.bin" in missing.json()["error"]["message"]


def test_states_survive_a_restart_by_the_slot_s_file_alone(serve, folder):
    """A chat that goes on after the server was killed."""
    options = ["-np", 1, "--slot-save-path", folder]
    one = serve(*options)
    messages = [system(20), user("I am Dora.")]
    hello = one.chat(messages, enable_thinking=False)["choices"][0]["message"]
    act(one, "save", filename="dora.bin")
    one.stop()
    other = serve(*options)
    act(other, "restore", filename="dora.bin")
    answer = other.chat([*messages, hello, user("What is my name?")], enable_thinking=False)
    assert "Dora" in answer["choices"][0]["message"]["content"]
    assert answer["timings"]["prompt_n"] < answer["usage"]["prompt_tokens"] / 2, json.dumps(answer["timings"])
