"""Input files of every format with what Python's own modules read from them: tests/data/input/NAME and NAME.json.

  python tools/golden/make_input_golden.py tests/data/input      (needs pyarrow, warcio, zstandard)

NAME.json: a list of records {status, id, text, line, fields}; `status` is the audit's reason, "" for a document.
"""
import csv
import gzip
import io
import json
import pathlib
import sys

import zstandard

sys.setrecursionlimit(5000)
FOLDER = pathlib.Path(sys.argv[1])


def expect(name, records):
    (FOLDER / (name + ".json")).write_text(json.dumps(records, indent=0, ensure_ascii=True) + "\n")


def jsonl_lines():
    """Raw lines, good and bad."""
    texts = ["plain", "a\nb\tc\rd\b\f\\ \" /", "é ü 日本語 😀", "\u0000nul\u0001\u001f\u007f", "x" * 15 + "\\" + "y" * 16 + "\"",
             " ", "\u2028\u2029\ufeff", "q" * 1000]
    lines = []
    for i, text in enumerate(texts):
        lines.append(json.dumps({"id": f"id-{i}", "text": text, "n": i, "nested": {"a": [1, {"b": None}], "text": "inner"}}))
        lines.append(json.dumps({"url": "http://a/?q=\"", "text": text}, ensure_ascii=False))
    lines += [r'{"text":"\ud83d\ude00 \u00e9 \/ \u0041","id":"\u0069\u0064"}', r'{"te\u0078t":"escaped key","id":7}',
              '{ "text" : "spaces" , "a" : 1 , "id" : null }', '\t{"text":"tab in front"} \r', "", "   ", "\t\r",
              '{"text":"one","text":"two"}', '{"text":1,"text":"last","id":"a","id":"b"}', '{"text":"x","big":123456789012345678901234567890}',
              '{"text":"x","e":-1.5e+300,"f":0.0,"g":[],"h":{},"i":true,"j":false}', '{"id":3.5,"text":"number id"}', '{"id":["a",1],"text":"array id"}',
              '{}', '{"txt":"other"}', '{"id":"k","text":null}', '{"id":"k","text":""}', '{"id":"k","text":5}', '{"id":"k","text":["a"]}',
              '{"id":"k","text":{"a":"b"}}', '{"id":"k","text":true}', '[1,2]', '"string"', '12', 'null',
              '{"text":"cut', '{"text":"a"', '{"text":"a",}', '{"text":"a"}}', '{"text":"a"} x', '{"text" "a"}', '{text:"a"}', "{'text':'a'}",
              '{"text":"a","n":01}', '{"text":"a","n":1.}', '{"text":"a","n":.5}', '{"text":"a","n":+1}', '{"text":"a","n":1e}',
              '{"text":"a","n":tru}', '{"text":"a","n":NaN}', r'{"text":"\x41"}', r'{"text":"\u12g4"}', '{"text":"a","n":[1,2}', '{"text":"a","n":[1,,2]}',
              '{"text":"a","n":{"b"}}', '{"text":"tab\there"}', 'not json', '{', '}', '"', '\\', '{"text":"nested","n":' + "[" * 1000 + "]" * 1000 + "}",
              '{"text":"after"}']
    raw = [line.encode() for line in lines]
    raw += [b'{"id":"u","text":"bad \xff byte"}', b'{"text":"ok","other":"\xc3"}', b'\xff\xfe', b'{"id":"\xe9","text":"x"}', b'{"text":"nul \x00 byte"}',
            b'{"text":"\xed\xa0\x80"}', r'{"id":"s","text":"\ud800 half"}'.encode(), r'{"text":"whole","half":"\udc00"}'.encode()]
    raw.append(b'{"text":"last, without a newline","id":"z"}')
    return raw


def jsonl_record(raw, name, line):
    record = {"status": "", "id": f"{name}:{line}", "text": "", "line": line, "fields": {}}
    try:
        text = raw.decode("utf-8")
        utf8 = True
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "surrogateescape")
        utf8 = False

    def refuse(constant):
        raise ValueError(constant)

    try:
        value = json.loads(text, parse_constant=refuse)
        if not isinstance(value, dict):
            raise ValueError("no object")
    except ValueError:
        record["status"] = "invalid_json" if utf8 else "invalid_utf8"
        return record
    name_of = value.pop("id", None)
    if isinstance(name_of, str):
        if not any("\ud800" <= c <= "\udfff" for c in name_of) and name_of:
            record["id"] = name_of
    elif name_of is not None:
        record["id"] = json.dumps(name_of, separators=(",", ":"))
        record["id_is_json"] = True
    if not utf8:
        record["status"] = "invalid_utf8"
    elif "text" not in value:
        record["status"] = "no_text"
    elif value["text"] is None:
        record["status"] = "null_text"
    elif not isinstance(value["text"], str):
        record["status"] = "text_not_a_string"
    elif value["text"] == "":
        record["status"] = "empty_text"
    elif any("\ud800" <= c <= "\udfff" for c in value["text"]):
        record["status"] = "invalid_utf8"
    if record["status"] == "":
        record["text"] = value.pop("text")
        # The second parser of the test knows neither huge integers nor half pairs.
        record["fields"] = {k: v for k, v in value.items() if k not in ("big", "half")}
    return record


def jsonl():
    raw = jsonl_lines()
    for newline, name, bom in ((b"\n", "hard.jsonl", b""), (b"\r\n", "crlf.jsonl", b"\xef\xbb\xbf")):
        (FOLDER / name).write_bytes(bom + newline.join(raw))
        records = [jsonl_record(line, name, i + 1) for i, line in enumerate(raw) if line.strip(b" \t\r\n")]
        expect(name, records)
    lines = [json.dumps({"text": f"line {i} " + "word " * (i % 50)}) + "\n" for i in range(300)]
    expected = lambda name: [jsonl_record(line.encode(), name, i + 1) for i, line in enumerate(lines)]
    members = ["".join(lines[i:i + 37]) for i in range(0, 300, 37)]
    (FOLDER / "members.jsonl.gz").write_bytes(b"".join(gzip.compress(m.encode(), mtime=0) for m in members))
    expect("members.jsonl.gz", expected("members.jsonl.gz"))
    frames = [zstandard.ZstdCompressor().compress(m.encode()) for m in members]
    (FOLDER / "frames.jsonl.zst").write_bytes(b"".join(frames))
    expect("frames.jsonl.zst", expected("frames.jsonl.zst"))


jsonl()
