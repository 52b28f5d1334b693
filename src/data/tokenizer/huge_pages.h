// Vectors of many megabytes on huge pages: randomly accessed tables miss the TLB far less, and a first touch
// costs one page fault for 2 MiB. Ordinary pages if the system has no huge ones.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace strata::data {

template <typename T>
struct HugePageAllocator {
  using value_type = T;
  static constexpr size_t kPage = size_t{1} << 21;  // smaller blocks than this are ordinary ones

  HugePageAllocator() = default;
  template <typename Other>
  HugePageAllocator(const HugePageAllocator<Other>&) {
  }  // NOLINT(google-explicit-constructor): as allocators are

  T* allocate(size_t n) {
    if (n >= kTooMany) throw std::bad_array_new_length();
    const size_t bytes = n * sizeof(T);
    if (bytes < kPage) return static_cast<T*>(::operator new(bytes));
    void* block = ::operator new(bytes, std::align_val_t(kPage));
    ::madvise(block, bytes, MADV_HUGEPAGE);
    return static_cast<T*>(block);
  }
  void deallocate(T* block, size_t n) {
    if (n * sizeof(T) < kPage) return ::operator delete(block);
    ::operator delete(block, std::align_val_t(kPage));
  }
  bool operator==(const HugePageAllocator&) const { return true; }

 private:
  static constexpr size_t kTooMany = ~size_t{0} / 2 / sizeof(T);
};

template <typename T>
using HugeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace strata::data
