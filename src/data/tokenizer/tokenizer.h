// Text to token ids and back, id for id as the library does it that made the file: Hugging Face tokenizers
// for a tokenizer.json, tiktoken for its rank files and for Mistral's tekken.json, SentencePiece for a
// .model.
//
// A Tokenizer is immutable and cheap to copy; all its functions may be called from any number of threads.
// Texts are any bytes: bytes that are not UTF-8 are encoded one by one, and encode followed by decode returns
// every byte if the vocabulary holds all 256 bytes and nothing normalizes the text (SentencePiece takes
// U+FFFD for such bytes). Special tokens of tekken and SentencePiece files are never recognised in text.
// Unsupported parts of a file are refused by name (DataError), never approximated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/text_ends.h"

namespace strata::data {

struct EncodeOptions {
  bool add_special_tokens = false;   // add the post-processor's begin- and end-of-text tokens
  bool parse_added_tokens = true;    // recognise added tokens in the text; false: it is plain text throughout
  bool special_as_text = false;      // of added tokens, recognise only those that are not special
  SpecialCounts* special = nullptr;  // counts special tokens that the text spells out, recognised or not
};

struct DecodeOptions {
  bool skip_special = false;
  bool skip_unknown_ids = false;  // ids without a token give nothing; otherwise they are a DataError
};

class Tokenizer {
 public:
  // The kind is found from the content, and the beginning and end of a text also from the files next to it
  // (text_ends.h). A tiktoken file needs `pattern`, the name of its split (split_preset); no other kind takes
  // one. Missing file, missing or wrong pattern: ConfigError; content that is not a supported tokenizer:
  // DataError.
  static Tokenizer load(const Path& path, std::string_view pattern = {});
  static Tokenizer from_content(std::string content, const std::string& source,  // source: for messages
                                std::string_view pattern = {});
  static Tokenizer from_json(std::string_view json, const std::string& source);

  int64_t vocab_size() const;       // one more than the largest id, added tokens included
  int64_t text_vocab_size() const;  // the same of the ids that any text may give, added tokens left out
  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::string_view id_to_token(int32_t id) const;  // as written in the file; empty for an id without a token
  bool is_special(int32_t id) const;
  bool is_added(int32_t id) const;  // found in a text before the model sees it; special tokens among them

  void encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options = {}) const;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The next place, at or after `from`, to cut a long text without changing its ids (cut.h); text.size() if
  // there is no such place, and always for a tokenizer whose steps may look across any.
  size_t next_cut(std::string_view text, size_t from) const;

  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;       // bytes
  std::string decode_text(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;  // UTF-8
  std::string decode_bytes(int32_t id) const;  // the bytes of a single token

  // What begins and ends a text. The same tokenizer with other ends.
  const TextEnds& ends() const { return *ends_; }
  Tokenizer with_ends(TextEnds ends) const;
  std::optional<int32_t> end_of_text_id() const { return ends_->end; }
  // The ids that add_special_tokens puts before and after a text: those of the post-processor of a
  // tokenizer.json, the begin-of-text token of a tekken or SentencePiece file.
  std::span<const int32_t> prefix_ids() const;
  std::span<const int32_t> suffix_ids() const;
  // A text to continue. It begins as the model's texts do: with the template's tokens, else with ends().begin
  // if the files declare that it is added.
  std::vector<int32_t> encode_prompt(std::string_view text) const;

  uint64_t hash() const;  // of json()
  // The file's bytes, to copy into a checkpoint; of a tiktoken file an equivalent tokenizer.json with its
  // split.
  const std::string& json() const;

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);
  std::string decode_any(std::span<const int32_t> ids, const DecodeOptions& options, bool keep_bytes) const;
  std::shared_ptr<const State> state_;
  std::shared_ptr<const TextEnds> ends_;
};

}  // namespace strata::data
