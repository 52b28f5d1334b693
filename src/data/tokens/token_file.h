// A token file on disk, read through a memory map: a headerless FILE.bin (described by FILE.json next to it;
// see token_writer.h), a Megatron FILE.bin + FILE.idx, or a datatrove FILE.ds (+ .ds.index, .ds.metadata).
// Random access is O(1) and allocates nothing; const methods may be called from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/tokens/megatron_index.h"
#include "data/tokens/token_type.h"

namespace strata::data {

// The run's knowledge of its tokens; the entries of a file's FILE.json take precedence.
struct TokenFileOptions {
  int64_t vocab_size = 0;                // the model's; 0: not known. Larger ids are refused when read
  std::optional<int32_t> end_of_text{};  // marks document ends in files without a document table
  bool end_begins = false;       // the same id begins texts, too: of two in a row the second begins one
  std::string tokenizer_hash{};  // empty: not known. A file made with another is refused
};

class TokenFile {
 public:
  // `path` is the .bin or .ds file. Throws ConfigError for a missing file and where the width of the ids
  // cannot be known; DataError for content that contradicts itself.
  explicit TokenFile(const Path& path, const TokenFileOptions& options = {});
  // Ids in memory, as if read from a file; `name` is for messages.
  TokenFile(std::string name, std::vector<int32_t> ids, const TokenFileOptions& options);

  const std::string& name() const { return name_; }
  int64_t tokens() const { return tokens_; }
  TokenType type() const { return type_; }
  int64_t vocab_limit() const { return limit_; }
  std::optional<int32_t> end_of_text() const { return end_of_text_; }
  bool end_begins() const { return end_begins_; }
  // The tokenizer that made the file, as declared by it: FILE.json its hash and vocabulary, a .ds.metadata
  // its name. Empty and 0: not declared.
  const std::string& tokenizer_hash() const { return tokenizer_hash_; }
  const std::string& tokenizer_name() const { return tokenizer_name_; }
  int64_t declared_vocab() const { return declared_vocab_; }

  // ids [begin, begin + n) to out. DataError names file, position, id and limit of an id that is too large.
  void read(int64_t begin, int64_t n, int32_t* out) const;

  // The document table, where the file has one; ends are exclusive, in tokens, and do not fall.
  bool has_documents() const { return table_ != Table::kNone; }
  int64_t documents() const { return documents_; }  // 0 without a table
  int64_t document_end(int64_t d) const;
  int64_t first_document_ending_after(int64_t position) const;

 private:
  enum class Table { kNone, kEnds, kMegatron };
  void open_megatron(const Path& index_path);
  void open_datatrove(const Path& path, const TokenFileOptions& options);
  void open_headerless(const Path& path, const TokenFileOptions& options);
  void open_ends(const Path& path);
  void set_type_from(const TokenFileOptions& options);
  void count_tokens();

  std::string name_;
  MappedFile data_;
  std::vector<int32_t> own_;
  std::span<const std::byte> ids_;  // of data_, or of own_
  MappedFile table_data_;
  MegatronIndex megatron_;
  TokenType type_ = TokenType::kU16;
  Table table_ = Table::kNone;
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
  int64_t limit_ = 0;
  std::optional<int32_t> end_of_text_;
  bool end_begins_ = false;
  std::string tokenizer_hash_, tokenizer_name_;
  int64_t declared_vocab_ = 0;
};

}  // namespace strata::data
