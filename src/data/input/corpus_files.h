// What a list of paths and patterns stands for: which files, of which kind, compressed how.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace strata::data {

enum class CorpusKind {
  kText,     // the whole file is one document
  kJsonl,    // one JSON object a line
  kTokens,   // a token file: .bin (with or without .idx), .ds
  kRecords,  // another format of input/record_reader.h: Parquet, Arrow, csv, html, WARC
};
enum class Compression { kNone, kGzip, kZstd, kLz4, kBzip2, kXz };

struct CorpusFile {
  Path path;
  CorpusKind kind = CorpusKind::kText;
  Compression compression = Compression::kNone;
};

// Each pattern is a file, a folder (all files in it, at any depth), a glob, or a Megatron prefix (PREFIX.bin
// and PREFIX.idx); files come in the patterns' order, sorted by path within one, each once. Files that only
// accompany token files (.idx, .json, .documents, .ds.index, …), hidden files and *.part are left out. The
// kind follows from the name (.jsonl, .txt, .parquet, .bin, .ds, optionally followed by .gz, .zst, .lz4, .bz2
// or .xz), else from the content. ConfigError naming a pattern that matches nothing, for kinds that cannot be
// read, and for pipes: these files are read more than once.
std::vector<CorpusFile> find_corpus_files(const std::vector<std::string>& patterns);

// The two steps of it: the paths, without opening a file, and the kind of one file.
std::vector<Path> list_corpus_paths(const std::vector<std::string>& patterns);
CorpusFile classify_corpus_file(const Path& path);

}  // namespace strata::data
