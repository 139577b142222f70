"""Requests made up from the server's own OpenAPI file, right and wrong ones: none is answered with an error of the
server, and the server lives on."""

import hypothesis
import schemathesis
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

# Answers need not be long to be wrong.
LENGTHS = ("n_predict", "max_tokens", "max_completion_tokens")
COUNTS = ("n", "n_cmpl")


def shorten(body):
    """A number where one is, as large as a test can wait for."""
    if not isinstance(body, dict):
        return
    for name, most in (*((name, 3) for name in LENGTHS), *((name, 2) for name in COUNTS)):
        if isinstance(body.get(name), int) and body[name] > most:
            body[name] = most
    if not any(isinstance(body.get(name), int) and body[name] >= 0 for name in LENGTHS):
        body["n_predict"] = 2


def check(case):
    shorten(case.body)
    response = case.call(timeout=60)
    if response.status_code != 501:  # it says what the server wasn't started for
        case.validate_response(response, checks=[not_a_server_error])


def test_no_request_is_answered_with_an_error_of_the_server(server):
    schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
    settings = hypothesis.settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 10
    for operation in operations:
        modes = [GenerationMode.POSITIVE]
        if operation.body or operation.query or operation.path_parameters:  # else there is nothing to do wrong
            modes.append(GenerationMode.NEGATIVE)
        for mode in modes:
            cases = operation.as_strategy(generation_mode=mode)
            settings(hypothesis.given(case=cases)(check))()


def test_it_still_answers_right(server):
    assert server.complete("1+1=", 4, ignore_eos=False)["content"] == "2"
