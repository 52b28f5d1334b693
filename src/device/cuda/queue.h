// A device's kernels: their stream, and the code that has been loaded.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "device/cuda/progress.h"
#include "device/cuda/resources.h"
#include "device/gpu/queue.h"

namespace strata::device {

// The GPU code that this process has loaded. Used by one thread.
class KernelModules {
 public:
  explicit KernelModules(const cuda::Card& card) : card_(card) {}
  ~KernelModules();
  KernelModules(const KernelModules&) = delete;
  KernelModules& operator=(const KernelModules&) = delete;

  // Ready for launches with as much shared memory. WorldError if the driver does not accept the code.
  cuda::Function function_of(const gpu::KernelLaunch& kernel);

 private:
  cuda::Module module_of(const std::string& name);

  struct Loaded {
    cuda::Function function = nullptr;
    uint32_t shared_bytes = 48 * 1024;  // what every kernel may have
  };
  const cuda::Card& card_;
  std::unordered_map<std::string, cuda::Module> modules_;
  std::unordered_map<std::string, Loaded> functions_;
};

// One thread starts work; several may wait for it.
class CudaQueue final : public GpuQueue {
 public:
  explicit CudaQueue(const cuda::Card& card) : card_(card), stream_(card), progress_(card), modules_(card) {}

  void start(const gpu::KernelLaunch& kernel, const void* args, size_t bytes,
             const char* instruction) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void clear(void* at, int64_t bytes) override;
  void upload(void* to, const void* from, int64_t bytes) override;

  void wait() const { check(card_.driver->synchronize_stream(stream_.get()), "cuStreamSynchronize"); }
  cuda::Stream stream() const { return stream_.get(); }
  // WorldError for a result that is not success, with the instruction that failed if a kernel did.
  void check(cuda::Result result, const char* what) const;

 private:
  cuda::Function function_of(const gpu::KernelLaunch& kernel);

  const cuda::Card& card_;
  cuda::OwnStream stream_;
  cuda::Progress progress_;
  KernelModules modules_;
};

}  // namespace strata::device
