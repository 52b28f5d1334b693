// The driver's errors that the twin returns: numbers and names of cuda.h, texts of the driver (CUDA 13.0).
#pragma once

#include "device/cuda/driver.h"

namespace strata::twin {

using cuda::kInvalidImage, cuda::kNoBinary, cuda::kNoDevice, cuda::kNotReady, cuda::kOutOfMemory;
using cuda::Result;

inline constexpr Result kInvalidValue = 1, kNotInitialized = 3, kInvalidDevice = 101, kInvalidContext = 201,
                        kInvalidPtx = 218, kUnsupportedPtx = 222, kInvalidHandle = 400, kNotFound = 500,
                        kIllegalAddress = 700, kLaunchTimeout = 702, kMisaligned = 716, kLaunchFailed = 719,
                        kNotSupported = 801, kUnknown = 999;

struct Error {
  Result number;
  const char* name;
  const char* text;
};
// Null for a number that the twin does not know.
const Error* find_error(Result number);

// Whether the context is lost with this error: every later call returns it.
bool is_lasting(Result number);

}  // namespace strata::twin
