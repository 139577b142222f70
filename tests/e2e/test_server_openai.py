"""The official Python client of OpenAI's API against the server: what its users do, with the demo model."""

import json

import openai
import pytest

TIMER = {
    "type": "function",
    "function": {
        "name": "set_timer",
        "description": "Set a timer",
        "parameters": {"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]},
    },
}
QUICK = {"enable_thinking": False}  # what only this server knows goes in extra_body


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture(scope="module")
def api(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as one:
        yield one


@pytest.fixture
def ask(api):
    def create(text, **fields):
        extra = QUICK | fields.pop("extra_body", {})
        messages = text if isinstance(text, list) else [user(text)]
        return api.chat.completions.create(model="demo", messages=messages, temperature=0, extra_body=extra, **fields)

    return create


def test_models(api):
    (model,) = api.models.list().data
    assert model.id and model.object == "model"


def test_chat(ask):
    answer = ask("What is 1+1?")
    assert answer.choices[0].message.content == "2"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens > 0 and answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_a_conversation(ask):
    messages = [user("I am Dora.")]
    hello = ask(messages).choices[0].message
    messages += [{"role": "assistant", "content": hello.content}, user("What is my name?")]
    assert "Dora" in ask(messages).choices[0].message.content


def test_streaming(ask):
    whole = ask("Tell me a story about a fox.", max_tokens=30).choices[0].message.content
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(ask("Tell me a story about a fox.", max_tokens=30, **options))
    assert chunks[-1].usage.completion_tokens == 30 and not chunks[-1].choices
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole
    assert len(chunks) > 10
    assert chunks[-2].choices[0].finish_reason == "length"


def test_reasoning(ask):
    message = ask("What is 34 plus 99?", extra_body={"enable_thinking": True}).choices[0].message
    assert message.content.strip() == "133"
    assert message.reasoning_content.strip()


def test_a_tool_is_called_and_its_result_read(ask):
    messages = [user("Start a timer of 8 minutes.")]
    message = ask(messages, tools=[TIMER]).choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "set_timer" and json.loads(call.function.arguments) == {"minutes": 8}
    messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    assert ask(messages, tools=[TIMER], max_tokens=16).choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_a_tool_call_streams(ask):
    chunks = list(ask("Start a timer of 8 minutes.", tools=[TIMER], stream=True))
    parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or []]
    assert parts[0].id and parts[0].function.name == "set_timer" and {part.index for part in parts} == {0}
    assert json.loads("".join(part.function.arguments or "" for part in parts)) == {"minutes": 8}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any("tool_call" in (chunk.choices[0].delta.content or "") for chunk in chunks)


def test_the_stream_helper_assembles_the_same(api):
    with api.chat.completions.stream(
        model="demo",
        messages=[user("Start a timer of 8 minutes.")],
        tools=[TIMER],
        temperature=0,
        extra_body=QUICK,
    ) as stream:
        final = stream.get_final_completion()
    assert json.loads(final.choices[0].message.tool_calls[0].function.arguments) == {"minutes": 8}


def test_logprobs(ask):
    (first, *_) = ask("What is 1+1?", logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert first.token == "2" and first.bytes == [ord("2")]
    assert first.top_logprobs[0].token == "2" and first.top_logprobs[0].logprob == first.logprob


def test_completions(api):
    answer = api.completions.create(model="demo", prompt="1+1=", max_tokens=4, temperature=0, echo=True)
    assert answer.choices[0].text == "1+1=2"
    chunks = list(api.completions.create(model="demo", prompt="12+30=", max_tokens=6, temperature=0, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "42"


def test_errors_are_the_client_s_own(api, ask, serve):
    with pytest.raises(openai.BadRequestError) as refused:
        ask("hi", response_format={"type": "json_object"})
    assert refused.value.body["param"] == "response_format"
    with pytest.raises(openai.NotFoundError):
        api.get("/abacus", cast_to=object)
    guarded = serve("--api-key", "secret")
    for key in ("wrong", "secret"):
        with openai.OpenAI(base_url=guarded.url + "/v1", api_key=key, max_retries=0) as one:
            hi = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
            assert one.models.list().data  # needs no key, as with llama-server
            if key == "secret":
                assert one.chat.completions.create(**hi).choices
            else:
                with pytest.raises(openai.AuthenticationError):
                    one.chat.completions.create(**hi)


def test_a_stream_may_be_left(ask, server):
    stream = ask("Tell me a story about a fox.", stream=True)
    next(iter(stream))
    stream.close()
    assert ask("What is 1+1?").choices[0].message.content == "2"
