// Many token files (or ranges of them) read as one sequence of tokens, for the loader and the evaluation. A
// cheap value that shares its files; const methods may be called from any thread and allocate nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "data/tokens/token_file.h"

namespace strata::data {

// Tokens [begin, begin + tokens) of a file. Both ends count as document ends.
struct TokenSegment {
  std::shared_ptr<const TokenFile> file;
  int64_t begin = 0;
  int64_t tokens = 0;
};

class TokenCorpus {
 public:
  TokenCorpus() = default;
  explicit TokenCorpus(std::vector<TokenSegment> segments);  // empty ones are dropped

  int64_t tokens() const { return starts_.empty() ? 0 : starts_.back(); }
  const std::vector<TokenSegment>& segments() const { return segments_; }

  void read(int64_t begin, int64_t n, int32_t* out) const;

  // Calls `part` for the tokens [begin, begin + n) in each segment that holds some of them, in order; `first`
  // is the number of the first one in the segment's file.
  void for_each_part(int64_t begin, int64_t n,
                     FunctionRef<void(const TokenSegment&, int64_t first, int64_t count)> part) const;

  // starts[j] = 1 if token begin + j is the first of a document, else 0, for j in [0, n); `ids` are these
  // tokens as read. A document ends at the ends in the file's table, after each end-of-text id, and at the
  // end of a segment. The same id may begin texts: one that a document begins with does not end it. Whether
  // token `begin` itself starts one is not looked up: starts[0] is 0.
  void mark_document_starts(int64_t begin, int64_t n, const int32_t* ids, uint8_t* starts) const;

  // The ends of all documents in corpus positions, in order, empty documents left out. Reads every token.
  std::vector<int64_t> document_ends() const;

 private:
  size_t segment_of(int64_t position) const;

  std::vector<TokenSegment> segments_;
  std::vector<int64_t> starts_;  // where each segment starts, and the end of the last
};

// Opens everything that the patterns name: token files, pairs, and folders of these (sorted by path within a
// pattern, in the patterns' order). ConfigError naming a pattern that finds nothing; DataError for no tokens.
TokenCorpus open_token_corpus(const std::vector<std::string>& patterns, const TokenFileOptions& options = {});

// Splits a corpus into a training and a held-out set: whole documents, chosen by the seed, if there are at
// least 100 of them, else the last tokens. `fraction` in (0, 1); each set has at least one document or token,
// the held-out one two tokens if there are three.
struct CorpusSplit {
  TokenCorpus train;
  TokenCorpus valid;
};
CorpusSplit split_corpus(const TokenCorpus& corpus, double fraction, uint64_t seed);

}  // namespace strata::data
