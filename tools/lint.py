#!/usr/bin/env python3
"""Runs clang-tidy on the sources that differ from the branch main, on all of them, or on the named ones.

    tools/lint.py [all | FILE…]

A file that passed is not read again until it, a header of the project that it includes, or .clang-tidy changes
(build/lint/passed). Each finding is printed once, however many files include the header that it is in. Exits with 1 if there
are findings. JOBS is the number of processes.
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
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FINDING = re.compile(r"^/\S+:\d+:\d+: (?:error|warning): ")


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commands():
    """The command of each source of the build. There, no file is compiled together with others."""
    subprocess.run(["cmake", "--preset", "lint"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    path = BUILD / "compile_commands.json"
    entries = json.loads(path.read_text())
    for entry in entries:
        entry["command"] = FOREIGN.sub("", entry["command"])
    path.write_text(json.dumps(entries, indent=1))
    return {os.path.relpath(entry["file"], ROOT): shlex.split(entry["command"]) for entry in entries}


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
    """A digest of a file, the project's headers that it includes, and the settings."""

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

    def of(self, name, command):
        folders = [pathlib.Path(word[2:]) for word in command if word.startswith("-I")]
        options = [word for word in command if word[:2] in ("-D", "-s")]
        digest = hashlib.sha256(self.settings + "\0".join(options).encode())
        left, seen = [ROOT / name], set()
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
    """The findings in a file and the headers that it includes."""
    done = subprocess.run(
        ["clang-tidy", "-p", str(BUILD), "--quiet", "--extra-arg=-Wno-unknown-warning-option", name],
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
    known = commands()
    # Fuzzers and, without Arrow, its readers are not in this build.
    outside = [name for name in names if name not in known]
    if outside:
        print(f"not in this build: {', '.join(outside)}")
    names = [name for name in names if name in known]
    list_of_passed = BUILD / "passed"
    passed = set(list_of_passed.read_text().split()) if list_of_passed.exists() else set()
    digests = Digests()
    left = {name: digests.of(name, known[name]) for name in names}
    left = {name: digest for name, digest in left.items() if digest not in passed}
    print(f"{len(names) - len(left)} of {len(names)} files passed before")
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
    print(f"{len(printed)} findings in {failed} of {len(left)} files")
    return 1 if printed else 0


if __name__ == "__main__":
    sys.exit(main())
