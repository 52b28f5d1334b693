// Writing a token file as a stream: FILE.bin (ids), FILE.documents (the u64 end of each document, exclusive,
// in tokens: the layout of a .ds.index) and FILE.json (what the bytes do not say). They are written under
// other names (*.part) and take their own at the end, FILE.json last: where it stands, the whole set does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/token_meta.h"
#include "data/token_type.h"

namespace strata::data {

class TokenWriter {
 public:
  // `path` ends in .bin. What stands under these names is replaced by finish().
  TokenWriter(FileSystem& files, const Path& path, TokenType type);
  ~TokenWriter();  // without finish(), removes what was written

  // InternalError for an id that the type cannot hold.
  void append(std::span<const int32_t> ids);
  void end_document();

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }

  // Writes FILE.json with `meta` (type and counts are filled in) and the keys of `more`, one JSON object
  // ("" for none), and puts everything in place.
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
  template <typename T>
  void append_as(std::span<const int32_t> ids);

  FileSystem& files_;
  Path path_;
  TokenType type_;
  Output ids_;
  Output ends_;
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
  bool finished_ = false;
};

}  // namespace strata::data
