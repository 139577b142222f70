"""`sluice bench --json`: its fields, and that its figures agree with each other. How large they are is not tested."""

import json

import pytest

FIELDS = {
    "model",
    "threads",
    "isa",
    "depth",
    "pp",
    "pp_tps",
    "tg",
    "tg_tps",
    "load_s",
    "peak_rss_bytes",
    "bytes_per_token",
    "achieved_gbps",
    "machine_gbps",
    "share_of_bandwidth",
}
SMALL = ["--pp", "8", "--tg", "4", "--reps", "2", "-t", "1"]


@pytest.fixture(scope="module")
def figures(sluice, micro):
    done = sluice("bench", "-m", micro, "--json", *SMALL, "--depth", "5", "--isa", "scalar")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_has_the_fields_of_the_contract(figures, micro):
    assert FIELDS <= set(figures)
    told = {key: figures[key] for key in ("model", "threads", "isa", "depth", "pp", "tg")}
    assert told == {"model": str(micro), "threads": 1, "isa": "scalar", "depth": 5, "pp": 8, "tg": 4}
    for key in FIELDS - {"model", "isa"}:
        assert figures[key] > 0, key


def test_figures_agree_with_each_other(figures):
    assert figures["achieved_gbps"] == pytest.approx(figures["bytes_per_token"] * figures["tg_tps"] / 1e9)
    assert figures["share_of_bandwidth"] == pytest.approx(figures["achieved_gbps"] / figures["machine_gbps"])


def test_bytes_per_token_are_those_of_the_file(figures):
    # 828096 bytes of tensors: of 430080 of experts a quarter is used, of 640 rows of the embedding one.
    assert figures["bytes_per_token"] == 828096 - 430080 * 3 // 4 - 65280 + 102


def test_people_read_the_same_figures(sluice, micro):
    done = sluice("bench", "-m", micro, *SMALL)
    assert done.returncode == 0
    for word in ("1 threads", "medians of 2", "tokens/s", "GB/s", "peak memory"):
        assert word in done.stdout


def test_what_cannot_be_measured_is_an_error(sluice, micro):
    model = ["-m", micro]
    for arguments in ([], [*model, "--pp", "0"], [*model, "--reps", "0"], [*model, "--depth", "4294967295"]):
        done = sluice("bench", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
