#!/usr/bin/env python3
"""tools/test-names.py BUILD: prints the name of every test that CTest runs in a build folder, as "program Suite.Name", sorted.

Every shard lists its own tests, so a test that no shard runs is missing and one that two shards run appears twice. To
compare two builds: diff <(tools/test-names.py BEFORE) <(tools/test-names.py AFTER).
"""
import json
import os
import subprocess
import sys


def listed(program, environment):
    """The names that --gtest_list_tests prints: suites at the margin, their tests indented, comments after a #."""
    text = subprocess.run([program, "--gtest_list_tests"], env=environment, check=True, capture_output=True, text=True).stdout
    suite = ""
    for line in text.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            yield suite + name.strip()
        elif name.endswith("."):
            suite = name


def names(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
    for test in json.loads(shown)["tests"]:
        command = test.get("command")
        if not command:
            sys.exit(f"{test['name']}: the test program is missing. Build {build} first.")
        settings = [p["value"] for p in test.get("properties", []) if p["name"] == "ENVIRONMENT"]
        environment = dict(os.environ, **dict(one.split("=", 1) for one in (settings[0] if settings else [])))
        program = os.path.basename(command[0])
        chosen = [a.split("=", 1)[1] for a in command if a.startswith("--gtest_filter=")]
        if chosen:  # one process per test
            yield f"{program} {chosen[0]}"
        elif "STRATA_TEST_SHARD" in environment:
            for name in listed(command[0], environment):
                yield f"{program} {name}"
        else:
            yield f"{program} {test['name']}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(sorted(names(sys.argv[1]))))
