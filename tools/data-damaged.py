#!/usr/bin/env python3
"""Reads hundreds of damaged Parquet and Arrow files with `strata data build`, which must report or skip damaged data and
never crash or hang. It also reads valid records as Parquet, Arrow IPC and jsonl, which must yield the same documents.

    python3 tools/data-damaged.py build/release/bin/strata [FILES]

Needs a program built with Arrow (`make arrow`), and pyarrow; therefore it is not part of the tests.
"""
import collections
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import pyarrow
import pyarrow.ipc
import pyarrow.parquet

RECIPE = """[build]
folder = "{out}"
on_error = "{on_error}"
[[source]]
name = "records"
path = ["{path}"]
[[stage]]
kind = "simple"
[[stage]]
kind = "exact_dedup"
[output]
documents = true
audit = true
"""


def bytes_of(table, kind):
    out = io.BytesIO()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, out, compression="snappy", row_group_size=20)
    elif kind == "arrow":
        with pyarrow.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=20)
    else:
        out.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
    return out.getvalue()


def build(program, folder, name, content, on_error):
    path, out = folder / name, folder / ("out-" + name)
    path.write_bytes(content)
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(out=out, on_error=on_error, path=path))
    code = subprocess.run([program, "data", "build", recipe, "--json"], capture_output=True, timeout=60).returncode
    documents = sorted(line for file in (out / "documents").glob("*.jsonl") for line in file.read_text().splitlines())
    return code, [(json.loads(line)["id"], json.loads(line)["text"]) for line in documents]


def damage(content, generator):
    content = bytearray(content)
    if generator.random() < 0.25:
        return content[:generator.randrange(len(content))]
    for _ in range(generator.choice([1, 1, 2, 8, 40])):
        content[generator.randrange(len(content))] = generator.randrange(256)
    return content


def main():
    program, files = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    text = "Some words about the thing with number {0}, and a few more of them that end here. "
    table = pyarrow.Table.from_pylist([{"id": str(i), "text": text.format(i) * 20} for i in range(60)])
    generator = random.Random(5)
    codes = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        sound = {kind: build(program, folder, "sound." + kind, bytes_of(table, kind), "stop")
                 for kind in ("parquet", "arrow", "jsonl")}
        assert sound["jsonl"][0] == 0 and len(sound["jsonl"][1]) == 60, sound["jsonl"]
        assert sound["parquet"] == sound["jsonl"] == sound["arrow"], "the readers differ"
        for kind in ("parquet", "arrow"):
            content = bytes_of(table, kind)
            for i in range(files):
                broken = damage(content, generator)
                code, _ = build(program, folder, f"{i}.{kind}", broken, "stop" if i % 2 else "skip")
                codes[kind, code] += 1
                if code not in (0, 3):
                    kept = pathlib.Path(f"damaged-{i}.{kind}")
                    kept.write_bytes(broken)
                    sys.exit(f"exit code {code}; the file was saved as {kept}")
    print(dict(codes))


if __name__ == "__main__":
    main()
