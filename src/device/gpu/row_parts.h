// Rows and their consecutive parts, as a part of ops' kernels on a GPU.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_plain.h"

namespace strata::device {

// The widest unit of a copy that divides all of these numbers of bytes.
inline int64_t unit_of_copies(std::initializer_list<int64_t> bytes) {
  int64_t all = 16;
  for (const int64_t one : bytes) all = std::gcd(all, one);
  return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 2;
}

class GpuRowParts {
 public:
  // Elements of a part: where it begins in a row of the whole, its width, and the stride of its rows.
  struct Part {
    int64_t first, width, stride;
  };
  GpuRowParts(DType dtype, int64_t rows, int64_t stride, const std::vector<Part>& parts) {
    const int64_t size = size_of(dtype);
    int64_t unit = unit_of_copies({stride * size});
    for (const Part& part : parts)
      unit = std::min(unit, unit_of_copies({part.first * size, part.width * size, part.stride * size}));
    args_.stride = stride * size / unit;
    args_.count = static_cast<int32_t>(parts.size());
    int64_t width = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      args_.parts[i] = {nullptr, parts[i].stride * size / unit,
                        static_cast<int32_t>(parts[i].first * size / unit),
                        static_cast<int32_t>(parts[i].width * size / unit)};
      width += args_.parts[i].width;
    }
    kernel_ = gpu::row_parts(unit, rows, width);
  }

  // `at`: the parts, in their order.
  void join(const Launch& launch, void* whole, std::initializer_list<const void*> at) const {
    run(launch, args_, whole, at);
  }
  void split(const Launch& launch, const void* whole, std::initializer_list<void*> at) const {
    gpu::RowPartsArgs args = args_;
    args.split = 1;
    run(launch, args, const_cast<void*>(whole), at);  // only read
  }
  // Into rows of entries of a cache of `capacity` rows, from the position of each sequence of `length` on.
  void store(const Launch& launch, void* cache, std::initializer_list<const void*> at, const int32_t* entries,
             const int32_t* position, int64_t length, int64_t capacity) const {
    gpu::RowPartsArgs args = args_;
    args.entries = entries;
    args.position = position;
    args.length = static_cast<int32_t>(length);
    args.capacity = static_cast<int32_t>(capacity);
    run(launch, args, cache, at);
  }

 private:
  template <typename Pointer>
  void run(const Launch& launch, gpu::RowPartsArgs args, void* whole,
           std::initializer_list<Pointer> at) const {
    args.whole = whole;
    size_t i = 0;
    for (const Pointer part : at) args.parts[i++].at = const_cast<void*>(static_cast<const void*>(part));
    start(launch, kernel_, args);
  }

  gpu::RowPartsArgs args_{};
  gpu::KernelLaunch kernel_;
};

}  // namespace strata::device
