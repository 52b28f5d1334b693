#include "data/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"

namespace strata::data {
namespace {

constexpr size_t kInputBytes = 1 << 17;

}  // namespace

Compression find_compression(const Path& path) {
  const ReadableFile file(path);
  std::array<unsigned char, 4> head{};
  if (file.size() >= 4) file.read_at(0, head.data(), 4);
  if (head[0] == 0x1f && head[1] == 0x8b) return Compression::kGzip;
  if (head == std::array<unsigned char, 4>{0x28, 0xb5, 0x2f, 0xfd}) return Compression::kZstd;
  return Compression::kNone;
}

// The stored bytes in order, hashed as they go by.
class ByteStream::Decoder {
 public:
  explicit Decoder(const Path& path) : file_(path) {}
  virtual ~Decoder() = default;
  virtual size_t read(char* out, size_t size) = 0;
  uint64_t content_hash() const { return hasher_.digest(); }
  int64_t stored_bytes() const { return static_cast<int64_t>(offset_); }

 protected:
  size_t read_stored(void* out, size_t size) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(size, file_.size() - offset_));
    file_.read_at(offset_, out, count);
    hasher_.update(out, count);
    offset_ += count;
    return count;
  }
  [[noreturn]] void damaged(const char* what) const {
    throw DataError("[{}] {} near byte {} of the file; copy or compress it again", file_.path().string(),
                    what, offset_);
  }

 private:
  ReadableFile file_;
  uint64_t offset_ = 0;
  Hasher hasher_;
};

class ByteStream::Plain final : public Decoder {
 public:
  using Decoder::Decoder;
  size_t read(char* out, size_t size) override { return read_stored(out, size); }
};

class ByteStream::Gzip final : public Decoder {
 public:
  explicit Gzip(const Path& path) : Decoder(path), input_(kInputBytes) {
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
          if (inside_member_) damaged("the gzip data ends in the middle");
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
      const size_t room = std::min<size_t>(size - done, 1u << 30);
      stream_.next_out = reinterpret_cast<Bytef*>(out + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (status == Z_STREAM_END) {
        inside_member_ = false;
        member_ended_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        damaged("the gzip data is damaged");
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
  explicit Zstd(const Path& path) : Decoder(path), stream_(ZSTD_createDStream()), input_(kInputBytes) {
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
          // What the decoder still holds comes out without input.
          const size_t before = output.pos;
          if (inside_frame_) step(output);
          if (output.pos > before) continue;
          if (inside_frame_) damaged("the zstd data ends in the middle");
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
    if (ZSTD_isError(left)) damaged("the zstd data is damaged");
    inside_frame_ = left != 0;
  }

  ZSTD_DStream* stream_;
  std::vector<char> input_;
  ZSTD_inBuffer pending_{nullptr, 0, 0};
  bool inside_frame_ = false;
};

ByteStream::ByteStream(const Path& path, Compression compression) {
  switch (compression) {
    case Compression::kNone:
      decoder_ = std::make_unique<Plain>(path);
      break;
    case Compression::kGzip:
      decoder_ = std::make_unique<Gzip>(path);
      break;
    case Compression::kZstd:
      decoder_ = std::make_unique<Zstd>(path);
      break;
  }
}
ByteStream::~ByteStream() = default;
ByteStream::ByteStream(ByteStream&&) noexcept = default;

size_t ByteStream::read(char* out, size_t size) {
  return decoder_->read(out, size);
}
uint64_t ByteStream::content_hash() const {
  return decoder_->content_hash();
}
int64_t ByteStream::stored_bytes() const {
  return decoder_->stored_bytes();
}

}  // namespace strata::data
