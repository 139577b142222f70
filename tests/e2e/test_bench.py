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
    "load_gbps",
    "peak_rss_bytes",
    "bytes_per_token",
    "achieved_gbps",
    "machine_gbps",
    "share_of_bandwidth",
    "operations_per_token",
    "achieved_gops",
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
    assert figures["achieved_gops"] == pytest.approx(figures["operations_per_token"] * figures["pp_tps"] / 1e9)
    if figures["machine_gops"]:  # a machine without fast byte products has none
        assert figures["share_of_arithmetic"] == pytest.approx(figures["achieved_gops"] / figures["machine_gops"])


def test_bytes_per_token_are_those_of_the_file(figures):
    # 828096 bytes of tensors: of 430080 of experts a quarter is used, of 640 rows of the embedding one.
    assert figures["bytes_per_token"] == 828096 - 430080 * 3 // 4 - 65280 + 102


def test_people_read_the_same_figures(sluice, micro):
    done = sluice("bench", "-m", micro, *SMALL)
    assert done.returncode == 0
    for word in ("1 threads", "medians of 2", "tokens/s", "GB/s", "peak memory"):
        assert word in done.stdout


def test_names_of_llama_bench_are_understood(sluice, micro):
    done = sluice("bench", "-m", micro, "-p", "8", "-n", "4", "-r", "1", "-d", "3", "-t", "1", "--json")
    figures = json.loads(done.stdout)
    assert (figures["pp"], figures["tg"], figures["depth"]) == (8, 4, 3)


def test_steps_of_more_rows_read_no_less_and_compute_in_proportion(sluice, micro):
    done = sluice("bench", "-m", micro, "--rows", "--json", "-r", "1", "-t", "1")
    rows = json.loads(done.stdout)["rows"]
    assert [row["n"] for row in rows] == list(range(1, 17))
    for before, row in zip(rows, rows[1:]):
        assert row["bytes"] >= before["bytes"]
        assert row["ms"] > 0
    # But for attention, whose rows see more and more keys, every row is the same work.
    assert rows[15]["ops"] == pytest.approx(16 * rows[0]["ops"], rel=0.1)


def test_several_sequences_generate_together(sluice, micro):
    for depth in (0, 70):
        done = sluice("bench", "-m", micro, "--streams", "3", "--json", *SMALL, "--depth", depth)
        assert done.returncode == 0, done.stderr
        figures = json.loads(done.stdout)
        assert figures["streams"] == 3 and figures["streams_tps"] > 0


def test_a_profile_accounts_for_all_time(sluice, micro):
    figures = json.loads(sluice("bench", "-m", micro, "--profile", "--json", *SMALL).stdout)
    for parts in (figures["ops"], figures["prompt_ops"]):
        assert {"experts", "shared expert", "delta net", "attention", "router", "head", "norms"} <= {
            part["name"] for part in parts
        }
        assert sum(part["share"] for part in parts) == pytest.approx(1)
        assert all(part["ms"] > 0 for part in parts)
        assert [part["ms"] for part in parts] == sorted((part["ms"] for part in parts), reverse=True)


def test_limits_of_the_machine(sluice, micro):
    figures = json.loads(sluice("bench", "--machine", "--json", "-t", "2", "-r", "1").stdout)
    assert set(figures["read_gbps"]) == {"1", "2"}
    for threads, gbps in figures["read_gbps"].items():
        assert 0 < gbps <= figures["read_gbps_best"][threads]
    for by_isa in ("int8_gops", "f32_gops"):
        assert all(gops > 0 for gops in figures.get(by_isa, {}).values())
    disk = json.loads(sluice("bench", "--machine", "--json", "-t", "1", "-m", micro).stdout)["disk"]
    assert disk["cached_gbps"] > 0


def test_what_cannot_be_measured_is_an_error(sluice, micro):
    model = ["-m", micro]
    for arguments in ([], [*model, "--pp", "0"], [*model, "--reps", "0"], [*model, "--depth", "4294967295"], ["--rows"], [*model, "--rows", "--profile"]):
        done = sluice("bench", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
