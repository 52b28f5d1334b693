// The part of the CUDA driver API that the benchmark needs, loaded at run time. A failed call ends the
// program and prints the call's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/gpu/launch.h"

namespace strata::gpu_bench {

class Driver {
 public:
  // `kernels`: the folder with the modules' machine code (NAME.cubin).
  explicit Driver(std::string kernels);

  const std::string& name() const { return name_; }
  const gpu::GpuTraits& traits() const { return traits_; }

  template <typename T = void>
  T* allocate(int64_t bytes) {
    return static_cast<T*>(allocate_bytes(bytes));
  }
  void keep_all() { allocations_.clear(); }
  void free_all();  // everything allocated since the last call
  void fill(void* to, unsigned char value, int64_t bytes);
  void read(void* to, const void* from, int64_t bytes);
  void write(void* to, const void* from, int64_t bytes);
  void copy(void* to, const void* from, int64_t bytes);
  void synchronize();

  template <typename Args>
  void launch(const gpu::KernelLaunch& call, const Args& args) {
    Args copy = args;
    launch_raw(call, &copy);
  }

  gpu::TensorMap tensor_map(const gpu::MatrixMap& map, const void* matrix);

  // Median time of `work` in microseconds, by events, with the last-level cache flushed before each run.
  double time(const std::function<void()>& work, int runs = 9);

 private:
  struct Calls;
  void* allocate_bytes(int64_t bytes);
  void launch_raw(const gpu::KernelLaunch& call, void* args);
  void* function(const gpu::KernelLaunch& call);

  std::string kernels_, name_;
  gpu::GpuTraits traits_;
  Calls* calls_;
  std::map<std::string, void*> modules_, functions_;
  std::map<std::string, uint32_t> shared_;
  std::vector<void*> allocations_;
  void* flush_ = nullptr;
};

}  // namespace strata::gpu_bench
