"""The server's endpoints and fields over real sockets, with the demo model: what llama-server and OpenAI promise."""

import concurrent.futures
import json
import math
import socket
import time

import pytest
from server import error_of, events, stream

SUM = {"prompt": "1+1=", "n_predict": 4, "temperature": 0}
LONG = {"prompt": "12+30=", "n_predict": 24, "temperature": 0, "ignore_eos": True}
ASK = {"messages": [{"role": "user", "content": "What is 1+1?"}], "temperature": 0, "enable_thinking": False}


def user(text):
    return {"role": "user", "content": text}


# ---- POST /completion ----


def test_completion_answers_with_the_fields_of_llama_server(server):
    out = server.post("/completion", SUM)
    assert out["content"] == "2"
    assert out["stop"] is True and out["stop_type"] == "eos" and out["stopping_word"] == ""
    assert out["tokens_evaluated"] == 4 and out["truncated"] is False and out["has_new_line"] is False
    assert out["prompt"] == "1+1=" and out["model"] and out["id_slot"] in range(4)
    assert out["generation_settings"]["temperature"] == 0 and out["generation_settings"]["n_predict"] == 4
    timings = out["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == 4
    for name in ("prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms"):
        assert timings[name] >= 0, name
    assert timings["predicted_per_token_ms"] >= 0 and timings["predicted_per_second"] >= 0


@pytest.mark.parametrize("path", ["/completion", "/completions"])
def test_both_names_of_the_endpoint_work(server, path):
    assert server.post(path, SUM)["content"] == "2"


def test_n_predict_ends_an_answer(server):
    for name in ("n_predict", "max_tokens", "max_completion_tokens"):
        body = {k: v for k, v in LONG.items() if k != "n_predict"} | {name: 5, "return_tokens": True}
        out = server.post("/completion", body)
        assert out["stop_type"] == "limit"
        assert out["tokens_predicted"] == out["timings"]["predicted_n"] == len(out["tokens"]) == 5


def test_n_predict_of_zero_computes_the_prompt_only(server):
    out = server.post("/completion", LONG | {"n_predict": 0})
    assert out["content"] == "" and out["stop_type"] == "limit" and out["tokens_evaluated"] == 6


def test_a_stop_string_ends_the_answer_before_it(server, client):
    text = server.post("/completion", LONG)["content"]
    stop = text[6:8]
    body = LONG | {"stop": ["not in the answer", stop]}
    out = server.post("/completion", body)
    assert out["content"] == text[: text.index(stop)]
    assert out["stop_type"] == "word" and out["stopping_word"] == stop
    *parts, last = [e for e in stream(client, "/completion", body) if e != "[DONE]"]
    assert "".join(p["content"] for p in parts) + last["content"] == out["content"], "nothing of it is streamed"
    assert server.post("/completion", LONG | {"stop": stop})["content"] == out["content"], "one string alone"


def test_a_seed_is_an_answer(server):
    def answer(**fields):
        return server.post("/completion", LONG | {"temperature": 1.5, **fields})["content"]

    assert answer(seed=1) == answer(seed=1)
    assert answer(seed=1) != answer(seed=2)
    assert len({answer() for _ in range(3)}) > 1, "without a seed every answer is another"


def test_n_probs_gives_the_likeliest_tokens(server, client):
    body = LONG | {"n_predict": 5, "n_probs": 3}
    entries = server.post("/completion", body)["completion_probabilities"]
    assert len(entries) == 5
    for entry in entries:
        assert set(entry) >= {"id", "token", "bytes", "logprob", "top_logprobs"}
        top = entry["top_logprobs"]
        assert len(top) == 3
        assert [e["logprob"] for e in top] == sorted((e["logprob"] for e in top), reverse=True)
        assert sum(math.exp(e["logprob"]) for e in top) <= 1.001
        for one in [entry, *top]:
            assert bytes(one["bytes"]).decode(errors="replace") == one["token"]
    streamed = [e for e in stream(client, "/completion", body) if e != "[DONE]"]
    given = [p for e in streamed if not e["stop"] for p in e.get("completion_probabilities", [])]
    assert [p["id"] for p in given] == [p["id"] for p in entries]


def test_logit_bias_forbids_and_forces(server):
    two = server.post("/tokenize", {"content": "2"})["tokens"][0]
    for bias in ([[two, False]], [["2", -100]], {str(two): -100}):
        assert "2" != server.post("/completion", SUM | {"logit_bias": bias})["content"], bias
    seven = server.post("/tokenize", {"content": "7"})["tokens"][0]
    assert server.post("/completion", SUM | {"logit_bias": [[seven, 100]]})["content"].startswith("7")


def test_response_fields_are_all_that_comes(server):
    out = server.post("/completion", SUM | {"response_fields": ["content", "timings/prompt_n", "no such field"]})
    assert set(out) == {"content", "timings/prompt_n"}
    assert out["content"] == "2"


def test_prompts_are_texts_tokens_or_several(server):
    tokens = server.post("/tokenize", {"content": "1+1="})["tokens"]
    assert server.post("/completion", SUM | {"prompt": tokens})["content"] == "2"
    assert server.post("/completion", SUM | {"prompt": [*tokens[:2], "1="]})["content"] == "2"
    several = server.post("/completion", SUM | {"prompt": ["1+1=", "2+2=", tokens]})
    assert [one["content"] for one in several] == ["2", "4", "2"]
    assert [one["index"] for one in several] == [0, 1, 2]


def test_a_streamed_completion_is_the_same_text(server, client):
    whole = server.post("/completion", LONG)
    parts = stream(client, "/completion", LONG | {"timings_per_token": True})
    if parts[-1] == "[DONE]":
        parts.pop()
    assert len(parts) > 5, "it comes while it is made"
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert all(part["timings"]["predicted_n"] > 0 for part in parts if part["content"])
    assert parts[-1]["stop_type"] == "limit" and parts[-1]["timings"]["predicted_n"] == 24


def test_progress_of_a_long_prompt_is_told(serve):
    one = serve("-ub", 64)
    body = LONG | {"prompt": [17] * 500, "return_progress": True}
    parts = [e for e in stream(one.client(), "/completion", body) if e != "[DONE]"]
    seen = [part["prompt_progress"] for part in parts if "prompt_progress" in part]
    assert len(seen) >= 4
    assert all(p["total"] == 500 and p["cache"] == 0 for p in seen)
    assert [p["processed"] for p in seen] == sorted(p["processed"] for p in seen)
    assert seen[-1]["processed"] == 500


def test_a_second_call_finds_the_prompt_cached(server):
    prompt = list(range(100, 300))
    first = server.post("/completion", LONG | {"prompt": prompt, "id_slot": 1})
    again = server.post("/completion", LONG | {"prompt": prompt, "id_slot": 1})
    assert first["timings"]["prompt_n"] == 200 and first["timings"]["cache_n"] == 0
    assert again["timings"]["prompt_n"] <= 4 and again["timings"]["cache_n"] >= 196
    assert again["tokens_evaluated"] == 200
    assert again["id_slot"] == 1
    assert again["content"] == first["content"]
    whole = server.post("/completion", LONG | {"prompt": prompt, "cache_prompt": False})
    assert whole["timings"]["prompt_n"] == 200 and whole["content"] == first["content"]


# ---- POST /v1/completions ----


def test_v1_completions_have_openai_s_shape(server):
    out = server.post("/v1/completions", {"prompt": "1+1=", "max_tokens": 4, "temperature": 0})
    assert out["object"] == "text_completion" and out["id"].startswith("cmpl-")
    assert out["created"] > 1e9 and out["model"]
    (choice,) = out["choices"]
    assert choice["text"] == "2" and choice["index"] == 0 and choice["finish_reason"] == "stop"
    assert choice["logprobs"] is None
    usage = out["usage"]
    assert usage["prompt_tokens"] == 4 and usage["completion_tokens"] >= 1
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] in range(4)


