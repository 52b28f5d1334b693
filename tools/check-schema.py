#!/usr/bin/env python3
"""Holds a RUN.toml against the JSON Schema that `strata config schema` prints, as editors do.

    pip install jsonschema
    tools/check-schema.py build/release/bin/strata tests/data/train/interface.toml examples/*.toml

Exit code 1 where a file does not pass, with every fault.
"""

import json
import subprocess
import sys
import tomllib

import jsonschema


def main():
    program, *files = sys.argv[1:]
    schema = json.loads(subprocess.run([program, "config", "schema"], check=True, capture_output=True).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    wrong = 0
    for name in files:
        with open(name, "rb") as file:
            faults = sorted(validator.iter_errors(tomllib.load(file)), key=lambda fault: list(fault.path))
        for fault in faults:
            print(f"{name}: {'.'.join(map(str, fault.path))}: {fault.message}")
        wrong += len(faults)
        print(f"{name}: {'passes' if not faults else f'{len(faults)} faults'}")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
