#!/usr/bin/env python3
"""Compares the data pipeline with its peers, both sides of each row in the same run, as a table in Markdown.

    python bench/peers/data_compare.py BUILD FILE.jsonl... [--rows filters minhash ...] [--work FOLDER] [--scale 1] [--rounds 1]
        [--before BUILD] [--pages FILE.warc...]

BUILD is a build folder, whose bin/strata, bin/tokenizer_bench and bin/loader_bench run. --before names a build of an earlier
commit: the rows filters, minhash, bpe and pages then run both builds interleaved, and a line after each row prints the median
of the rounds' ratios, by wall clock and by processor time, which other load disturbs less. FILE.jsonl has documents with
"text", 300 MB or more for the whole table: `strata data dedup CORPUS --stage exact_dedup -o texts` makes them from the corpus
of tools/data-corpus.sh. The peers process samples that take seconds, since their speed does not increase with size. `--scale
0.1` makes all samples smaller; the best of several rounds is used for each side. Row pages extracts the main text of web pages
from --pages (crawl/*.warc of that corpus), against datatrove's Trafilatura. Needs datatrove, spacy, trafilatura, xxhash,
tokenizers, tiktoken, megatron-core, torch, datasets and pydivsufsort in the Python that runs it (bench/peers/setup.sh data).

Times of Strata are those of whole processes, from start to exit; times of peers exclude their imports. Memory is the peak of
a process; for Strata it includes mapped input files.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
PUBLISHED = ["gopher_repetition", "gopher_quality", "c4_quality", "fineweb_quality"]
MB = 1_000_000


class Bench:
    def __init__(self, options):
        self.build, self.work = options.build.resolve(), options.work.resolve()
        self.before = options.before.resolve() if options.before else None
        self.pages = [path.resolve() for path in options.pages]
        self.scale, self.rounds = options.scale, options.rounds
        self.files = [pathlib.Path(file).resolve() for file in options.files]
        self.work.mkdir(parents=True, exist_ok=True)
        print("| what | Strata | peer | ratio | how |\n| --- | --- | --- | --- | --- |", flush=True)

    def row(self, what, ours, theirs, ratio, how):
        print(f"| {what} | {ours} | {theirs} | {ratio} | {how} |", flush=True)

    def texts(self, megabytes, name, shards=1, offset=0):
        """A folder with jsonl files of about this size, sampled from the whole input."""
        folder = self.work / f"{name}-{megabytes}-{self.scale}"
        if not folder.exists():
            size = sum(file.stat().st_size for file in self.files)
            share = min(1.0, megabytes * MB * self.scale / size)
            making = folder.with_suffix(".part")
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir()
            out = [open(making / f"{shard}.jsonl", "wb") for shard in range(shards)]
            number = taken = 0
            for file in self.files:
                for line in open(file, "rb"):
                    number += 1
                    if (number + offset) * share >= taken + 1 + offset * share:
                        out[taken % shards].write(line)
                        taken += 1
            for file in out:
                file.close()
            making.rename(folder)
        return folder, sum(file.stat().st_size for file in folder.iterdir()) / MB

    def text(self, megabytes, name, offset=0):
        """The same documents as one plain text file."""
        path = self.work / f"{name}-{megabytes}-{self.scale}.txt"
        if not path.exists():
            folder, _ = self.texts(megabytes, name, offset=offset)
            with open(path, "w", encoding="utf-8") as out:
                for line in open(folder / "0.jsonl", encoding="utf-8"):
                    out.write(json.loads(line)["text"] + "\n")
        return path

    def tokenizer(self, vocabulary):
        path = self.work / f"tokenizer-{vocabulary}-{self.scale}.json"
        if not path.exists():
            subprocess.run([self.build / "bin/tokenizer_bench", "train", self.text(60, "train"), str(vocabulary), path, "2"],
                           check=True, capture_output=True)
        return path

    def strata(self, *arguments):
        """Wall-clock seconds and peak MB of a run."""
        return min(self.run_once(self.build / "bin/strata", *arguments)[:2] for _ in range(self.rounds))

    def in_turns(self, what, program, *arguments):
        """Like run(), but also runs the earlier build, if any; after_row() then prints the ratio."""
        runs = []
        for _ in range(self.rounds):
            now = self.run_once(self.build / "bin" / program, *arguments)
            runs.append((now, self.run_once(self.before / "bin" / program, *arguments) if self.before else None))
        if self.before:
            wall, cpu = (statistics.median(before[i] / now[i] for now, before in runs) for i in (0, 2))
            self.remark = (f"{what}: {wall:.2f} × the earlier build by wall clock, {cpu:.2f} × by processor time "
                           f"(best {min(now[0] for now, _ in runs):.2f} s and {min(before[0] for _, before in runs):.2f} s)")
        return min(now for now, _ in runs)

    def after_row(self):
        if self.before:
            print(self.remark, flush=True)

    def run_once(self, program, *arguments):
        """Wall-clock seconds, peak MB, seconds of processor time."""
        shutil.rmtree(self.work / "ours", ignore_errors=True)
        start = time.perf_counter()
        process = subprocess.Popen([program, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        error = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status != 0:
            raise SystemExit(f"{program} {arguments} failed:\n{error.decode()}")
        return time.perf_counter() - start, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime

    def stages(self, inputs, kinds, workers=0, words="whitespace"):
        sets = [f'stage.{i}.words="{words}"' for i in range(len(kinds))]
        verb = ["data", "filter", *sorted(inputs.iterdir()), "-o", self.work / "ours", "--workers", workers]
        return self.in_turns(f'{" + ".join(kinds)}, words = "{words}"', "strata", *verb,
                             *sum((["--stage", kind] for kind in kinds), []), *sum((["--set", s] for s in sets), []))

    def peer(self, name, *arguments):
        return min((self.peer_once(name, *arguments) for _ in range(self.rounds)), key=lambda result: result["seconds"])

    def peer_once(self, name, *arguments):
        environment = dict(os.environ, TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="",
                           HF_HUB_OFFLINE="1")
        out = subprocess.run([sys.executable, HERE / "data_peers.py", name, *map(str, arguments)], env=environment,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if out.returncode != 0:
            raise SystemExit(f"{name} failed:\n{out.stderr}")
        return json.loads(out.stdout.splitlines()[-1])

    def tokenizer_runs(self, arguments, kind, path, vocabulary, tokenizer, threads):
        """Seconds of both sides, and their outputs."""
        rounds = [self.tokenizer_once(arguments, kind, path, vocabulary, tokenizer, threads) for _ in range(self.rounds)]
        return (min(ours["seconds"] for ours, _ in rounds), min(float(theirs[0]) for _, theirs in rounds), *rounds[0])

    def tokenizer_once(self, arguments, kind, path, vocabulary, tokenizer, threads):
        ours = subprocess.run([self.build / "bin/tokenizer_bench", *map(str, arguments), str(threads)], check=True,
                              capture_output=True, text=True).stdout
        environment = dict(os.environ, RAYON_NUM_THREADS=str(threads), TOKENIZERS_PARALLELISM=str(threads > 1).lower())
        theirs = subprocess.run([sys.executable, HERE / "tokenizer_peer.py", "--peer", kind, path, str(vocabulary), tokenizer],
                                env=environment, check=True, capture_output=True, text=True).stdout.split()
        return json.loads(ours.splitlines()[0]), theirs

    def speeds(self, what, ours_mb, ours_s, theirs_mb, theirs_s, how):
        ours, theirs = ours_mb / ours_s, theirs_mb / theirs_s
        self.row(what, f"{ours:.1f} MB/s ({ours_mb:.0f} MB)", f"{theirs:.2f} MB/s ({theirs_mb:.1f} MB)",
                 f"**{ours / theirs:.1f} ×**", how)


def filters(bench):
    small, small_mb = bench.texts(4, "few", shards=2)
    theirs = bench.peer("filters", small, bench.work / "peer")["seconds"]
    large, large_mb = bench.texts(240, "many")
    for words in ("whitespace", "spacy"):
        ours = bench.stages(large, PUBLISHED, words=words)[0]
        bench.speeds(f'Gopher + C4 + FineWeb filters, jsonl to jsonl, words = "{words}"', large_mb, ours, small_mb, theirs,
                     "all processors; datatrove with spaCy's words, 2 processes")
        bench.after_row()


def minhash(bench):
    small, small_mb = bench.texts(6, "pairs", shards=2)
    theirs = bench.peer("minhash", small, bench.work / "peer")["seconds"]
    large, large_mb = bench.texts(240, "many")
    for words in ("whitespace", "spacy"):
        ours = bench.stages(large, ["minhash"], words=words)[0]
        bench.speeds(f'MinHash deduplication, 14 × 8 hashes, 5-grams, jsonl to jsonl, words = "{words}"', large_mb, ours,
                     small_mb, theirs, "all processors; datatrove's four stages, 2 processes")
        bench.after_row()


def bpe(bench):
    text = bench.text(60, "train")
    ours_path, theirs_path = bench.work / "ours.json", bench.work / "theirs.json"
    mine, other, _, _ = bench.tokenizer_runs(["train", text, 32000, ours_path], "train", text, 32000, theirs_path, 2)
    a, b = (json.loads(path.read_text())["model"] for path in (ours_path, theirs_path))
    assert a["merges"] == b["merges"] and a["vocab"] == b["vocab"], "the two trainers disagree"
    bench.row(f"BPE training, {os.path.getsize(text) / MB:.0f} MB, vocabulary 32000", f"{mine:.2f} s", f"{other:.2f} s",
              f"**{other / mine:.1f} ×**", "2 threads; HF tokenizers, the same merges")
    if bench.before:
        bench.in_turns("BPE training, whole process", "tokenizer_bench", "train", text, 32000, ours_path, 2)
        bench.after_row()


def pages(bench):
    """Main text of web pages, WARC to jsonl, one thread; the peer reads the first pages of the first file."""
    size = sum(os.path.getsize(path) for path in bench.pages) / MB
    theirs = bench.peer("pages", bench.pages[0], bench.work / "peer", 400)
    ours = bench.in_turns("pages", "strata", "data", "filter", *bench.pages, "-o", bench.work / "ours", "--workers", 1,
                          "--stage", "exact_dedup")[0]
    bench.speeds("main text of web pages, WARC to jsonl", size, ours, theirs["bytes"] / MB, theirs["seconds"],
                 "1 thread, duplicates removed; datatrove's Trafilatura, 1 process")
    bench.after_row()


def encode(bench):
    """Text other than the training text, with empty caches."""
    fresh = bench.text(12, "fresh", offset=2)
    size = os.path.getsize(fresh) / MB
    for vocabulary in (32000, 128000):
        path = bench.tokenizer(vocabulary)
        for kind, name in (("encode", "HF tokenizers"), ("tiktoken", "tiktoken")):
            mine, other, ours, theirs = bench.tokenizer_runs(["encode", fresh, path], kind, fresh, vocabulary, path, 1)
            assert ours["tokens"] == int(theirs[1]), "the two encoders disagree"
            bench.speeds(f"BPE encode, vocabulary {vocabulary}, fresh text, empty caches", size, mine, size, other,
                         f"1 thread; {name}, the same number of tokens")


def preprocess(bench):
    tokenizer = bench.tokenizer(32000)
    small, small_mb = bench.texts(8, "lines")
    large, large_mb = bench.texts(240, "many")
    ours, _ = bench.strata("data", "tokenize", large / "0.jsonl", "--tokenizer", tokenizer, "-o", bench.work / "ours")
    for peer, how in (("megatron_tokens", "Megatron's builder over HF tokenizers, 2 processes"),
                      ("map_tokens", "HF datasets' map over HF tokenizers, 2 processes")):
        theirs = bench.peer(peer, small / "0.jsonl", tokenizer, bench.work / "peer")["seconds"]
        bench.speeds("jsonl to token file, vocabulary 32000", large_mb, ours, small_mb, theirs, "2 threads; " + how)


def substring(bench):
    small, small_mb = bench.texts(24, "spans")
    theirs = bench.peer("suffix_array", small / "0.jsonl", 100)["seconds"]
    ours, _ = bench.strata("data", "filter", small / "0.jsonl", "--stage", "substring_dedup", "-o", bench.work / "ours",
                           "--workers", 1)
    bench.speeds("repeated spans of 100 bytes cut out, the same text", small_mb, ours, small_mb, theirs,
                 "1 thread, jsonl to jsonl; libdivsufsort + Kasai in memory, without files")
    large, large_mb = bench.texts(240, "many")
    ours, _ = bench.strata("data", "filter", large / "0.jsonl", "--stage", "substring_dedup", "-o", bench.work / "ours",
                           "--workers", 2)
    bench.speeds("the same, more text", large_mb, ours, small_mb, theirs, "2 threads; as above")


def loader(bench):
    theirs = bench.peer_once("megatron_loader", bench.work / "loader", 4)
    out = subprocess.run([bench.build / "bin/loader_bench", "--benchmark_filter=fill_blended/documents", "--benchmark_format=json"],
                         check=True, capture_output=True, text=True).stdout
    ours = json.loads(out)["benchmarks"][0]["tokens/s"]
    other = theirs["tokens"] / theirs["seconds"]
    bench.row("loader: three sources blended, shuffled, packed with document masks", f"{ours / 1e6:.1f}M tokens/s",
              f"{other / 1e6:.2f}M tokens/s", f"**{ours / other:.0f} ×**", "1 thread; megatron-core's BlendedDataset")


def growth(bench):
    """Filters and MinHash on 1 x, 4 x and 16 x the corpus, with 1 and 2 threads: speed and peak memory."""
    print("\n| corpus | threads | filters + MinHash, jsonl to jsonl | peak memory |\n| --- | --- | --- | --- |")
    for megabytes, name in ((15, "1 ×"), (60, "4 ×"), (240, "16 ×")):
        for workers in (1, 2):
            folder, size = bench.texts(megabytes, "many")
            seconds, memory, _ = bench.stages(folder, PUBLISHED + ["minhash"], workers=workers)
            print(f"| {name}, {size:.0f} MB | {workers} | {size / seconds:.1f} MB/s ({seconds:.2f} s) | {memory:.0f} MB |",
                  flush=True)


ROWS = {"filters": filters, "minhash": minhash, "pages": pages, "encode": encode, "bpe": bpe, "preprocess": preprocess, "substring": substring,
        "loader": loader, "growth": growth}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/peers/data"))
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--pages", nargs="+", type=pathlib.Path, default=[])
    options = parser.parse_args()
    if "pages" in options.rows and not options.pages:
        options.rows.remove("pages")
    bench = Bench(options)
    for name in options.rows:
        ROWS[name](bench)


if __name__ == "__main__":
    main()
