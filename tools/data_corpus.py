#!/usr/bin/env python3
"""Writes the corpus of tools/data-corpus.sh: data_corpus.py [--parquet] FOLDER PACKAGE.deb...

Needs only the standard library, and pyarrow for --parquet. Packages are read without unpacking them to disk. The same
packages yield the same bytes.
"""
import argparse
import gzip
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib

PAGE = 4000  # characters of dictionary entries in a document
HELD_OUT = {"Ruth", "Est", "Jonah", "Mal", "Phi", "Jas"}  # books of the Bible


def members(package):
    """Yields (path, content) of every regular file of a package, in order."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpack:
        with tarfile.open(fileobj=unpack.stdout, mode="r|") as archive:
            for member in archive:
                if member.isreg():
                    yield member.name.removeprefix("./"), archive.extractfile(member).read()
    if unpack.returncode != 0:
        raise SystemExit(f"{package} is damaged: delete it and start again")


def plain(path, content):
    return (path[:-3], gzip.decompress(content)) if path.endswith(".gz") else (path, content)


class Corpus:
    def __init__(self, folder, parquet):
        self.folder, self.parquet = folder, parquet
        self.count, self.bytes = {}, {}

    def path(self, name, size):
        part = name.split("/")[0]
        self.count[part] = self.count.get(part, 0) + 1
        self.bytes[part] = self.bytes.get(part, 0) + size
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name, content):
        self.path(name, len(content)).write_bytes(content)

    def jsonl(self, name, records):
        """Writes dicts. The suffix determines the compression; without the zstd program, .zst becomes .gz."""
        content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
        if name.endswith(".zst") and not shutil.which("zstd"):
            name = name.removesuffix(".zst") + ".gz"
        if name.endswith(".gz"):
            content = gzip.compress(content, 6, mtime=0)
        if name.endswith(".zst"):
            content = subprocess.run(["zstd", "-q", "-3", "-c"], input=content, stdout=subprocess.PIPE, check=True).stdout
        self.write(name, content)


def bible(corpus, packages):
    """Writes one file per chapter, with six books held out; the package's program reads the text."""
    with tempfile.TemporaryDirectory() as work:
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", package, work], check=True)
        library = next(pathlib.Path(work).rglob("libreadline.so.8"), pathlib.Path(work)).parent
        verses = subprocess.run(
            [f"{work}/usr/bin/bible", "-f", "-p", f"{work}/usr/lib", "Gen1:1-Rev22:21"], check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=dict(os.environ, LD_LIBRARY_PATH=str(library))).stdout
    chapters = {}
    for line in verses.decode().splitlines():
        place, verse = line.split(" ", 1)
        book, chapter = re.fullmatch(r"(.*?)(\d+):\d+", place).groups()
        chapters.setdefault((book, int(chapter)), []).append(verse)
    books, samples = {}, []
    for (book, chapter), lines in chapters.items():
        where = "held-out" if book in HELD_OUT else "books"
        number = books.setdefault(book, len(books) + 1)
        corpus.write(f"{where}/kjv-{number:02}-{book}-{chapter:03}.txt", ("\n".join(lines) + "\n").encode())
        if book in HELD_OUT:
            samples += [{"id": f"{book} {chapter}:{i}", "text": line} for i, line in enumerate(lines, 1)]
    corpus.jsonl("held-out/verses.jsonl", samples)


def r_strings(content):
    """Yields the string vectors of a file of R objects. The file consists of blocks: a length and zlib or xz data. A
    string has flags (type 9 in the last byte), a length and bytes."""
    at = 0
    while at + 5 < len(content):
        kind = content[at + 4:at + 5]
        try:
            opened = lzma.LZMADecompressor() if kind == b"Z" else zlib.decompressobj()
            data = opened.decompress(content[at + (5 if kind == b"Z" else 4):])
        except (lzma.LZMAError, zlib.error):
            return
        lines, place = [], 0
        for found in re.finditer(rb"\x00[\x00-\xff]{2}\x09(?=[\x00-\xff]{4})", data):
            if found.start() < place:
                continue
            length = int.from_bytes(data[found.end():found.end() + 4], "big")
            place = found.end() + 4 + length
            lines.append(data[found.end() + 4:place].decode("utf-8", "replace"))
        yield lines
        at = len(content) - len(opened.unused_data)


def austen(corpus, package):
    """Writes the novels, one file per chapter."""
    for path, content in members(package):
        if not path.endswith("/data/Rdata.rdb"):
            continue
        for lines in r_strings(content):
            if len(lines) < 1000:
                continue
            title = re.sub(r"\W+", "-", lines[0].strip().lower())
            chapters = re.split(r"(?im)^(?=chapter\s+[\divxlc]+\.?\s*$)", "\n".join(lines) + "\n")
            for number, chapter in enumerate(chapter for chapter in chapters if len(chapter) > 1000):
                corpus.write(f"books/austen-{title}-{number:02}.txt", chapter.encode())


def dictionary(corpus, package, name):
    """Writes entries in text order, grouped into documents."""
    files = {path.rsplit("/", 1)[-1]: content for path, content in members(package) if "/dictd/" in path}
    stem = next(file for file in files if file.endswith(".index")).removesuffix(".index")
    text = gzip.decompress(files[stem + ".dict.dz"])
    digits = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}

    def number(digits64):
        value = 0
        for digit in digits64:
            value = value * 64 + digits[digit]
        return value

    entries = {}
    for line in files[stem + ".index"].decode("utf-8", "replace").splitlines():
        word, start, length = line.split("\t")[:3]
        if not word.startswith("00"):  # metadata of the dictionary
            entries.setdefault((number(start), number(length)), word)
    records, page, first, size = [], [], None, 0
    for (start, length), word in sorted(entries.items()):
        first = first or word
        page.append(text[start:start + length].decode("utf-8", "replace").rstrip("\n"))
        size += length
        if size >= PAGE:
            records.append({"id": f"{stem}-{len(records)}", "first": first, "text": "\n\n".join(page)})
            page, first, size = [], None, 0
    if page:
        records.append({"id": f"{stem}-{len(records)}", "first": first, "text": "\n\n".join(page)})
    corpus.jsonl(f"dictionaries/{name}", records)


