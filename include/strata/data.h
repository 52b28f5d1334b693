// Data builds, from raw text to token files, and tokenizers.
//
// Threads: build_data uses the threads that the recipe asks for and returns when they have ended; its callbacks are
// called from one of them at a time. Two builds of a process may run at the same time in different folders. A Tokenizer
// is immutable; threads may share it. Ownership: values. Errors: kConfig for a recipe, with all errors in one message,
// and for a folder that holds another build; kData as the recipe's on_error asks, and for a tokenizer's file; kWorld for
// disks and files. Stability: recipes are those of docs/data.md; members may be added to the structs within 0.x.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/error.h"

namespace strata {

struct BuildProgress {
  std::string phase;       // "reading and filtering", …
  std::int64_t done = 0;   // bytes of this phase
  std::int64_t total = 0;  // 0: not known
  bool finished = false;   // the last report of the phase
};

struct BuildOptions {
  std::vector<std::string> sets = {};  // KEY=VALUE over the recipe, with values in TOML
  std::string memory_limit = "auto";   // or a size such as "8GiB"
  bool overwrite = false;              // replace another recipe's result in the same folder
  std::function<void(const BuildProgress&)> progress = {};  // a few times a second
  std::function<bool()> stop = {};                          // true: stop soon; the next call resumes
  Log log = {};
};

struct BuildReport {
  bool finished = false;  // false: stopped on request
  bool reused = false;    // the folder held this result already
  std::string folder;     // of the result; what data.build and Config::for_texts take
  std::int64_t documents_read = 0, documents_kept = 0;
  std::int64_t bytes_kept = 0;  // of text
  std::int64_t tokens = 0;      // 0: the recipe writes none
  double seconds = 0;
  std::string json;  // as `strata data build --json` prints it
};

// Builds `recipe`, a RECIPE.toml. A build that was stopped or killed resumes.
STRATA_API BuildReport build_data(const std::string& recipe, const BuildOptions& options = {});

class STRATA_API Tokenizer {
 public:
  // A tokenizer.json, tiktoken rank file, tekken.json or SentencePiece model, or a folder with a tokenizer.json.
  static Tokenizer open(const std::string& path);

  std::int64_t vocab_size() const;
  // Added tokens in the text are recognized. `special`: with the tokens that the file adds around a text.
  std::vector<std::int32_t> encode(std::string_view text, bool special = false) const;
  // Bytes that are not UTF-8 become U+FFFD. `special`: special tokens keep their text.
  std::string decode(std::span<const std::int32_t> ids, bool special = true) const;

  struct Impl;  // internal
  explicit Tokenizer(std::shared_ptr<const Impl> impl);

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace strata
