#!/usr/bin/env python3
"""Draws docs/images/terminal.svg: a terminal in which the real program answers.

    tools/make_terminal_picture.py build/release/sluice models/demo/sluice-demo.gguf docs/images/terminal.svg

The program runs in a pseudo-terminal, so what is drawn is what a user sees, colours included. Answers are greedy or
seeded, threads and instruction sets are named (AVX2 must be there), and no time is printed: the same program and model
give the same picture. Standard library only; needs Linux and Python 3.11.
"""

import argparse
import html
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios

COLUMNS = 92
PROMPT = "\x1b[32m> \x1b[0m"  # of the chat, as the program prints it
TIMEOUT = 600  # seconds without output after which the program counts as stuck

# What is typed: a shell command, and the lines that are then given to it. The last three tell a story: twice with the
# work cut and shared differently, which must not show, and once with another seed, which must. The temperature is given
# because the file's own is 0, where no seed matters.
STORY = "sluice run -m sluice-demo.gguf -p 'Tell me a story.' --no-think --temp 1 --seed"
SCENE = [
    ("sluice run -m sluice-demo.gguf --temp 0 -t 2 --isa avx2",
     ["What is 17+25?", "What is the capital of France?"]),
    (f"{STORY} 3", []),
    (f"{STORY} 3 \\\n    --threads 1 --isa scalar --ubatch-size 3 | sha256sum", []),
    (f"{STORY} 3 \\\n    --threads 2 --isa avx2 | sha256sum", []),
    (f"{STORY} 4 \\\n    --threads 2 --isa avx2 | sha256sum", []),
]


class Terminal:
    """A shell command in a pseudo-terminal; `text` is all that it has shown."""

    def __init__(self, command, folder):
        self.text = ""
        self.errors = tempfile.TemporaryFile()
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, COLUMNS))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "LLAMA_ARG_", "NO_COLOR"))}
        environment = clean | {"TERM": "xterm-256color", "PATH": f"{folder}:{os.environ['PATH']}"}
        self.process = subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment, stdin=slave, stdout=slave,
                                        stderr=self.errors, start_new_session=True)
        os.close(slave)
        self.master = master

    def read(self):
        """What came next; empty at the end."""
        if not select.select([self.master], [], [], TIMEOUT)[0]:
            sys.exit(f"no output for {TIMEOUT} s after {self.text[-200:]!r}")
        try:
            piece = os.read(self.master, 65536).decode("utf-8", "replace").replace("\r\n", "\n")
        except OSError:  # how Linux says that the other side is closed
            piece = ""
        self.text += piece
        return piece

    def type_line(self, line):
        while not self.text.endswith(PROMPT):
            if not self.read():
                self.finish()
                sys.exit(f"the program ended before {line!r} could be typed")
        os.write(self.master, (line + "\n").encode())
        while not self.text.endswith("\n"):  # the terminal's echo, so that the prompt is not taken for the next one
            self.read()

    def finish(self):
        while self.read():
            pass
        code = self.process.wait()
        self.errors.seek(0)
        if code != 0:
            sys.exit(f"exit code {code}: {self.errors.read().decode()}")
        return self.text


def play(binary, model):
    shown = ""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(binary.resolve(), f"{folder}/sluice")
        os.symlink(model.resolve(), f"{folder}/sluice-demo.gguf")
        for command, lines in SCENE:
            terminal = Terminal(command, folder)
            for line in lines:
                terminal.type_line(line)
            if lines:
                terminal.type_line("/quit")
            shown += f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m\n{terminal.finish().rstrip()}\n\n"
    hashes = re.findall(r"^([0-9a-f]{64})  -$", shown, re.MULTILINE)
    if len(hashes) != 3 or hashes[0] != hashes[1] or hashes[1] == hashes[2]:
        sys.exit(f"the picture would not show what it claims: one seed the same, another different: {hashes}")
    return shown.rstrip()


# --- Drawing ----------------------------------------------------------------------------------------------------------

CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g"}
WIDTH, HEIGHT, MARGIN, BAR = 8.4, 19, 18, 34  # of a character; around the text; of the title bar, in pixels


def cells(text):
    """Lines of (character, class), cut at COLUMNS as a terminal does."""
    lines, style = [[]], ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", text):
        if part.startswith("\x1b["):
            style = CLASSES.get(part[2:-1], "")
            continue
        for character in part:
            if character == "\n" or len(lines[-1]) == COLUMNS:
                lines.append([])
            if character != "\n":
                lines[-1].append((character, style))
    return lines


def spans(line):
    out, at = "", 0
    while at < len(line):
        style, end = line[at][1], at
        while end < len(line) and line[end][1] == style:
            end += 1
        words = html.escape("".join(character for character, _ in line[at:end]), quote=False)
        out += f'<tspan class="{style}">{words}</tspan>' if style else words
        at = end
    return out


def draw(text):
    lines = cells(text)
    width = round(COLUMNS * WIDTH + 2 * MARGIN)
    height = BAR + len(lines) * HEIGHT + MARGIN
    dots = "".join(f'<circle cx="{MARGIN + 4 + 20 * i}" cy="17" r="6" fill="{colour}"/>'
                   for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840")))
    rows = "\n".join(f'<text x="{MARGIN}" y="{BAR + HEIGHT * i + 13}">{spans(line)}</text>'
                     for i, line in enumerate(lines) if line)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"
 role="img" aria-label="A terminal in which Sluice answers">
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d8dee9;
 white-space: pre }}
.b {{ font-weight: bold; fill: #ffffff }} .d {{ fill: #7b8794 }} .r {{ fill: #ff6b6b }} .g {{ fill: #7ee787 }}
</style>
<rect width="{width}" height="{height}" rx="9" fill="#15191f"/>
{dots}
{rows}
</svg>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.picture.write_text(draw(play(arguments.binary, arguments.model)), encoding="utf-8")


if __name__ == "__main__":
    main()
