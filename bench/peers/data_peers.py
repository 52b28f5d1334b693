"""The peers of data_compare.py, each in a separate process:

    python data_peers.py NAME ARGUMENT...

prints one JSON object with seconds, excluding imports, and counts.
"""
import json
import pathlib
import shutil
import sys
import time

VOCABULARY_EOD = 0


def clock(work):
    start = time.perf_counter()
    result = work()
    return {"seconds": time.perf_counter() - start, **(result or {})}


def quiet_datatrove():
    """Makes datatrove work with xxhash 4, which takes only bytes, and disables its log."""
    import datatrove.utils.hashes.xxhash as module
    import xxhash
    from loguru import logger
    module.xxhash64 = lambda data: xxhash.xxh64_intdigest(data.encode() if isinstance(data, str) else data)
    logger.remove()
    from datatrove.utils.text import split_into_sentences, split_into_words
    split_into_words("Its words are loaded.", "en")
    split_into_sentences("And its sentences.", "en")


def run_stage(folder, name, pipeline, tasks, workers):
    from datatrove.executor import LocalPipelineExecutor
    # Forked, so that workers do not repeat this process's imports.
    LocalPipelineExecutor(pipeline, tasks=tasks, workers=workers, logging_dir=f"{folder}/logs/{name}", skip_completed=False,
                          start_method="fork").run()


def filters(shards, work):
    """The four published filters, jsonl in, jsonl out, two processes."""
    quiet_datatrove()
    from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    shutil.rmtree(work, ignore_errors=True)
    return clock(lambda: run_stage(work, "filters", [
        JsonlReader(shards), GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter(),
        JsonlWriter(f"{work}/kept", compression=None)], 2, 2))


def minhash(shards, work):
    """The four stages of MinHash deduplication, two processes."""
    quiet_datatrove()
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    shutil.rmtree(work, ignore_errors=True)
    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)

    def stages():
        run_stage(work, "1", [JsonlReader(shards), MinhashDedupSignature(f"{work}/sigs", config)], 2, 2)
        run_stage(work, "2", [MinhashDedupBuckets(f"{work}/sigs", f"{work}/dups", config=config)], 14, 2)
        run_stage(work, "3", [MinhashDedupCluster(f"{work}/dups", f"{work}/removed", config)], 1, 1)
        run_stage(work, "4", [JsonlReader(shards), MinhashDedupFilter(f"{work}/removed"),
                              JsonlWriter(f"{work}/kept", compression=None)], 2, 2)
    return clock(stages)


def pages(warc, work, limit):
    """Main text of the first `limit` pages of a WARC file by Trafilatura, as in datatrove, one process; bytes: size of the pages'
    HTML."""
    quiet_datatrove()
    from datatrove.pipeline.extractors import Trafilatura
    from datatrove.pipeline.readers import WarcReader
    from datatrove.pipeline.writers import JsonlWriter
    shutil.rmtree(work, ignore_errors=True)
    path, read = pathlib.Path(warc), []

    def counted(data, rank=0, world_size=1):
        for document in data:
            read.append(len(document.text.encode()))
            yield document

    def stages():
        run_stage(work, "pages", [WarcReader(str(path.parent), glob_pattern=path.name, limit=int(limit)), counted,
                                  Trafilatura(timeout=30), JsonlWriter(f"{work}/kept", compression=None)], 1, 1)
        return {"pages": len(read), "bytes": sum(read)}
    return clock(stages)


def _encode(line):
    return _encode.tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids + [VOCABULARY_EOD]


def _load(path):
    from tokenizers import Tokenizer
    _encode.tokenizer = Tokenizer.from_file(path)


