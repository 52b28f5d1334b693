#include "data/input/input_window.h"

#include <cstring>

#include "base/error.h"

namespace strata::data {
namespace {

constexpr size_t kReadBytes = size_t{1} << 18;

}  // namespace

InputWindow::InputWindow(ByteStream stream)
    : stream_(std::move(stream)), buffer_(new char[2 * kReadBytes + kPadding]), capacity_(2 * kReadBytes) {
  std::memset(buffer_.get(), 0, kPadding);
}

bool InputWindow::fill() {
  if (ended_) return false;
  const size_t kept = end_ - begin_;
  if (begin_ > 0 && capacity_ - end_ < kReadBytes) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, kept);
    begin_ = 0;
    end_ = kept;
  }
  if (capacity_ - end_ < kReadBytes) {
    capacity_ *= 2;
    std::unique_ptr<char[]> larger(new char[capacity_ + kPadding]);
    std::memcpy(larger.get(), buffer_.get() + begin_, kept);
    buffer_ = std::move(larger);
    begin_ = 0;
    end_ = kept;
  }
  size_t got = 0;
  try {
    got = stream_.read(buffer_.get() + end_, kReadBytes);
    ended_ = got < kReadBytes;
  } catch (const DataError& error) {
    got = stream_.salvaged();
    ended_ = true;
    damage_ = error.what();
  }
  end_ += got;
  std::memset(buffer_.get() + end_, 0, kPadding);
  return got > 0;
}

}  // namespace strata::data
