"""The program as scripts and shells see it: exit codes, streams, help, man page, completions."""

import json
import shutil
import subprocess

import pytest


def commands_of(overview: str) -> list[str]:
    body = overview.split("Commands\n", 1)[1].split("\n\n", 1)[0]
    return [line.split()[0] for line in body.splitlines() if line.startswith("  ") and not line.startswith("   ")]


def test_version_is_one_json_object(sluice):
    out = json.loads(sluice("version", "--json").stdout)
    assert out["version"].count(".") == 2
    assert "scalar" in out["isa_usable"]
    assert set(out["isa_usable"]) <= set(out["isa_compiled"])


def test_usage_errors_are_one_line_and_exit_code_2(sluice):
    for arguments in (["nonsense"], ["version", "--jsn"], ["version", "stray"], ["version", "--json=1"]):
        done = sluice(*arguments)
        assert done.returncode == 2, arguments
        assert done.stdout == ""
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr


def test_a_full_disk_is_an_error(binary):
    with open("/dev/full", "w") as full:
        done = subprocess.run([binary, "version"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "standard output could not be written" in done.stderr


def test_every_command_has_help_that_fits_a_terminal(sluice):
    overview = sluice("--help")
    assert overview.returncode == 0
    for command in commands_of(overview.stdout):
        done = sluice(command, "--help")
        assert done.returncode == 0, command
        examples = done.stdout.find("\nExamples")
        options = done.stdout if examples < 0 else done.stdout[:examples]
        assert max(map(len, options.splitlines())) <= 80, command


def test_man_page_names_every_command_and_is_clean(sluice):
    page = sluice("man").stdout
    for command in commands_of(sluice("--help").stdout):
        assert f".SS sluice {command}\n" in page
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed, the man page is not typeset")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid_in_its_shell(sluice, shell):
    script = sluice("completion", shell).stdout
    assert "version" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


def complete_in_bash(script: str, *words: str) -> set[str]:
    """What bash offers for the last of `words`."""
    listed = " ".join(f"'{word}'" for word in words)
    probe = f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _sluice; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return set(subprocess.run(["bash"], input=script + probe, capture_output=True, text=True).stdout.split())


def test_bash_completes_commands_and_options(sluice):
    script = sluice("completion", "bash").stdout
    assert complete_in_bash(script, "sluice", "ver") == {"version"}
    assert complete_in_bash(script, "sluice", "version", "--") == {"--help", "--json"}
