// Writes a token file as a stream, in the layout of this program, of Megatron or of datatrove:
//   kStrata     FILE.bin (ids), FILE.documents (the u64 end of each document, exclusive, in tokens) and
//               FILE.json (the facts that the bytes do not contain)
//   kMegatron   FILE.bin and FILE.idx (megatron_index.h), a document a sequence
//   kDatatrove  FILE.ds, FILE.ds.index (as FILE.documents) and FILE.ds.metadata (tokenizer, width, count)
// They are written under temporary names (*.part) and renamed at the end, the file that describes the ids
// last: if it exists, the set is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/tokens/token_meta.h"
#include "data/tokens/token_type.h"

namespace strata::data {

enum class TokenFormat { kStrata, kMegatron, kDatatrove };

// "strata", "megatron" and "datatrove".
std::string_view token_format_name(TokenFormat format);
// ".bin" or ".ds".
std::string_view token_format_extension(TokenFormat format);
// The type that the format's own writers choose for a vocabulary: u16 up to 65,536 ids, or 65,499 with
// Megatron, then u32, or i32 with Megatron.
TokenType token_type_for(int64_t vocab_size, TokenFormat format);

// "1.23 kT": a count as .ds.metadata shows it to people.
std::string datatrove_count(int64_t tokens);

// Megatron keeps the lengths of documents in 32 bits.
inline constexpr int64_t kLongestMegatronDocument = (int64_t{1} << 31) - 1;

class TokenWriter {
 public:
  // `path` ends as the format requires. finish() replaces existing files of these names.
  TokenWriter(FileSystem& files, const Path& path, TokenType type, TokenFormat format = TokenFormat::kStrata);
  ~TokenWriter();  // without finish(), removes the partial files

  // InternalError for an id that the type cannot hold.
  void append(std::span<const int32_t> ids);
  // DataError for a document that the format cannot hold.
  void end_document();

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }

  // Writes what describes the ids: of kStrata `meta` (type and counts are filled in) and the keys of `more`,
  // one JSON object ("" for none); of kDatatrove the tokenizer's name. Puts everything in place.
  void finish(TokenMeta meta, const std::string& more);

 private:
  struct Output {
    Path path;
    Path part;
    std::unique_ptr<WritableFile> file;
    std::vector<char> buffer;
  };
  Output open(const Path& path);
  static void flush(Output& output);
  void write_index();
  void put_in_place(const Path& description, const std::string& content);
  template <typename T>
  void append_as(std::span<const int32_t> ids);

  FileSystem& files_;
  Path path_;
  TokenType type_;
  TokenFormat format_;
  Output ids_;
  Output ends_;
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
  int64_t document_begin_ = 0;
  bool finished_ = false;
};

}  // namespace strata::data
