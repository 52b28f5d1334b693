#include "data/input/byte_stream.h"

#include <bzlib.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"

namespace strata::data {
namespace {

constexpr size_t kInputBytes = 1 << 17;
constexpr size_t kMagicBytes = 6;

// Further than this nothing is looked for in a pipe.
constexpr uint64_t kMostSkipped = uint64_t{16} << 20;

// A frame that zstd and lz4 pass over (RFC 8878, 3.1.2): pzstd begins its files with one. 0: it is none.
uint64_t size_of_skippable(std::string_view frame) {
  constexpr size_t kHeader = 8;
  if (frame.size() < kHeader || (static_cast<uint8_t>(frame[0]) & 0xf0) != 0x50 ||
      frame.substr(1, 3) != "\x2a\x4d\x18")
    return 0;
  uint64_t size = 0;
  for (size_t i = 0; i < 4; ++i) size |= uint64_t{static_cast<uint8_t>(frame[4 + i])} << (8 * i);
  return kHeader + size;
}

// `bytes_at`: up to `count` bytes of the source at an offset, fewer only at its end.
Compression compression_of(FunctionRef<std::string(uint64_t at, size_t count)> bytes_at) {
  const std::string start = bytes_at(0, kMagicBytes);
  if (start.starts_with("\x1f\x8b")) return Compression::kGzip;
  uint64_t at = 0;
  while (const uint64_t size = size_of_skippable(bytes_at(at, 8))) {
    at += size;
    if (at > kMostSkipped) return Compression::kZstd;
  }
  const std::string frame = bytes_at(at, 4);
  if (frame == "\x04\x22\x4d\x18") return Compression::kLz4;
  if (frame == "\x28\xb5\x2f\xfd" || (at > 0 && frame.empty())) return Compression::kZstd;
  if (start == std::string_view("\xFD"
                                "7zXZ\0",
                                6))
    return Compression::kXz;
  // The level is followed by the magic number of a block, or of the end.
  if (start.starts_with("BZh") && (start.ends_with("1A") || start.ends_with("\x17\x72")) && start.size() == 6)
    return Compression::kBzip2;
  return Compression::kNone;
}

// A source whose first bytes were looked at.
class PeekedSource final : public ByteSource {
 public:
  explicit PeekedSource(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}
  // Before the first read().
  std::string peek(uint64_t at, size_t count) {
    const uint64_t end = at + count;
    if (const uint64_t known = head_.size(); known < end) {
      head_.resize(end);
      head_.resize(known + source_->read(head_.data() + known, end - known));
    }
    return at < head_.size() ? head_.substr(at, count) : std::string();
  }
  size_t read(void* out, size_t size) override {
    const size_t peeked = std::min(head_.size() - given_, size);
    std::memcpy(out, head_.data() + given_, peeked);
    given_ += peeked;
    return peeked + source_->read(static_cast<char*>(out) + peeked, size - peeked);
  }
  const std::string& name() const override { return source_->name(); }

 private:
  std::unique_ptr<ByteSource> source_;
  std::string head_;
  size_t given_ = 0;
};

}  // namespace

Compression find_compression(const Path& path) {
  const ReadableFile file(path);
  return compression_of([&](uint64_t at, size_t count) {
    std::string bytes(at < file.size() ? std::min<uint64_t>(count, file.size() - at) : 0, '\0');
    if (!bytes.empty()) file.read_at(at, bytes.data(), bytes.size());
    return bytes;
  });
}

// The stored bytes in order, hashed as they go by.
class ByteStream::Decoder {
 public:
  Decoder(std::unique_ptr<ByteSource> source, Compression compression)
      : source_(std::move(source)), compression_(compression) {}
  virtual ~Decoder() = default;
  virtual size_t read(char* out, size_t size) = 0;
  uint64_t content_hash() const { return hasher_.digest(); }
  int64_t stored_bytes() const { return stored_; }
  size_t salvaged() const { return salvaged_; }
  Compression compression() const { return compression_; }

 protected:
  size_t read_stored(void* out, size_t size) {
    const size_t count = source_->read(out, size);
    hasher_.update(out, count);
    stored_ += static_cast<int64_t>(count);
    return count;
  }
  [[noreturn]] void damaged(const char* what, size_t good) {
    salvaged_ = good;
    throw DataError("[{}] {} near byte {} of the file; copy or compress it again", source_->name(), what,
                    stored_);
  }

 private:
  std::unique_ptr<ByteSource> source_;
  Compression compression_;
  int64_t stored_ = 0;
  size_t salvaged_ = 0;
  Hasher hasher_;
};

class ByteStream::Plain final : public Decoder {
 public:
  explicit Plain(std::unique_ptr<ByteSource> source) : Decoder(std::move(source), Compression::kNone) {}
  size_t read(char* out, size_t size) override { return read_stored(out, size); }
};

class ByteStream::Gzip final : public Decoder {
 public:
  explicit Gzip(std::unique_ptr<ByteSource> source)
      : Decoder(std::move(source), Compression::kGzip), input_(kInputBytes) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }

  size_t read(char* out, size_t size) override {
    size_t done = 0;
    while (done < size) {
      if (stream_.avail_in == 0) {
        const size_t got = read_stored(input_.data(), input_.size());
        stream_.next_in = input_.data();
        stream_.avail_in = static_cast<uInt>(got);
        if (got == 0) {
          if (inside_member_) damaged("the gzip data ends in the middle", done);
          break;
        }
      }
      if (!inside_member_) {
        // Zero bytes may pad the end of the last member.
        if (member_ended_ && *stream_.next_in == 0) {
          ++stream_.next_in;
          --stream_.avail_in;
          continue;
        }
        inflateReset(&stream_);
        inside_member_ = true;
      }
      const size_t capacity = std::min<size_t>(size - done, 1u << 30);
      stream_.next_out = reinterpret_cast<Bytef*>(out + done);
      stream_.avail_out = static_cast<uInt>(capacity);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      done += capacity - stream_.avail_out;
      if (status == Z_STREAM_END) {
        inside_member_ = false;
        member_ended_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        damaged("the gzip data is damaged", done);
      }
    }
    return done;
  }

 private:
  z_stream stream_{};
  std::vector<Bytef> input_;
  bool inside_member_ = false;
  bool member_ended_ = false;
};

class ByteStream::Zstd final : public Decoder {
 public:
  explicit Zstd(std::unique_ptr<ByteSource> source)
      : Decoder(std::move(source), Compression::kZstd), stream_(ZSTD_createDStream()), input_(kInputBytes) {
    if (stream_ == nullptr) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, 31);  // files of `zstd --long=31`
  }
  ~Zstd() override { ZSTD_freeDStream(stream_); }

  size_t read(char* out, size_t size) override {
    ZSTD_outBuffer output{out, size, 0};
    while (output.pos < size) {
      if (pending_.pos == pending_.size) {
        pending_ = {input_.data(), read_stored(input_.data(), input_.size()), 0};
        if (pending_.size == 0) {
          // The decoder's remaining output is available without input.
          const size_t before = output.pos;
          if (inside_frame_) step(output);
          if (output.pos > before) continue;
          if (inside_frame_) damaged("the zstd data ends in the middle", output.pos);
          break;
        }
      }
      step(output);
    }
    return output.pos;
  }

 private:
  void step(ZSTD_outBuffer& output) {
    const size_t left = ZSTD_decompressStream(stream_, &output, &pending_);
    if (ZSTD_isError(left)) damaged("the zstd data is damaged", output.pos);
    inside_frame_ = left != 0;
  }

  ZSTD_DStream* stream_;
  std::vector<char> input_;
  ZSTD_inBuffer pending_{nullptr, 0, 0};
  bool inside_frame_ = false;
};

class ByteStream::Lz4 final : public Decoder {
 public:
  explicit Lz4(std::unique_ptr<ByteSource> source)
      : Decoder(std::move(source), Compression::kLz4), input_(kInputBytes) {
    if (LZ4F_isError(LZ4F_createDecompressionContext(&stream_, LZ4F_VERSION))) throw std::bad_alloc();
  }
  ~Lz4() override { LZ4F_freeDecompressionContext(stream_); }

  size_t read(char* out, size_t size) override {
    size_t done = 0;
    while (done < size) {
      const bool ended = pending_.empty() && !fill();
      size_t got = size - done, taken = pending_.size();
      const size_t left = LZ4F_decompress(stream_, out + done, &got, pending_.data(), &taken, nullptr);
      done += got;
      if (LZ4F_isError(left)) damaged("the lz4 data is damaged", done);
      pending_.remove_prefix(taken);
      // Between frames it asks for the next one's header, and has taken none of it.
      if (taken > 0 || got > 0) inside_frame_ = left != 0;
      if (ended && got == 0) {
        if (inside_frame_) damaged("the lz4 data ends in the middle", done);
        break;
      }
    }
    return done;
  }

 private:
  bool fill() {
    pending_ = {input_.data(), read_stored(input_.data(), input_.size())};
    return !pending_.empty();
  }

  LZ4F_dctx* stream_ = nullptr;
  std::vector<char> input_;
  std::string_view pending_;
  bool inside_frame_ = false;
};

// Streams of bzip2 one after the other, as `pbzip2` and `cat` make them.
class ByteStream::Bzip2 final : public Decoder {
 public:
  explicit Bzip2(std::unique_ptr<ByteSource> source)
      : Decoder(std::move(source), Compression::kBzip2), input_(kInputBytes) {}
  ~Bzip2() override { end(); }