def test_v1_completions_echo_logprobs_and_n(server):
    body = {"prompt": "12+30=", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    plain = server.post("/v1/completions", body)["choices"][0]
    assert plain["finish_reason"] == "length"
    assert server.post("/v1/completions", body | {"echo": True})["choices"][0]["text"] == "12+30=" + plain["text"]
    logprobs = server.post("/v1/completions", body | {"logprobs": 2})["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == plain["text"]
    assert len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"]) == len(logprobs["text_offset"]) == 6
    assert all(value <= 0 for value in logprobs["token_logprobs"])
    assert all(1 <= len(top) <= 2 for top in logprobs["top_logprobs"])
    offsets = [sum(map(len, logprobs["tokens"][:i])) for i in range(6)]
    assert logprobs["text_offset"] == offsets
    several = server.post("/v1/completions", body | {"n": 3, "temperature": 1.5, "seed": 4})
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2]
    assert len({choice["text"] for choice in several["choices"]}) > 1, "each draws other random numbers"
    assert several["usage"]["completion_tokens"] == 18
    both = server.post("/v1/completions", {"prompt": ["1+1=", "2+2="], "max_tokens": 4, "temperature": 0})
    assert [choice["text"] for choice in both["choices"]] == ["2", "4"]


def test_v1_completions_stream_ends_with_usage_and_done(client):
    body = {"prompt": "12+30=", "max_tokens": 6, "temperature": 0, "stream_options": {"include_usage": True}}
    *parts, usage, done = stream(client, "/v1/completions", body)
    assert done == "[DONE]"
    assert usage["choices"] == [] and usage["usage"]["prompt_tokens"] == 6
    assert "".join(part["choices"][0]["text"] for part in parts) == "42"
    assert parts[-1]["choices"][0]["finish_reason"] == "stop"
    assert all(part.get("usage") is None for part in parts)


# ---- POST /v1/chat/completions ----


def test_chat_has_openai_s_shape(server):
    out = server.post("/v1/chat/completions", ASK)
    assert out["object"] == "chat.completion" and out["id"].startswith("chatcmpl-")
    (choice,) = out["choices"]
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"] == "2"
    assert "reasoning_content" not in choice["message"] and "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert out["usage"]["prompt_tokens"] > 4
    assert out["timings"]["prompt_n"] + out["timings"]["cache_n"] == out["usage"]["prompt_tokens"]


def test_chat_answers_are_cut_by_max_tokens(server):
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):
        out = server.post("/v1/chat/completions", ASK | {"messages": [user("Tell me a story about a fox.")], name: 7})
        assert out["choices"][0]["finish_reason"] == "length" and out["usage"]["completion_tokens"] == 7


