#!/usr/bin/env python3
"""The rooms of src/ are stacked: a room includes itself and rooms below it, and no other. Every source file belongs to
a room and is built by one of that room's CMakeLists.txt. Prints what breaks this and exits with 1; standard library
only."""

import functools
import pathlib
import re
import sys

ROOMS = ["base", "quant", "gguf", "ops", "state", "experts", "model", "chat", "decode", "engine", "server", "cli"]
# Text in, tokens out: the chat room knows files of vocabularies, nothing of tensors.
ONLY = {"chat": {"base", "gguf", "chat"}}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


TEST_PROGRAM = re.compile(r"sluice_test\(([^)]*)\)")


def allowed(room: str, is_test: bool) -> set[str]:
    rooms = ONLY.get(room, set(ROOMS[: ROOMS.index(room) + 1]))
    return rooms | {"support"} if is_test else rooms


@functools.cache
def build_texts(room: pathlib.Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(room.rglob("CMakeLists.txt")))


def problems_of(src: pathlib.Path):
    for path in sorted(p for p in src.rglob("*") if p.suffix in {".h", ".cpp", ".inl", ".inc"}):
        relative = path.relative_to(src)
        room = relative.parts[0]
        if len(relative.parts) < 2 or room not in ROOMS:
            yield f"src/{relative}: belongs to no room; the rooms are {', '.join(ROOMS)}"
            continue
        build = build_texts(src / room)
        if path.suffix == ".cpp" and path.name not in build:
            yield f"src/{relative}: is in no CMakeLists.txt of src/{room}, so nothing builds it"
        named_test = "_test" in path.stem or path.stem.startswith("test_")
        is_test = named_test or any(path.name in program for program in TEST_PROGRAM.findall(build))
        for include in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if include.split("/")[0] not in allowed(room, is_test) and "/" in include:
                yield f'src/{relative}: includes "{include}", which the room {room} may not see'


def main() -> int:
    src = pathlib.Path(__file__).resolve().parent.parent / "src"
    problems = list(problems_of(src))
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
