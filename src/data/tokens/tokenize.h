// Tokenizes raw text to one token file, once: the result is stored in a cache folder and reopened while
// inputs, tokenizer and options are the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "data/tokenizer/special_tokens.h"

namespace strata::data {

// What tokenizing needs of a tokenizer (text_encoder.h makes it from one).
struct TextEncoder {
  // Appends the ids of a text and counts the special tokens that it spells out; may be called concurrently by
  // several threads.
  std::function<void(std::string_view text, std::vector<int32_t>& ids, SpecialCounts& special)> encode;
  // The first place at or after `from` at which a cut of the text does not change its ids; text.size(): none.
  // Unset: a text is never cut.
  std::function<size_t(std::string_view text, size_t from)> next_cut;
  int64_t vocab_size = 0;
  int64_t id_limit =
      0;  // ids from here on are refused, where the model has fewer rows than the tokenizer; 0: none
  SpecialInText special_in_text = SpecialInText::kToken;  // as `encode` takes them, or kRefuse
  std::function<std::string(int32_t id)> token;           // its text, for messages
  std::vector<int32_t> begin_of_text;                     // ids; empty: the tokenizer has none
  std::optional<int32_t> end_of_text;
  std::string hash;  // names the tokenizer
};

struct TokenizeOptions {
  bool add_bos = false;  // begin-of-text ids before each document
  bool add_eos = true;   // the end-of-text id after each document
  std::string text_field = "text";
};

struct TokenizeProgress {
  int64_t bytes_done = 0, bytes_total = 0;  // of the stored files
  int64_t documents = 0, tokens = 0;
};

struct TokenizeResult {
  Path path;            // the token file, FOLDER/tokens-KEY.bin; .json and .documents next to it
  bool reused = false;  // it was there
  int64_t documents = 0, tokens = 0;
  std::map<std::string, int64_t> special = {};  // special tokens that the texts spell out, and how often
};

// Appends the ids of one document. DataError naming place() for a special token that is to be refused, and
// for an id beyond the limit.
void encode_document(const TextEncoder& encoder, std::string_view text, FunctionRef<std::string()> place,
                     std::vector<int32_t>& ids, SpecialCounts& special);

// The counts by the tokens' texts; "</s> 8 times, <s> 3 times", the most frequent first.
std::map<std::string, int64_t> named_counts(const TextEncoder& encoder, const SpecialCounts& special);
std::string to_string(const std::map<std::string, int64_t>& special);

// Encodes every document that `inputs` (see find_corpus_files) name, in order, on all compute threads; the
// bytes do not depend on their number. Documents without text are left out. A long text file is encoded in
// parts if the encoder knows places to cut it. `progress` is called every few MB; an exception from it ends
// the call and leaves no files.
// The cached file's name holds a hash of the inputs' paths, the tokenizer and the options. It is reused
// immediately if sizes and modification times of all inputs are unchanged; if only times differ, their
// content is hashed and compared. A killed or failed call leaves nothing that a later one takes for complete.
// Another process that makes the same file is waited for.
//
// ConfigError: nothing found, token files among the inputs, add_eos or add_bos without such an id.
// DataError: unreadable lines (FILE:LINE), no text at all.
TokenizeResult tokenize_corpus(
    FileSystem& files, const std::vector<std::string>& inputs, const TextEncoder& encoder,
    const TokenizeOptions& options, const Path& cache_folder,
    FunctionRef<void(const TokenizeProgress&)> progress = [](const TokenizeProgress&) {});

}  // namespace strata::data
