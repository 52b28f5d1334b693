// The bytes of a file from first to last, decompressed on the way: gzip, zstd, lz4, bzip2 or xz (each of
// several members, frames or streams) or plain. Memory is bounded by the codec's window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/hash.h"
#include "data/input/byte_source.h"
#include "data/input/corpus_files.h"

namespace strata::data {

// Determined by the first bytes, not by the name; frames that zstd and lz4 skip, as pzstd writes them, are
// passed over.
Compression find_compression(const Path& path);

class ByteStream {
 public:
  ByteStream(const Path& path, Compression compression);  // missing or unreadable: ConfigError
  ByteStream(std::unique_ptr<ByteSource> source, Compression compression);
  explicit ByteStream(std::unique_ptr<ByteSource> source);  // the compression from the first bytes
  ~ByteStream();
  ByteStream(ByteStream&&) noexcept;

  // Fills up to `size` bytes; fewer only at the end. DataError for damaged or cut compressed data: salvaged()
  // bytes before the damage are in `out` then.
  size_t read(char* out, size_t size);
  size_t salvaged() const;
  std::string read_all();

  // XXH3 of the stored (compressed) bytes that were read; of the whole file once read() has met the end.
  uint64_t content_hash() const;
  int64_t stored_bytes() const;  // read so far
  Compression compression() const;

 private:
  class Decoder;
  class Plain;
  class Gzip;
  class Zstd;
  class Lz4;
  class Bzip2;
  class Xz;
  static std::unique_ptr<Decoder> make_decoder(std::unique_ptr<ByteSource> source, Compression compression);
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace strata::data
