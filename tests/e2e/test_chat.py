"""`sluice run` on a terminal: a conversation through a pseudo-terminal, as a person would have it."""

import os
import pathlib
import pty
import re
import select
import signal
import time

import pytest

PATIENCE = 60  # seconds until a test gives up on something that should appear
ENDLESS = [word for token in (556, 558, 564, 565, 566) for word in ("--logit-bias", f"{token}-1000")]


class Terminal:
    """The program on a pseudo-terminal; what it writes is kept until it is expected."""

    def __init__(self, program, arguments, env):
        self.output = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(program, [str(program), *map(str, arguments)], env)

    def expect(self, pattern: str) -> str:
        """Waits for the pattern, and returns all that came before its end and was not returned yet."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.output)):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"{pattern!r} did not come after {self.output!r}"
            self.output += os.read(self.fd, 65536).decode("utf-8", "replace")
        taken, self.output = self.output[: found.end()], self.output[found.end() :]
        return taken

    def say(self, line: str) -> str:
        """Types a line and returns what is written until the next prompt."""
        self.type(line + "\n")
        return self.expect(r"\n> ")

    def type(self, keys: str):
        os.write(self.fd, keys.encode())

    def wait_until_it_reads(self):
        """Until the main thread sleeps: a signal that comes between the prompt and the read would not end the read."""
        end = time.monotonic() + PATIENCE
        while pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "S":
            assert time.monotonic() < end, "the program does not come to rest"
            time.sleep(0.01)

    def exit_code(self) -> int:
        """The program must end by itself."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if select.select([self.fd], [], [], 0.05)[0]:
                    os.read(self.fd, 65536)
            except OSError:
                pass  # the other side is closed
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("the program does not end")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def chat(binary, micro):
    """Starts a chat with the micro model: chat("-n", 4) -> Terminal that has shown its first prompt."""
    terminals = []

    def start(*arguments, color=False, model=micro):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "LLAMA_ARG_"))}
        clean |= {"TERM": "xterm"} | ({} if color else {"NO_COLOR": "1"})
        if color:
            clean.pop("NO_COLOR", None)
        terminal = Terminal(binary, ["run", "-m", model, "--temp", "0", *arguments], clean)
        terminals.append(terminal)
        return terminal

    yield start
    for terminal in terminals:
        terminal.close()


def ready(terminal) -> str:
    return terminal.expect(r"> ")


def remembered(stats: str) -> int:
    return int(re.search(r"(\d+) of them remembered", stats).group(1))


def test_a_banner_an_answer_and_the_end(chat):
    terminal = chat("-n", 4, *ENDLESS)
    banner = ready(terminal)
    assert "qwen35moe-micro" in banner and "/help" in banner
    answer = terminal.say("hello")
    assert "[length]" in answer
    assert "/reset" in terminal.say("/help")
    terminal.type("\x04")  # Ctrl-D
    assert terminal.exit_code() == 0


def test_quit_leaves(chat):
    terminal = chat()
    ready(terminal)
    terminal.type("/quit\n")
    assert terminal.exit_code() == 0


def test_a_second_turn_remembers_the_first_and_reset_forgets(chat):
    terminal = chat("-n", 4, *ENDLESS)
    ready(terminal)
    assert "nothing was answered" in terminal.say("/stats")
    first = terminal.say("hello")
    assert remembered(terminal.say("/stats")) == 0
    terminal.say("and more")
    assert remembered(terminal.say("/stats")) > 10
    assert "forgotten" in terminal.say("/reset")
    assert terminal.say("hello") == first
    assert remembered(terminal.say("/stats")) == 0


def test_a_system_message_begins_anew_and_changes_answers(chat):
    terminal = chat("-n", 8, *ENDLESS)
    ready(terminal)
    first = terminal.say("hello")
    assert "set" in terminal.say("/system answer in verse")
    assert terminal.say("hello") != first
    assert remembered(terminal.say("/stats")) == 0
    assert "removed" in terminal.say("/system")
    assert terminal.say("hello") == first


def test_a_message_may_have_many_lines(chat):
    def tokens_of_the_prompt(*lines):
        terminal = chat("-n", 1, *ENDLESS)
        ready(terminal)
        for line in lines[:-1]:
            terminal.type(line + "\n")
            terminal.expect(r"\. ")
        terminal.say(lines[-1])
        return int(re.search(r"prompt +(\d+) tokens", terminal.say("/stats")).group(1))

    quoted = tokens_of_the_prompt('"""', "one", "two", '"""')
    assert quoted == tokens_of_the_prompt("one\\", "two\\", "")
    assert quoted > tokens_of_the_prompt("one\\", "two") > tokens_of_the_prompt("one")


def test_interrupting_an_answer_stops_it_and_not_the_program(chat):
    terminal = chat(*ENDLESS)  # until the context is full
    ready(terminal)
    terminal.type("hello\n")
    terminal.expect(r"hello\r\n.*\S")
    terminal.type("\x03")  # Ctrl-C
    terminal.expect(r"\[stopped\]")
    terminal.expect(r"\n> ")
    assert "ended by interrupt" in terminal.say("/stats")
    terminal.type("more\n")
    terminal.expect(r"more\r\n.*\S")
    terminal.type("\x03")
    terminal.expect(r"\[stopped\]")
    terminal.expect(r"\n> ")
    assert remembered(terminal.say("/stats")) > 0


def test_interrupting_at_the_prompt_begins_the_line_anew(chat):
    terminal = chat("-n", 4, *ENDLESS)
    ready(terminal)
    expected = terminal.say("hello")
    terminal.say("/reset")
    terminal.type("not this")
    terminal.expect("not this")
    terminal.wait_until_it_reads()
    terminal.type("\x03")
    terminal.expect(r"\n> ")
    assert terminal.say("hello") == expected
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_a_message_too_long_is_an_error_and_the_chat_goes_on(chat):
    terminal = chat("-n", 2, "-c", 40, *ENDLESS)
    ready(terminal)
    assert re.search(r"error: .*--ctx-size", terminal.say("word " * 60))
    assert "error" not in terminal.say("hello")


def test_reasoning_is_shown_apart_from_the_answer(chat, tmp_path):
    # The template opens a think block, and a penalty lets the favoured tokens come once each: "a", the end, "b".
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}<think>\n")
    favoured = [word for bias in ("64+4000", "570+3000", "65+2000") for word in ("--logit-bias", bias)]
    once_each = ["-n", 3, "--presence-penalty", "5000", "--repeat-last-n", 3, *favoured]
    terminal = chat("--chat-template-file", template, *once_each, "-p", "hi")
    assert terminal.expect(r"b\r\n") == "a\r\n\r\nb\r\n"
    terminal = chat("--chat-template-file", template, *once_each)
    ready(terminal)
    assert "a\r\n\r\nb" in terminal.say("hi")


def test_colors_only_where_they_are_wanted(chat):
    terminal = chat(color=True)
    assert "\x1b[" in ready(terminal)
    terminal = chat()
    assert "\x1b[" not in ready(terminal) + terminal.say("/help")


@pytest.mark.parametrize("option", ["--no-chat", "--json"])
def test_some_options_need_a_text(chat, option):
    terminal = chat(option)
    terminal.expect("error: .*-p TEXT")
    assert terminal.exit_code() == 2