@pytest.mark.parametrize("field", ["enable_thinking", "chat_template_kwargs"])
def test_reasoning_is_apart_in_one_piece_and_in_a_stream(server, client, field):
    thinking = {"enable_thinking": True} if field == "enable_thinking" else {field: {"enable_thinking": True}}
    body = {"messages": [user("What is 34 plus 99?")], "temperature": 0} | thinking
    message = server.post("/v1/chat/completions", body)["choices"][0]["message"]
    assert message["content"].strip() == "133"
    assert message["reasoning_content"].strip() and "think>" not in message["reasoning_content"] + message["content"]
    *parts, done = stream(client, "/v1/chat/completions", body)
    deltas = [part["choices"][0]["delta"] for part in parts]
    assert done == "[DONE]" and deltas[0]["role"] == "assistant"
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == message["reasoning_content"]
    assert "".join(delta.get("content") or "" for delta in deltas) == message["content"]
    first_content = next(i for i, delta in enumerate(deltas) if delta.get("content"))
    assert not any(delta.get("reasoning_content") for delta in deltas[first_content:])
    inline = server.post("/v1/chat/completions", body | {"reasoning_format": "none"})["choices"][0]["message"]
    assert "</think>" in inline["content"] and "reasoning_content" not in inline


def test_thinking_is_cut_short_after_its_budget(server):
    body = {"messages": [user("What is 34 plus 99?")], "temperature": 0, "enable_thinking": True}
    whole = server.post("/v1/chat/completions", body)
    short = server.post("/v1/chat/completions", body | {"reasoning_budget_tokens": 2})
    reasoning = [len(out["choices"][0]["message"].get("reasoning_content", "")) for out in (whole, short)]
    assert reasoning[1] < reasoning[0]
    assert short["choices"][0]["message"]["content"]


