#!/usr/bin/env python3
"""Runs clang-tidy on the sources that differ from the branch main, on all of them, or on the named ones.

    tools/lint.py [all | FILE…]

Sources that the build compiles as one are read as one: most of the time goes into the headers that they share. What passed
is not read again until a source, a header of the project that it includes, or .clang-tidy changes (build/lint/passed). Each
finding is printed once, however many sources include the header that it is in. Exits with 1 if there are findings. JOBS is
the number of processes.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/lint"
# Options of g++ that clang rejects.
FOREIGN = re.compile(r" -fschedule-insns| -fsched-pressure| --param ggc-min-heapsize=\d+")
# Where clang-tidy reports findings: in the project's headers, and in the sources that a compiled file includes.
REPORTED = r"/(src|tests|bench)/[^.]*\.(h|cpp)$"
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FINDING = re.compile(r"^/\S+:\d+:\d+: (?:error|warning): ")


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commands():
    """What the build compiles: for each file its command and the sources that it consists of."""
    subprocess.run(["cmake", "--preset", "lint"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    path = BUILD / "compile_commands.json"
    entries = json.loads(path.read_text())
    for entry in entries:
        entry["command"] = FOREIGN.sub("", entry["command"])
    path.write_text(json.dumps(entries, indent=1))
    units = {}
    for entry in entries:
        file = entry["file"]
        sources = [file]
        if "/Unity/unity_" in file:
            sources = [name.decode() for name in INCLUDE.findall(pathlib.Path(file).read_bytes())]
        units[file] = (shlex.split(entry["command"]), [os.path.relpath(source, ROOT) for source in sources])
    return units


def changed():
    for base in ("main", "origin/main"):
        found = subprocess.run(["git", "merge-base", "HEAD", base], cwd=ROOT, capture_output=True, text=True)
        if found.returncode == 0:
            base = found.stdout.strip()
            break
    else:
        base = "HEAD"
    names = output("git", "diff", "--name-only", "--diff-filter=d", base)
    names += output("git", "ls-files", "--others", "--exclude-standard")
    return sorted({name for name in names.split() if name.endswith(".cpp")})


class Digests:
    """A digest of sources, the project's headers that they include, and the settings."""

    def __init__(self):
        self.settings = (ROOT / ".clang-tidy").read_bytes()
        self.files = {}

    def includes(self, file, folders):
        """The content of a file and the headers that its lines name."""
        if file not in self.files:
            content = file.read_bytes()
            self.files[file] = (content, [name.decode() for name in INCLUDE.findall(content)])
        content, names = self.files[file]
        places = [[folder / name for folder in (file.parent, *folders)] for name in names]
        return content, [next((path for path in paths if path.is_file()), None) for paths in places]

    def of(self, sources, command):
        folders = [pathlib.Path(word[2:]) for word in command if word.startswith("-I")]
        options = [word for word in command if word[:2] in ("-D", "-s")]
        digest = hashlib.sha256(self.settings + "\0".join(options).encode())
        left, seen = [ROOT / source for source in sources], set()
        while left:
            file = left.pop()
            if file in seen:
                continue
            seen.add(file)
            content, headers = self.includes(file, folders)
            digest.update(content)
            left += [header for header in headers if header]
        return digest.hexdigest()


def check(name):
    """The findings in a compiled file and what it includes of the project."""
    done = subprocess.run(
        ["clang-tidy", "-p", str(BUILD), "--quiet", f"--config-file={ROOT / '.clang-tidy'}", f"--header-filter={REPORTED}",
         "--checks=-bugprone-suspicious-include", "--extra-arg=-Wno-unknown-warning-option", name],
        cwd=ROOT, capture_output=True, text=True)
    findings = []
    for line in done.stdout.splitlines():
        if FINDING.match(line):
            findings.append(line.replace(f"{ROOT}/", ""))
        elif findings:
            findings[-1] += "\n" + line
    if done.returncode and not findings:
        findings = [f"{name}: clang-tidy failed\n{done.stdout}{done.stderr}"]
    return findings


def main():
    names = sys.argv[1:]
    if names == ["all"]:
        names = output("git", "ls-files", "*.cpp").split()
    elif not names:
        names = changed()
        if not names:
            print("no source differs from main; to check all sources, run make lint FILES=all")
            return 0
    units = commands()
    # Fuzzers and, without Arrow, its readers are not in this build.
    outside = set(names) - {source for _, sources in units.values() for source in sources}
    if outside:
        print(f"not in this build: {', '.join(sorted(outside))}")
    units = {file: unit for file, unit in units.items() if not set(names).isdisjoint(unit[1])}
    list_of_passed = BUILD / "passed"
    passed = set(list_of_passed.read_text().split()) if list_of_passed.exists() else set()
    digests = Digests()
    left = {file: digests.of(sources, command) for file, (command, sources) in units.items()}
    left = {file: digest for file, digest in left.items() if digest not in passed}
    print(f"{len(units) - len(left)} of {len(units)} compiled files passed before", flush=True)
    printed, failed = set(), 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
        waiting = {pool.submit(check, name): name for name in left}
        for done in concurrent.futures.as_completed(waiting):
            findings = done.result()
            failed += bool(findings)
            for finding in findings:
                if finding not in printed:
                    printed.add(finding)
                    print(finding, flush=True)
            if not findings:
                with open(list_of_passed, "a") as file:
                    file.write(left[waiting[done]] + "\n")
    print(f"{len(printed)} findings in {failed} of {len(left)} compiled files")
    return 1 if printed else 0


if __name__ == "__main__":
    sys.exit(main())
