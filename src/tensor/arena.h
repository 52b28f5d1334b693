// One contiguous block of memory for everything that a program touches: on huge pages where the kernel grants
// them, touched by all compute threads before use, so that no page fault falls into a step.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata {

inline constexpr int64_t kBufferAlignment = 64;  // a cache line, and a full AVX-512 vector

constexpr int64_t align_up(int64_t n, int64_t alignment) {
  return (n + alignment - 1) / alignment * alignment;
}

class Arena {
 public:
  Arena() = default;
  explicit Arena(int64_t bytes);  // zero-filled; WorldError when the machine has not that much memory
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace strata
