#include "tensor/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"

namespace strata {
namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;
}

Arena::Arena(int64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  // The kernel overcommits memory and kills the process that touches too much of it.
  if (const int64_t there = holdable_memory(); there > 0 && bytes > there) {
    throw WorldError(
        "[memory] the program needs {} and {} are free {}; take a smaller model, a smaller "
        "batch "
        "or a shorter sequence, or end other programs",
        human_bytes(static_cast<double>(bytes)), human_bytes(static_cast<double>(there)),
        where_memory_ends());
  }
  // Aligned by hand to a huge page: mmap aligns to 4 KiB only. The surplus is never touched.
  const auto reserve = static_cast<size_t>(align_up(bytes, 4096) + kHugePage);
  void* raw =
      ::mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    throw WorldError(
        "[arena] the program needs {} of memory and the machine refused: {}; lower memory.budget, "
        "training.micro_batch_size or training.sequence_length",
        human_bytes(static_cast<double>(bytes)), std::strerror(errno));
  }
  const auto address = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (address + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > address) ::munmap(raw, aligned - address);
  data_ = reinterpret_cast<std::byte*>(aligned);
  const uintptr_t end = aligned + static_cast<uintptr_t>(align_up(bytes, 4096));
  if (address + reserve > end) ::munmap(reinterpret_cast<void*>(end), address + reserve - end);
  ::madvise(data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  parallel_ranges(bytes, kHugePage, [&](int64_t begin, int64_t to) {
    for (int64_t at = begin; at < to; at += 4096) data_[at] = std::byte{0};
  });
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(align_up(size_, 4096)));
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace strata
