#!/usr/bin/env python3
"""Validates RUN.toml files against the JSON Schema that `strata config schema` prints, as editors do.

    pip install jsonschema
    tools/check-schema.py build/release/bin/strata tests/data/train/interface.toml examples/*.toml

Prints every error. Exits with 1 if a file has errors.
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
            errors = sorted(validator.iter_errors(tomllib.load(file)), key=lambda error: list(error.path))
        for error in errors:
            print(f"{name}: {'.'.join(map(str, error.path))}: {error.message}")
        wrong += len(errors)
        print(f"{name}: {'passes' if not errors else f'{len(errors)} errors'}")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
