#!/usr/bin/env python3
"""Adds up what the parts of `./dev test` left in a folder, prints a line per part, why tests were skipped, which
failed, and last "N passed, N failed, N skipped". Exits with 1 if anything failed. Standard library only.

The folder holds a file `parts` with lines "NAME EXIT-CODE SECONDS", for some parts NAME.xml in JUnit form, and for
fuzzing a folder of logs TARGET.log, each with a TARGET.ok beside it if all went well."""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

GTEST_SKIP = re.compile(r": Skipped\s*\n(.*)")


def reason_of(case: ElementTree.Element, skipped: ElementTree.Element) -> str:
    output = case.findtext("system-out") or ""
    found = GTEST_SKIP.search(output)
    return found.group(1).strip() if found else skipped.get("message") or "no reason given"


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.failures = []
        self.reasons = collections.Counter()

    def add_case(self, case: ElementTree.Element):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            self.add_failure(f"{case.get('classname')}.{case.get('name')}")
        elif skipped is not None:
            self.skipped += 1
            self.reasons[reason_of(case, skipped)] += 1
        else:
            self.passed += 1

    def add_failure(self, name: str):
        self.failed += 1
        self.failures.append(name)


def tally_part(folder: pathlib.Path, name: str, code: int) -> Tally:
    tally = Tally()
    cases = []
    if (folder / f"{name}.xml").exists():
        cases = list(ElementTree.parse(folder / f"{name}.xml").iter("testcase"))
    for case in cases:
        tally.add_case(case)
    targets = sorted((folder / name).glob("*.log"))
    for log in targets:
        if log.with_suffix(".ok").exists():
            tally.passed += 1
        else:
            tally.add_failure(f"{name} {log.stem}")
    if not cases and not targets and code == 0:
        tally.passed += 1
    # A part that did not build, or died without a failed case, must not look green.
    if code != 0 and tally.failed == 0:
        tally.add_failure(f"{name} exited with {code}")
    return tally


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    total = Tally()
    print(f"\n{'part':<18}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for line in (folder / "parts").read_text().splitlines():
        name, code, seconds = line.split()
        tally = tally_part(folder, name, int(code))
        print(f"{name:<18}{tally.passed:>8}{tally.failed:>8}{tally.skipped:>9}{seconds:>9}")
        total.passed += tally.passed
        total.failed += tally.failed
        total.skipped += tally.skipped
        total.failures += tally.failures
        total.reasons += tally.reasons
    for reason, count in total.reasons.most_common():
        print(f"skipped {count}: {reason}")
    for failure in total.failures:
        print(f"failed: {failure}")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
