#!/usr/bin/env python3
"""Writes src/chat/jinja/unicode_tables.inc: case mappings and classes of characters as Python's str has them.

    python3 tools/make_unicode_case_tables.py > src/chat/jinja/unicode_tables.inc

Standard library only; the Unicode version is that of the Python that runs it (3.11: Unicode 14).
"""
import sys
import unicodedata

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def rows(name, kind, items, per_line):
    print(f"constexpr {kind} {name}[] = {{")
    for i in range(0, len(items), per_line):
        print("    " + ", ".join("{" + ", ".join(str(v) for v in item) + "}" for item in items[i : i + per_line]) + ",")
    print("};\n")


def ranges(test):
    out = []
    for c in ALL:
        if not test(c):
            continue
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def mapping(name, convert):
    """Runs (first, last, stride, delta) for one-to-one mappings, and a list of one-to-many ones."""
    runs, special = [], []
    for c in ALL:
        to = convert(chr(c))
        if to == chr(c):
            continue
        if len(to) > 1:
            special.append([c] + [ord(x) for x in to] + [0] * (3 - len(to)))
            continue
        delta = ord(to) - c
        last = runs[-1] if runs else None
        if last and last[3] == delta and (c - last[1] == last[2] or (last[0] == last[1] and c - last[1] <= 2)):
            last[2] = c - last[1]
            last[1] = c
        else:
            runs.append([c, c, 1, delta])
    rows(f"k{name}Runs", "CaseRun", runs, 6)
    rows(f"k{name}Special", "CaseSpecial", special, 6)


print(f"// Made by tools/make_unicode_case_tables.py, Unicode {unicodedata.unidata_version}. Do not edit.\n")
mapping("Upper", str.upper)
mapping("Lower", str.lower)
mapping("Title", str.title)
mapping("Fold", str.casefold)
IGNORABLE = {"Mn", "Me", "Cf", "Lm", "Sk"}
WORD_BREAK_MID = set(map(ord, "'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a"))
for name, test in (
    ("Alpha", lambda c: chr(c).isalpha()),
    ("Decimal", lambda c: chr(c).isdecimal()),
    ("Digit", lambda c: chr(c).isdigit()),
    ("Numeric", lambda c: chr(c).isnumeric()),
    ("Space", lambda c: chr(c).isspace()),
    ("Printable", lambda c: chr(c).isprintable()),
    ("UpperCase", lambda c: chr(c).isupper()),
    ("LowerCase", lambda c: chr(c).islower()),
    ("TitleCase", lambda c: unicodedata.category(chr(c)) == "Lt"),
    ("CaseIgnorable", lambda c: unicodedata.category(chr(c)) in IGNORABLE or c in WORD_BREAK_MID),
):
    rows(f"k{name}", "CharacterRange", ranges(test), 9)
sys.stdout.flush()
