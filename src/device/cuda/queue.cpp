#include "device/cuda/queue.h"

#include <array>

#include "base/error.h"

namespace strata::device {
namespace {

cuda::Pointer pointer_of(const void* address) {
  return reinterpret_cast<cuda::Pointer>(address);
}

}  // namespace

void CudaQueue::check(cuda::Result result, const char* what) const {
  if (result == cuda::kSuccess) return;
  try {
    card_.driver->check(result, what);
  } catch (const WorldError& error) {
    if (!cuda::is_asynchronous(result)) throw;
    throw WorldError("{}{}", error.what(), progress_.where());
  }
}

cuda::Function CudaQueue::function_of(const gpu::KernelLaunch& kernel) {
  try {
    return modules_.function_of(kernel);
  } catch (const WorldError& error) {
    // Errors of an earlier kernel come here, too.
    if (!cuda::is_asynchronous(card_.driver->query_stream(stream_.get()))) throw;
    throw WorldError("{}{}", error.what(), progress_.where());
  }
}

void CudaQueue::start(const gpu::KernelLaunch& kernel, const void* args, size_t, const char* instruction) {
  const cuda::Function function = function_of(kernel);
  check(progress_.starts(instruction, stream_.get()), "cuStreamWriteValue32");
  std::array<void*, 1> values = {const_cast<void*>(args)};
  check(card_.driver->launch(function, kernel.grid_x, kernel.grid_y, kernel.grid_z, kernel.threads, 1, 1,
                             kernel.shared_bytes, stream_.get(), values.data(), nullptr),
        kernel.kernel.c_str());
}

void CudaQueue::copy(void* to, const void* from, int64_t bytes) {
  check(card_.driver->copy_async(pointer_of(to), pointer_of(from), static_cast<size_t>(bytes), stream_.get()),
        "cuMemcpyDtoDAsync");
}

void CudaQueue::clear(void* at, int64_t bytes) {
  if (bytes > 0)
    check(card_.driver->fill_async(pointer_of(at), 0, static_cast<size_t>(bytes), stream_.get()),
          "cuMemsetD8Async");
}

void CudaQueue::upload(void* to, const void* from, int64_t bytes) {
  check(card_.driver->copy_to_device_async(pointer_of(to), from, static_cast<size_t>(bytes), stream_.get()),
        "cuMemcpyHtoDAsync");
  wait();
}

}  // namespace strata::device
