#include "data/build/output_file.h"

#include <zlib.h>
#include <zstd.h>

#include <new>

#include "base/error.h"

namespace strata::data {

class OutputFile::Encoder {
 public:
  virtual ~Encoder() = default;
  // Appends to `out`; `last`: with the format's trailer.
  virtual void encode(std::string_view in, bool last, std::string& out) = 0;
};

class OutputFile::Gzip final : public Encoder {
 public:
  Gzip() {
    // A header without name and time: the same content yields the same bytes.
    if (deflateInit2(&stream_, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { deflateEnd(&stream_); }
  void encode(std::string_view in, bool last, std::string& out) override {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in.size());
    do {
      const size_t before = out.size();
      out.resize(before + kRoom);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + before);
      stream_.avail_out = kRoom;
      STRATA_CHECK(deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH) != Z_STREAM_ERROR, "deflate");
      out.resize(before + kRoom - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }

 private:
  static constexpr uInt kRoom = 1u << 18;
  z_stream stream_{};
};

class OutputFile::Zstd final : public Encoder {
 public:
  Zstd() : stream_(ZSTD_createCStream()) {
    if (stream_ == nullptr) throw std::bad_alloc();
    ZSTD_CCtx_setParameter(stream_, ZSTD_c_compressionLevel, 3);
    ZSTD_CCtx_setParameter(stream_, ZSTD_c_checksumFlag, 1);
  }
  ~Zstd() override { ZSTD_freeCStream(stream_); }
  void encode(std::string_view in, bool last, std::string& out) override {
    ZSTD_inBuffer input{in.data(), in.size(), 0};
    size_t left = 1;
    while (input.pos < input.size || (last && left != 0)) {
      const size_t before = out.size();
      out.resize(before + kRoom);
      ZSTD_outBuffer output{out.data() + before, kRoom, 0};
      left = ZSTD_compressStream2(stream_, &output, &input, last ? ZSTD_e_end : ZSTD_e_continue);
      STRATA_CHECK(!ZSTD_isError(left), "zstd: {}", ZSTD_getErrorName(left));
      out.resize(before + output.pos);
    }
  }

 private:
  static constexpr size_t kRoom = size_t{1} << 18;
  ZSTD_CStream* stream_;
};

OutputFile::OutputFile(FileSystem& files, const Path& path, const std::string& compression)
    : files_(&files), path_(path), part_(path.string() + ".part") {
  files.create_directories(path.parent_path());
  file_ = files.open_for_writing(part_);
  if (compression == "gz") {
    encoder_ = std::make_unique<Gzip>();
  } else if (compression == "zst") {
    encoder_ = std::make_unique<Zstd>();
  } else {
    STRATA_CHECK(compression.empty(), "compression {}", compression);
  }
  buffer_.reserve(kBufferBytes + kBufferBytes / 4);
}

OutputFile::OutputFile(OutputFile&&) noexcept = default;

OutputFile::~OutputFile() {
  if (!file_) return;
  try {
    file_.reset();
    files_->remove(part_);
  } catch (const Error&) {
    // The error that ended the build is the one to report.
  }
}

void OutputFile::flush() {
  if (encoder_) {
    encoded_.clear();
    encoder_->encode(buffer_, false, encoded_);
    file_->append(encoded_);
  } else {
    file_->append(buffer_);
  }
  buffer_.clear();
}

void OutputFile::finish() {
  flush();
  if (encoder_) {
    encoded_.clear();
    encoder_->encode({}, true, encoded_);
    file_->append(encoded_);
  }
  file_->sync();
  file_->close();
  files_->rename(part_, path_);
  file_.reset();
}

}  // namespace strata::data
