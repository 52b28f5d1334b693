// A fixed number of plain values for every document or line of a corpus: in memory if they fit a budget, else
// in a mapped file of the scratch folder, so that the kernel may write them out. All bytes are 0 at first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/file.h"

namespace strata::data::dedup {

// What an array or a sorter may take of the memory limit, and where the rest goes.
struct Scratch {
  FileSystem* files = nullptr;
  Path folder;
  int64_t memory = 0;  // bytes; every user keeps to this and knows nothing of the others
};

class ScratchBytes {
 public:
  ScratchBytes(const Scratch& scratch, std::string_view name, uint64_t bytes);
  ~ScratchBytes();
  ScratchBytes(const ScratchBytes&) = delete;
  ScratchBytes& operator=(const ScratchBytes&) = delete;
  std::byte* data() { return data_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_;
  bool mapped_ = false;
  std::unique_ptr<std::byte[]> owned_;
};

template <typename T>
class ScratchArray {
 public:
  ScratchArray(const Scratch& scratch, std::string_view name, uint64_t size)
      : bytes_(scratch, name, size * sizeof(T)), size_(size) {}
  T& operator[](uint64_t i) { return reinterpret_cast<T*>(bytes_.data())[i]; }
  uint64_t size() const { return size_; }

 private:
  ScratchBytes bytes_;
  uint64_t size_;
};

}  // namespace strata::data::dedup