def texts(corpus, package, folder, pattern):
    """Writes plain texts, decompressed if necessary."""
    for path, content in members(package):
        path, content = plain(path, content)
        found = re.search(pattern, path)
        if found:
            corpus.write(f"{folder}/{found.group(1)}", content)


def perl(corpus, package):
    rows = []
    for path, content in members(package):
        path, content = plain(path, content)
        if path.endswith((".pod", ".pm")):
            rows.append({"id": path.rsplit("/", 1)[-1], "path": path, "text": content.decode("utf-8", "replace")})
    if not corpus.parquet:
        return corpus.jsonl("manuals/perl.jsonl", rows)
    import pyarrow
    import pyarrow.parquet
    with tempfile.TemporaryDirectory() as work:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), work + "/t", compression="zstd")
        corpus.write("manuals/perl.parquet", pathlib.Path(work, "t").read_bytes())


def pages(corpus, package, pattern=r"\.html(\.en)?$"):
    name = os.path.basename(package).split("_")[0]
    for path, content in members(package):
        if re.search(pattern, path):
            path = path.removesuffix(".en")
            corpus.write(f"html/{name}/" + re.sub(r"^usr/share/(doc/)?[^/]+/", "", path), content)


def crawl(corpus, package):
    """Writes a WARC file with a response record per page; in .warc.gz each record is compressed separately."""
    name = os.path.basename(package).split("_")[0]
    packed = not name.startswith("libboost")
    records = [b"WARC/1.0\r\nWARC-Type: warcinfo\r\nWARC-Date: 2023-01-01T00:00:00Z\r\nContent-Type: application/warc-fields\r\n"
               b"Content-Length: 24\r\n\r\nsoftware: data_corpus.py\r\n\r\n"]
    for path, content in members(package):
        if not path.endswith(".html"):
            continue
        block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(content) + content
        head = (f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:{name}:{len(records)}>\r\n"
                f"WARC-Target-URI: https://{name}.example/{path}\r\nWARC-Date: 2023-01-01T00:00:00Z\r\n"
                f"WARC-Identified-Payload-Type: text/html\r\nContent-Type: application/http; msgtype=response\r\n"
                f"Content-Length: {len(block)}\r\n\r\n")
        records.append(head.encode() + block + b"\r\n\r\n")
    if packed:
        records = [gzip.compress(record, 6, mtime=0) for record in records]
    corpus.write(f"crawl/{name}.warc" + (".gz" if packed else ""), b"".join(records))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parquet", action="store_true")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("packages", nargs="+")
    options = parser.parse_args()
    if options.parquet:
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise SystemExit("--parquet needs Python's pyarrow: pip install pyarrow, or leave --parquet out")
    for part in ("books", "manuals", "dictionaries", "html", "crawl", "held-out"):
        shutil.rmtree(options.folder / part, ignore_errors=True)
    corpus = Corpus(options.folder, options.parquet)
    named = {os.path.basename(package).split("_")[0]: package for package in options.packages}

    kinds = [
        (r"anarchism", lambda p: (texts(corpus, p, "books", r"/markdown/(.*\.md)$"), pages(corpus, p))),
        (r"r-cran-janeaustenr", lambda p: austen(corpus, p)),
        (r"dict-gcide", lambda p: dictionary(corpus, p, "gcide.jsonl.gz")),
        (r"dict-wn", lambda p: dictionary(corpus, p, "wordnet.jsonl.zst")),
        (r"dict-foldoc", lambda p: dictionary(corpus, p, "foldoc.jsonl")),
        (r"linux-doc-.*", lambda p: texts(corpus, p, "manuals/linux", r"Documentation/(.*\.(rst|txt))$")),
        (r"python3\..*-doc", lambda p: (texts(corpus, p, "manuals/python", r"/_sources/(.*\.txt)$"), pages(corpus, p))),
        (r"perl-doc", lambda p: perl(corpus, p)),
        (r"postgresql-doc-.*|sqlite3-doc|apache2-doc|debian-handbook|git-doc", lambda p: pages(corpus, p)),
        (r"libboost.*-doc|cppreference-doc-en-html|erlang-doc|openjdk-.*-doc|rust-doc", lambda p: crawl(corpus, p)),
    ]
    if {"bible-kjv", "bible-kjv-text"} <= named.keys():
        bible(corpus, [named[name] for name in ("bible-kjv", "bible-kjv-text", "libreadline8") if name in named])
    for name, package in named.items():
        for pattern, make in kinds:
            if re.fullmatch(pattern, name):
                print(f"  {name}", file=sys.stderr, flush=True)
                make(package)
    for part, count in corpus.count.items():
        print(f"{part:13} {count:6} files {corpus.bytes[part] / 1e6:8.1f} MB")
    empty = [part for part in ("books", "manuals", "dictionaries", "html", "crawl", "held-out") if not corpus.count.get(part)]
    if empty:
        raise SystemExit(f"{', '.join(empty)}: no files, but the recipe needs these folders; packages are missing")


if __name__ == "__main__":
    main()
