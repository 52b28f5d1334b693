// NVIDIA GPUs through their driver. This is the module strata_cuda.so, which the program loads only where
// device.kind asks for it (device/open).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/device.h"

namespace strata::device {

inline constexpr const char* kCudaModule = "strata_cuda.so";
inline constexpr const char* kOpenCudaDevice = "strata_open_cuda_device";
// The device of this number, which the caller owns, with the program's table. WorldError without a driver, without such a
// device, or for one that is too old. One thread at a time starts work on it; several may copy.
using OpenCudaDevice = Device* (*)(int ordinal, const Binding* bindings, size_t count);

}  // namespace strata::device
