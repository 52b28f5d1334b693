// The driver's errors that the twin returns: numbers and names of cuda.h, texts of the driver (CUDA 13.0).
#pragma once

#include "device/cuda/driver.h"

namespace strata::twin {

using cuda::Result;

inline constexpr Result kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100,
                        kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201, kNoBinary = 209,
                        kInvalidPtx = 218, kUnsupportedPtx = 222, kInvalidHandle = 400, kNotFound = 500,
                        kNotReady = 600, kIllegalAddress = 700, kLaunchTimeout = 702, kMisaligned = 716,
                        kLaunchFailed = 719, kNotSupported = 801, kUnknown = 999;

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