def megatron_tokens(path, tokenizer, work):
    """Like Megatron's preprocess_data.py: a pool of two workers, 32 lines at a time, Hugging Face tokenizers, .bin and .idx by
    Megatron's builder."""
    import multiprocessing

    import numpy
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    pathlib.Path(work).mkdir(parents=True, exist_ok=True)

    def preprocess():
        builder = IndexedDatasetBuilder(f"{work}/tokens.bin", dtype=numpy.uint16)
        count = 0
        with multiprocessing.Pool(2, initializer=_load, initargs=(tokenizer,)) as pool, open(path, encoding="utf-8") as file:
            for ids in pool.imap(_encode, file, 32):
                builder.add_document(torch.IntTensor(ids), [len(ids)])
                count += len(ids)
        builder.finalize(f"{work}/tokens.idx")
        return {"tokens": count}
    return clock(preprocess)


def map_tokens(path, tokenizer, work):
    """Hugging Face datasets: loads the jsonl and maps the tokenizer over batches, two processes; writes Arrow files."""
    import datasets
    from tokenizers import Tokenizer
    datasets.disable_progress_bars()
    loaded = Tokenizer.from_file(tokenizer)

    def encode(batch):
        return {"ids": [e.ids for e in loaded.encode_batch_fast(batch["text"], add_special_tokens=False)]}

    def work_through():
        data = datasets.load_dataset("json", data_files=path, split="train", cache_dir=work)
        data.map(encode, batched=True, num_proc=2, remove_columns=data.column_names)
    shutil.rmtree(work, ignore_errors=True)
    return clock(work_through)


def suffix_array(path, threshold):
    """Ranges of at least `threshold` bytes that occurred before, from libdivsufsort's suffix array and Kasai's common prefixes of
    the whole text, one thread: as in deduplicate-text-datasets, without reading and writing files."""
    import numpy
    import pydivsufsort
    text = b"\x00".join(json.loads(line)["text"].encode() for line in open(path, encoding="utf-8"))

    def spans():
        data = numpy.frombuffer(bytearray(text), dtype=numpy.uint8)
        suffixes = pydivsufsort.divsufsort(data)
        common = pydivsufsort.kasai(data, suffixes)[:-1]
        alike = numpy.flatnonzero(common >= int(threshold))
        # The later of two neighbours is removed; ranges are merged by counting their begins and ends.
        later = numpy.maximum(suffixes[alike], suffixes[alike + 1])
        edges = numpy.zeros(len(data) + 1, dtype=numpy.int32)
        numpy.add.at(edges, later, 1)
        numpy.add.at(edges, later + common[alike], -1)
        return {"cut": int((numpy.cumsum(edges[:-1]) > 0).sum())}
    return clock(spans)


def megatron_loader(work, seconds):
    """Samples of three blended, shuffled datasets, one thread, by Megatron's BlendedDataset: with document-aware positions and
    loss mask, without an attention mask."""
    import warnings
    warnings.simplefilter("ignore")
    import numpy
    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
    shutil.rmtree(work, ignore_errors=True)
    pathlib.Path(work).mkdir(parents=True)
    draw = numpy.random.default_rng(1)
    for name in "abc":
        builder = IndexedDatasetBuilder(f"{work}/{name}.bin", dtype=numpy.uint16)
        for _ in range(16000):
            builder.add_document(torch.from_numpy(numpy.append(draw.integers(1, 30000, 499), 0)), [500])
        builder.finalize(f"{work}/{name}.idx")

    class Tokenizer:
        eod, pad, vocab_size, unique_identifiers = 0, 0, 30001, {"class": "bench"}

    config = GPTDatasetConfig(
        random_seed=1, sequence_length=1024, blend=([f"{work}/{name}" for name in "abc"], [0.5, 0.3, 0.2]), split="100,0,0",
        path_to_cache=f"{work}/cache", tokenizer=Tokenizer(), reset_position_ids=True, reset_attention_mask=False,
        eod_mask_loss=True, create_attention_mask=False)
    samples = 20000
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    data = BlendedMegatronDatasetBuilder(GPTDataset, [samples, 0, 0], lambda: True, config).build()[0]
    for i in range(100):
        data[i]
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < float(seconds):
        for i in range(count, count + 50):
            data[i % samples]
        count += 50
    return {"seconds": time.perf_counter() - start, "tokens": count * 1024}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
