// What a GPU can do, measured with the kernels that programs use.
#pragma once

#include "device/cuda/queue.h"
#include "device/device.h"

namespace strata::device {

// The product of two square matrices, as large as the whole GPU needs for full speed and as its free memory allows. The
// arguments must outlive it.
PeakProduct square_product(const cuda::Card& card, CudaQueue& queue, int multiprocessors, DType dtype);

// `spec` with the peaks of fp32 and bf16 GEMMs, the bandwidth of copies within the GPU's memory (read and written), and the
// host's time to start work, measured within about `seconds`.
hardware::DeviceSpec measure_gpu(const cuda::Card& card, CudaQueue& queue, hardware::DeviceSpec spec,
                                 double seconds);

}  // namespace strata::device
