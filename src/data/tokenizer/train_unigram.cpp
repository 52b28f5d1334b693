#include "data/tokenizer/train_unigram.h"

#include "base/error.h"

#if STRATA_WITH_SENTENCEPIECE

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "data/tokenizer/json_writer.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

constexpr size_t kLongestSentence = 16384;  // bytes; longer lines are cut

// Lines as the library takes them. Bytes that are not UTF-8 become U+FFFD, as the library would have it.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(TextSource texts) : texts_(texts) { Next(); }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    while (text_.empty()) {
      if (!texts_(text_)) {
        done_ = true;
        return;
      }
      bytes_ += static_cast<int64_t>(text_.size());
    }
    size_t size = std::min(text_.find('\n'), text_.size());
    size_t taken = std::min(size + 1, text_.size());
    if (size > kLongestSentence) {
      size = utf8_prefix(text_, kLongestSentence).size();
      taken = size;
    }
    line_ = replace_invalid_utf8(text_.substr(0, size));
    text_.remove_prefix(taken);
  }
  int64_t bytes() const { return bytes_; }

 private:
  TextSource texts_;
  std::string_view text_;
  std::string line_;
  int64_t bytes_ = 0;
  bool done_ = false;
};

std::string joined(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& token : tokens) {
    if (token.empty() || token.find(',') != token.npos) {
      throw ConfigError("[tokenizer] found the special token '{}', expected text without a comma", token);
    }
    out += (out.empty() ? "" : ",") + token;
  }
  return out;
}

}  // namespace

bool can_train_unigram() {
  return true;
}

TrainedUnigram train_unigram(TextSource texts, const UnigramOptions& options) {
  const int64_t least = 257 + static_cast<int64_t>(options.special_tokens.size());
  if (options.vocab_size <= least) {
    throw ConfigError(
        "[tokenizer] found a vocabulary size of {}, expected more than {} (<unk>, all bytes, special tokens)",
        options.vocab_size, least);
  }
  std::unordered_map<std::string, std::string> settings = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(options.vocab_size)},
      {"hard_vocab_limit", "false"},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"max_sentence_length", std::to_string(kLongestSentence + 1)},
      {"unk_id", "0"},
      {"bos_id", "-1"},
      {"eos_id", "-1"},
      {"num_threads", "8"},  // the sums depend on it
      {"minloglevel", "2"}};
  if (!options.special_tokens.empty()) settings["control_symbols"] = joined(options.special_tokens);
  Sentences sentences(texts);
  if (sentences.done())
    throw DataError("[tokenizer] the training text is empty; give files with text in them");
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &sentences, &model);
  if (!status.ok()) throw DataError("[tokenizer] SentencePiece could not train: {}", status.ToString());
  sentencepiece::SentencePieceProcessor processor;
  if (const auto loaded = processor.LoadFromSerializedProto(model); !loaded.ok()) {
    throw InternalError("[tokenizer] SentencePiece does not read its own model: {}", loaded.ToString());
  }
  std::vector<ScoredToken> tokens;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    tokens.push_back({processor.IdToPiece(id), static_cast<double>(processor.GetScore(id))});
  }
  return {.json = write_unigram_json(tokens, 1 + options.special_tokens.size()),
          .vocab_size = processor.GetPieceSize(),
          .bytes = sentences.bytes()};
}

}  // namespace strata::data

#else

namespace strata::data {

bool can_train_unigram() {
  return false;
}

TrainedUnigram train_unigram(TextSource, const UnigramOptions&) {
  throw ConfigError(
      "[tokenizer] a unigram model is trained by the SentencePiece library, which this program was built "
      "without; "
      "install libsentencepiece-dev and build again, or train a bpe model");
}

}  // namespace strata::data

#endif