def test_a_chat_stream_has_a_role_content_a_reason_and_usage(client):
    body = ASK | {"messages": [user("Tell me a story about a fox.")], "max_tokens": 12}
    *parts, usage, done = stream(client, "/v1/chat/completions", body | {"stream_options": {"include_usage": True}})
    assert done == "[DONE]" and usage["choices"] == [] and usage["usage"]["completion_tokens"] == 12
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}
    assert len({part["id"] for part in parts}) == 1
    assert parts[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + ["length"]


def test_chat_logprobs_are_of_the_tokens_that_came(server, client):
    body = ASK | {"logprobs": True, "top_logprobs": 2}
    content = server.post("/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
    assert content[0]["token"] == "2" and content[0]["logprob"] <= 0
    assert all(len(entry["top_logprobs"]) == 2 for entry in content)
    parts = [e for e in stream(client, "/v1/chat/completions", body) if e != "[DONE]"]
    streamed = [p for e in parts for p in (e["choices"][0].get("logprobs") or {}).get("content", [])]
    assert [entry["id"] for entry in streamed] == [entry["id"] for entry in content]


def test_several_answers_to_one_chat(server):
    body = ASK | {"messages": [user("Tell me a story about a fox.")], "n": 3, "max_tokens": 12}
    body |= {"temperature": 3, "min_p": 0, "top_p": 1, "top_k": 0, "seed": 1}
    out = server.post("/v1/chat/completions", body)
    assert [choice["index"] for choice in out["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in out["choices"]}) > 1


def test_tool_calls_come_with_typed_arguments(server):
    minutes = {"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}
    tool = {"type": "function", "function": {"name": "set_timer", "description": "Set a timer", "parameters": minutes}}
    body = ASK | {"messages": [user("Start a timer of 8 minutes.")], "tools": [tool]}
    for choice in ("auto", "required", {"type": "function", "function": {"name": "set_timer"}}):
        out = server.post("/v1/chat/completions", body | {"tool_choice": choice})["choices"][0]
        (call,) = out["message"]["tool_calls"]
        assert out["finish_reason"] == "tool_calls" and call["type"] == "function" and call["id"]
        assert call["function"]["name"] == "set_timer", choice
        assert json.loads(call["function"]["arguments"]) == {"minutes": 8}, choice
    without = server.post("/v1/chat/completions", body | {"tool_choice": "none"})["choices"][0]
    assert "tool_calls" not in without["message"]


def test_system_messages_anywhere_are_no_error(server):
    for roles in (["user", "system", "user"], ["system", "developer", "user"], ["user", "developer"]):
        messages = [{"role": role, "content": "What is 1+1?" if role == "user" else "Be brief."} for role in roles]
        assert server.post("/v1/chat/completions", ASK | {"messages": messages, "max_tokens": 8})["choices"]


def test_content_may_be_parts_of_text(server):
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "1+1?"}]
    assert server.post("/v1/chat/completions", ASK | {"messages": [user(parts)]})["choices"][0]["message"]["content"]


# ---- errors ----


@pytest.mark.parametrize(
    "fields, name",
    [
        ({"grammar": "root ::= [0-9]"}, "grammar"),
        ({"json_schema": {"type": "object"}}, "json_schema"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"n_predict": "many"}, "n_predict"),
        ({"stop": [1]}, "stop"),
        ({"stop": ["x"] * 100000}, "stop"),
        ({"logit_bias": [[99999, 1]]}, "logit_bias"),
        ({"id_slot": 99}, "id_slot"),
        ({"mirostat": 2}, "mirostat"),
        ({"dry_multiplier": 0.8}, "dry_multiplier"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"n": 0}, "n"),
        ({"response_fields": [1]}, "response_fields"),
    ],
)
def test_a_field_that_cannot_be_heeded_is_named(client, fields, name):
    error = error_of(client.post("/completion", json=SUM | fields), 400, name)
    assert error["type"] == "invalid_request_error" and error["param"] == name


@pytest.mark.parametrize(
    "fields, name",
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages"),
        ({"messages": [user([{"type": "image_url", "image_url": {"url": "http://localhost"}}])]}, "messages"),
        ({"tools": [{"type": "abacus"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"modalities": ["audio"]}, "modalities"),
    ],
)
def test_a_field_of_a_chat_that_cannot_be_heeded_is_named(client, fields, name):
    error = error_of(client.post("/v1/chat/completions", json=ASK | fields), 400, name)
    assert error["param"] == name


def test_values_that_change_nothing_are_taken(server):
    neutral = {"mirostat": 0, "grammar": "", "typical_p": 1.0, "xtc_probability": 0, "lora": [], "model": "any"}
    assert server.post("/completion", SUM | neutral | {"no_such_field": 1, "seed": None})["content"] == "2"
    assert server.post("/v1/chat/completions", ASK | {"response_format": {"type": "text"}})["choices"]


NO_OBJECTS = [b"", b"{", b"[]", b'"text"', b'{"prompt": "a"} trailing', b"\xff\xfe", b"[" * 100_000]


@pytest.mark.parametrize("body", NO_OBJECTS, ids=range(len(NO_OBJECTS)))
def test_bodies_that_are_no_objects_are_400(client, body):
    error_of(client.post("/completion", content=body), 400)


def test_a_required_field_is_named(client):
    assert error_of(client.post("/completion", json={}), 400, "prompt")["param"] == "prompt"
    assert error_of(client.post("/v1/chat/completions", json={}), 400, "messages")["param"] == "messages"
    error_of(client.post("/tokenize", json={}), 400, "content")
    error_of(client.post("/detokenize", json={}), 400, "tokens")


def test_a_prompt_that_is_too_long_says_both_numbers(client):
    error = error_of(client.post("/completion", json=SUM | {"prompt": [17] * 5000}), 400, "5000")
    assert error["type"] == "exceed_context_size_error"
    assert error["n_prompt_tokens"] == 5000 and error["n_ctx"] <= 4096


def test_unknown_paths_and_methods(client):
    error_of(client.get("/v1/abacus"), 404)
    error_of(client.get("/../../etc/passwd"), 404)
    answer = client.get("/completion")
    error_of(answer, 405)
    assert "POST" in answer.headers["allow"]
    error_of(client.post("/health", json={}), 405)


def test_a_body_that_is_too_large_is_413_before_it_is_read(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert connection.recv(4096).split(b"\r\n")[0].split()[1] == b"413"


def test_every_answer_has_an_id_of_its_request(client):
    ids = [client.post("/completion", json=SUM).headers["x-request-id"] for _ in range(2)]
    assert all(ids) and ids[0] != ids[1]


def test_no_page_of_another_origin_may_read_answers(client):
    answer = client.get("/health", headers={"Origin": "http://evil.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_keys(serve, tmp_path):
    file = tmp_path / "keys"
    file.write_text("second\nthird\n")
    one = serve("--api-key", "first", "--api-key-file", file)
    client = one.client()
    assert client.get("/health").status_code == 200, "who watches a server needs no key"
    for value in (None, "Bearer wrong", "Bearer firs", "first"):
        answer = client.post("/completion", json=SUM, headers={"Authorization": value} if value else {})
        error_of(answer, 401)
        assert "first" not in answer.text
    for key in ("first", "second", "third"):
        assert client.post("/completion", json=SUM, headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert client.post("/completion", json=SUM, headers={"X-Api-Key": "second"}).status_code == 200
    for path in ("/props", "/slots"):
        error_of(client.get(path), 401)
    assert not any(key in one.log for key in ("first", "second", "third"))


def test_a_full_queue_is_503_with_a_time_to_wait(serve):
    one = serve("-np", 1, "--queue", 1)
    client = one.client()
    body = {"prompt": "12+30=", "n_predict": 2000, "ignore_eos": True, "temperature": 0, "stream": True}
    with client.stream("POST", "/completion", json=body) as running:
        next(running.iter_lines())  # it has the slot
        with client.stream("POST", "/completion", json=body):  # and this one waits
            answer = client.post("/completion", json=SUM)
            error_of(answer, 503)
            assert int(answer.headers["retry-after"]) >= 1
    while (answer := client.post("/completion", json=SUM)).status_code == 503:
        time.sleep(0.05)
    assert answer.json()["content"] == "2", "both clients have gone"


def test_logs_hold_no_prompts_unless_asked(serve):
    secret = "xyzzy and plugh"
    for arguments, expected in (([], False), (["--log-prompts"], True)):
        one = serve(*arguments)
        one.complete(secret, n=4)
        one.chat([user(secret)], max_tokens=4)
        one.signal()
        one.exit_code()
        assert (secret in one.log) == expected


# ---- the other endpoints ----


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
def test_health(client, path):
    answer = client.get(path)
    assert answer.status_code == 200 and answer.json()["status"] == "ok"


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
def test_models(client, path):
    out = client.get(path).json()
    assert out["object"] == "list"
    (model,) = out["data"]
    assert model["object"] == "model" and model["id"] and model["meta"]["n_vocab"] == 1024


def test_an_alias_is_the_model_s_name(serve):
    one = serve("--alias", "my model")
    assert one.client().get("/v1/models").json()["data"][0]["id"] == "my model"
    assert one.post("/v1/completions", {"prompt": "1+1=", "max_tokens": 1})["model"] == "my model"


def test_tokenize_and_detokenize(server):
    tokens = server.post("/tokenize", {"content": "12+30="})["tokens"]
    assert len(tokens) == 6 and all(isinstance(token, int) for token in tokens)
    assert server.post("/detokenize", {"tokens": tokens})["content"] == "12+30="
    pieces = server.post("/tokenize", {"content": "12é", "with_pieces": True})["tokens"]
    text = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert text.decode() == "12é"
    assert server.post("/tokenize", {"content": "<|im_end|>"})["tokens"] == [1010]
    assert len(server.post("/tokenize", {"content": "<|im_end|>", "parse_special": False})["tokens"]) > 1
    assert server.post("/tokenize", {"content": ""})["tokens"] == []
    assert server.post("/detokenize", {"tokens": []})["content"] == ""


def test_detokenize_refuses_what_is_no_token(client):
    error_of(client.post("/detokenize", json={"tokens": [99999]}), 400, "tokens")


def test_apply_template_gives_the_prompt_of_a_chat(server):
    prompt = server.post("/apply-template", {"messages": ASK["messages"], "enable_thinking": False})["prompt"]
    assert "What is 1+1?" in prompt and prompt.count("<|im_start|>") == 2
    answer = server.post("/completion", {"prompt": prompt, "temperature": 0, "n_predict": 8})
    assert answer["content"] == server.post("/v1/chat/completions", ASK)["choices"][0]["message"]["content"]


def test_props(client):
    out = client.get("/props").json()
    assert out["total_slots"] == 4
    assert out["model_path"].endswith("sluice-demo.gguf")
    assert "<|im_start|>" in out["chat_template"]
    assert out["default_generation_settings"]["n_ctx"] > 0
    assert out["build_info"]


def test_slots(server, client):
    server.post("/completion", SUM | {"id_slot": 2})
    out = client.get("/slots").json()
    assert [slot["id"] for slot in out] == [0, 1, 2, 3]
    assert all(slot["n_ctx"] > 0 and slot["is_processing"] is False for slot in out)


def test_metrics_have_llama_cpp_s_names(server, client):
    def metrics():
        answer = client.get("/metrics")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
        lines = [line for line in answer.text.splitlines() if line and not line.startswith("#")]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    before = metrics()
    server.post("/completion", LONG | {"prompt": list(range(300, 400)), "cache_prompt": False})
    # They are of the last step that has ended: the answer's own may be ending still.
    while (after := metrics())["sluice_answers_finished_total"] == before["sluice_answers_finished_total"]:
        time.sleep(0.01)
    assert after["llamacpp:prompt_tokens_total"] - before["llamacpp:prompt_tokens_total"] == 100
    predicted = after["llamacpp:tokens_predicted_total"] - before["llamacpp:tokens_predicted_total"]
    assert predicted == 24
    for name in ("prompt_seconds_total", "tokens_predicted_seconds_total", "requests_processing", "requests_deferred"):
        assert f"llamacpp:{name}" in after, name


def test_metrics_and_saving_are_off_unless_asked_for(serve):
    client = serve().client()
    error_of(client.get("/metrics"), 501)
    error_of(client.post("/slots/0?action=save", json={"filename": "a.bin"}), 501, "--slot-save-path")


def test_a_client_that_leaves_frees_its_slot(serve):
    one = serve("-np", 1)
    body = {"prompt": "12+30=", "n_predict": 3000, "ignore_eos": True, "temperature": 0, "stream": True}
    with one.client() as leaving, leaving.stream("POST", "/completion", json=body) as answer:
        next(events(answer.iter_lines()))
    assert one.post("/completion", SUM)["content"] == "2"
    assert not any(slot["is_processing"] for slot in one.client().get("/slots").json())


def test_answers_side_by_side_are_those_of_each_alone(server):
    bodies = [LONG | {"prompt": f"{n}+{n + 3}=", "cache_prompt": n % 2 == 0} for n in range(1, 13)]
    alone = [server.post("/completion", body)["content"] for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: server.post("/completion", body)["content"], bodies))
    assert together == alone
