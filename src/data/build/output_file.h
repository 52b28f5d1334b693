// A file that a build writes: buffered, compressed where asked for, under another name until it is whole.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace strata::data {

class OutputFile {
 public:
  // `compression`: "", "gz" or "zst". Missing folders are made.
  OutputFile(FileSystem& files, const Path& path, const std::string& compression = "");
  ~OutputFile();  // without finish(), removes the partial file
  OutputFile(OutputFile&&) noexcept;

  void append(std::string_view bytes) {
    buffer_.append(bytes);
    if (buffer_.size() >= kBufferBytes) flush();
  }
  std::string& buffer() { return buffer_; }  // to append to in place; call flush_if_full() afterwards
  void flush_if_full() {
    if (buffer_.size() >= kBufferBytes) flush();
  }
  // Writes the rest, syncs and renames the file to its final name.
  void finish();

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 20;
  class Encoder;
  class Gzip;
  class Zstd;
  void flush();

  FileSystem* files_;
  Path path_, part_;
  std::unique_ptr<WritableFile> file_;
  std::unique_ptr<Encoder> encoder_;  // none: not compressed
  std::string buffer_, encoded_;
};

}  // namespace strata::data