  size_t read(char* out, size_t size) override {
    size_t done = 0;
    while (done < size) {
      if (stream_.avail_in == 0) {
        stream_.next_in = input_.data();
        stream_.avail_in = static_cast<unsigned>(read_stored(input_.data(), input_.size()));
        if (stream_.avail_in == 0) {
          if (inside_) damaged("the bzip2 data ends in the middle", done);
          break;
        }
      }
      if (!inside_) begin();
      const size_t capacity = std::min<size_t>(size - done, 1u << 30);
      stream_.next_out = out + done;
      stream_.avail_out = static_cast<unsigned>(capacity);
      const int status = BZ2_bzDecompress(&stream_);
      done += capacity - stream_.avail_out;
      if (status == BZ_STREAM_END)
        end();
      else if (status != BZ_OK)
        damaged("the bzip2 data is damaged", done);
    }
    return done;
  }

 private:
  void begin() {
    if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw std::bad_alloc();
    inside_ = true;
  }
  void end() {
    if (std::exchange(inside_, false)) BZ2_bzDecompressEnd(&stream_);
  }

  bz_stream stream_{};
  std::vector<char> input_;
  bool inside_ = false;
};

class ByteStream::Xz final : public Decoder {
 public:
  explicit Xz(std::unique_ptr<ByteSource> source)
      : Decoder(std::move(source), Compression::kXz), input_(kInputBytes) {
    if (lzma_stream_decoder(&stream_, UINT64_MAX, LZMA_CONCATENATED) != LZMA_OK) throw std::bad_alloc();
  }
  ~Xz() override { lzma_end(&stream_); }

  size_t read(char* out, size_t size) override {
    stream_.next_out = reinterpret_cast<uint8_t*>(out);
    stream_.avail_out = size;
    const auto done = [&] { return size - stream_.avail_out; };
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0 && !all_read_) {
        stream_.next_in = input_.data();
        stream_.avail_in = read_stored(input_.data(), input_.size());
        all_read_ = stream_.avail_in == 0;
      }
      const lzma_ret status = lzma_code(&stream_, all_read_ ? LZMA_FINISH : LZMA_RUN);
      ended_ = status == LZMA_STREAM_END;
      if (status == LZMA_BUF_ERROR) damaged("the xz data ends in the middle", done());
      if (status == LZMA_MEM_ERROR) throw std::bad_alloc();
      if (!ended_ && status != LZMA_OK) damaged("the xz data is damaged", done());
    }
    return done();
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  std::vector<uint8_t> input_;
  bool all_read_ = false;
  bool ended_ = false;
};

std::unique_ptr<ByteStream::Decoder> ByteStream::make_decoder(std::unique_ptr<ByteSource> source,
                                                              Compression compression) {
  switch (compression) {
    case Compression::kNone:
      return std::make_unique<Plain>(std::move(source));
    case Compression::kGzip:
      return std::make_unique<Gzip>(std::move(source));
    case Compression::kZstd:
      return std::make_unique<Zstd>(std::move(source));
    case Compression::kLz4:
      return std::make_unique<Lz4>(std::move(source));
    case Compression::kBzip2:
      return std::make_unique<Bzip2>(std::move(source));
    case Compression::kXz:
      return std::make_unique<Xz>(std::move(source));
  }
  STRATA_CHECK(false, "compression {}", static_cast<int>(compression));
  return nullptr;
}

ByteStream::ByteStream(const Path& path, Compression compression)
    : ByteStream(open_source(path), compression) {}
ByteStream::ByteStream(std::unique_ptr<ByteSource> source, Compression compression)
    : decoder_(make_decoder(std::move(source), compression)) {}
ByteStream::ByteStream(std::unique_ptr<ByteSource> source) {
  auto peeked = std::make_unique<PeekedSource>(std::move(source));
  const Compression compression =
      compression_of([&](uint64_t at, size_t count) { return peeked->peek(at, count); });
  decoder_ = make_decoder(std::move(peeked), compression);
}
ByteStream::~ByteStream() = default;
ByteStream::ByteStream(ByteStream&&) noexcept = default;

size_t ByteStream::read(char* out, size_t size) {
  return decoder_->read(out, size);
}
std::string ByteStream::read_all() {
  constexpr size_t kChunk = size_t{1} << 20;
  std::string content;
  for (;;) {
    const size_t before = content.size();
    content.resize(before + kChunk);
    const size_t got = read(content.data() + before, kChunk);
    content.resize(before + got);
    if (got < kChunk) return content;
  }
}
uint64_t ByteStream::content_hash() const {
  return decoder_->content_hash();
}
int64_t ByteStream::stored_bytes() const {
  return decoder_->stored_bytes();
}
size_t ByteStream::salvaged() const {
  return decoder_->salvaged();
}
Compression ByteStream::compression() const {
  return decoder_->compression();
}

}  // namespace strata::data
