"""Writes input files of every format and the records that Python's modules read from them: NAME and NAME.json.

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
    """Raw lines, valid and invalid."""
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
        # The test's second parser supports neither huge integers nor lone surrogates.
        record["fields"] = {k: v for k, v in value.items() if k not in ("big", "half")}
    return record


def jsonl():
    raw = jsonl_lines()
    for newline, name, bom in ((b"\n", "hard.jsonl", b""), (b"\r\n", "crlf.jsonl", b"\xef\xbb\xbf")):
        (FOLDER / name).write_bytes(bom + newline.join(raw))
        records = [jsonl_record(line, name, i + 1) for i, line in enumerate(raw) if line.strip(b" \t\r\n")]
        expect(name, records)
    lines = [json.dumps({"text": f"line {i} " + "word " * (i % 50)}) + "\n" for i in range(90)]
    expected = lambda name: [jsonl_record(line.encode(), name, i + 1) for i, line in enumerate(lines)]
    members = ["".join(lines[i:i + 37]) for i in range(0, 90, 37)]
    (FOLDER / "members.jsonl.gz").write_bytes(b"".join(gzip.compress(m.encode(), mtime=0) for m in members))
    expect("members.jsonl.gz", expected("members.jsonl.gz"))
    frames = [zstandard.ZstdCompressor().compress(m.encode()) for m in members]
    (FOLDER / "frames.jsonl.zst").write_bytes(b"".join(frames))
    expect("frames.jsonl.zst", expected("frames.jsonl.zst"))


def table_rows():
    rows = [["id", "text", "url", "note"]]
    for i, text in enumerate(["plain", "a, b", 'quotes "in" it', "two\nlines", "crlf\r\ninside", "tab\there", "", "é 日本語 😀", '"', "x" * 3000]):
        rows.append([f"row-{i}" if i % 3 else "", text, f"http://a/{i}", 'n"' if i % 2 else ""])
    return rows


def table(name, delimiter):
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator="\r\n" if delimiter == "," else "\n")
    writer.writerows(table_rows())
    text = "\ufeff" + buffer.getvalue() if delimiter == "," else buffer.getvalue()
    (FOLDER / name).write_bytes(text.encode())
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff"), newline=""), delimiter=delimiter)
    records = []
    line = 2
    for row in reader:
        key = row.pop("id") or f"{name}:{line}"
        content = row.pop("text")
        status = "" if content else "empty_text"
        records.append({"status": status, "id": key, "text": content, "line": line, "fields": row})
        line = reader.line_num + 1
    expect(name, records)


def pages():
    """Response bodies with their content type, and the resulting status."""
    body = "<html><head><title>T</title></head><body><nav><a href=/>Home</a></nav><p>%s</p></body></html>"
    text = "A paragraph that is long enough to be taken for the running text of a page."
    return [
        ("text/html; charset=utf-8", (body % (text + " é")).encode(), "", text + " é"),
        ("text/html; charset=iso-8859-1", (body % (text + " é")).encode("latin-1"), "", text + " é"),
        ("text/html", (body.replace("<head>", "<head><meta charset=shift_jis>") % (text + " 日本語")).encode("cp932"), "", text + " 日本語"),
        ("application/pdf", b"%PDF-1.4 ...", "not_text", ""),
        ("application/xhtml+xml", (body % text).encode(), "", text),
        ("text/html", b"<html><body></body></html>", "empty_text", ""),
    ]


def warc():
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    name = "pages.warc.gz"
    records = []
    number = 0
    with open(FOLDER / name, "wb") as out:
        writer = WARCWriter(out, gzip=True)
        info = writer.create_warcinfo_record(name, {"software": "a test"})
        info.rec_headers.replace_header("WARC-Date", "2020-01-01T00:00:00Z")
        info.rec_headers.replace_header("WARC-Record-ID", "<urn:uuid:00000000-0000-0000-0000-000000000000>")
        writer.write_record(info)
        number += 1
        for i, (content_type, body, status, text) in enumerate(pages()):
            for coding in ("plain", "gzip", "chunked", "both"):
                headers = [("Content-Type", content_type)]
                payload = body
                if coding in ("gzip", "both"):
                    payload = gzip.compress(payload, mtime=0)
                    headers.append(("Content-Encoding", "gzip"))
                if coding in ("chunked", "both"):
                    cut = len(payload) // 3
                    payload = b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in (payload[:cut], payload[cut:])) + b"0\r\n\r\n"
                    headers.append(("Transfer-Encoding", "chunked"))
                key = f"<urn:uuid:00000000-0000-0000-{i:04}-{len(records):012}>"
                url = f"http://example.org/{i}?c={coding}"
                extra = {"WARC-Date": "2020-02-02T00:00:00Z", "WARC-Record-ID": key}
                writer.write_record(writer.create_warc_record(
                    url, "response", payload=io.BytesIO(payload), warc_headers_dict=extra,
                    http_headers=StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1")))
                number += 1
                records.append({"status": status, "id": key, "text": text, "line": number,
                                "fields": {"url": url, "date": "2020-02-02T00:00:00Z"}})
                request = writer.create_warc_record(url, "request", payload=io.BytesIO(b""), warc_headers_dict={
                    "WARC-Date": "2020-02-02T00:00:00Z", "WARC-Record-ID": key.replace("urn:uuid:0", "urn:uuid:1")},
                    http_headers=StatusAndHeaders("GET / HTTP/1.1", [("Host", "example.org")], is_http_request=True))
                writer.write_record(request)
                number += 1
    expect(name, records)

    name = "pages.wet.gz"
    records = []
    with open(FOLDER / name, "wb") as out:
        writer = WARCWriter(out, gzip=True)
        for i in range(5):
            key = f"<urn:uuid:22222222-0000-0000-0000-{i:012}>"
            text = f"Plain text of page {i}\nwith a second line é"
            writer.write_record(writer.create_warc_record(
                f"http://example.org/{i}", "conversion", payload=io.BytesIO(text.encode()), warc_content_type="text/plain",
                warc_headers_dict={"WARC-Date": "2020-02-02T00:00:00Z", "WARC-Record-ID": key}))
            records.append({"status": "", "id": key, "text": text, "line": i + 1,
                            "fields": {"url": f"http://example.org/{i}", "date": "2020-02-02T00:00:00Z"}})
    expect(name, records)


def columns():
    import datetime

    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    rows = []
    for i in range(1000):
        rows.append({"id": f"row-{i}" if i % 4 else None, "text": [f"text {i} é 😀", None, "", "long " * (i % 300)][i % 4 if i % 50 < 9 else 0],
                     "n": i if i % 3 else None, "u": 2**64 - 1 - i, "f": i / 7, "f32": i / 4, "b": i % 2 == 0, "list": [1, None, i],
                     "deep": {"a": f'"{i}"', "b": [{"c": None}]}, "kind": f"kind {i % 5}", "day": datetime.date(2020, 1, 1 + i % 28)})
    schema = pa.schema([("id", pa.string()), ("n", pa.int32()), ("text", pa.large_string()), ("u", pa.uint64()), ("f", pa.float64()), ("f32", pa.float32()),
                        ("b", pa.bool_()), ("list", pa.list_(pa.int64())), ("deep", pa.struct([("a", pa.string()), ("b", pa.list_(pa.struct([("c", pa.int8())])))])),
                        ("kind", pa.dictionary(pa.int8(), pa.string())), ("day", pa.date32())])
    whole = pa.Table.from_pylist(rows, schema=schema)
    pa.parquet.write_table(whole, FOLDER / "rows.parquet", row_group_size=300, compression="zstd")
    pa.feather.write_feather(whole, FOLDER / "rows.feather", compression="lz4", chunksize=300)
    with pa.OSFile(str(FOLDER / "rows.arrow"), "wb") as out, pa.ipc.new_stream(
            out, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(whole, max_chunksize=300)
    for name in ("rows.parquet", "rows.feather", "rows.arrow"):
        records = []
        for i, row in enumerate(rows):
            row = {**row, "day": row["day"].isoformat()}
            key, content = row.pop("id"), row.pop("text")
            status = "null_text" if content is None else "" if content else "empty_text"
            records.append({"status": status, "id": key or f"{name}:{i + 1}", "text": content, "line": i + 1, "fields": row})
        expect(name, records[:60])


jsonl()
table("table.csv", ",")
table("table.tsv", "\t")
warc()
columns()
