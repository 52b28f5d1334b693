// The result of a failed check.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace strata::gpu_tests {

enum class Fault : uint8_t {
  kOutOfBounds,
  kMisaligned,
  kUnwritten,
  kFreed,
  kReadOnly,
  kRace,
  kPendingCopy,  // read before the wait for a cp.async
  kBarrier,      // divergent, or wrong count
  kMask,         // a warp-wide instruction whose lanes do not match its mask
  kDeadlock,
  kLimit,
  kTrap,        // trap or failed assertion
  kLaunch,      // a launch that the driver would reject
  kHostMemory,  // memory of the host that a copy uses was changed or freed
};

const char* fault_name(Fault fault);

struct ViolationDetails {
  Fault fault = Fault::kTrap;
  std::string kernel;
  int line = 0;             // line of the PTX
  std::string source_file;  // from .loc, or empty
  int source_line = 0;
  unsigned block[3] = {0, 0, 0};
  unsigned thread[3] = {0, 0, 0};
  uint64_t address = 0;
  std::string allocation;
  std::string other;  // the other access of a race
};

class Violation : public std::runtime_error {
 public:
  Violation(const std::string& message, ViolationDetails details)
      : std::runtime_error(message), details_(std::move(details)) {}
  const ViolationDetails& details() const { return details_; }
  Fault fault() const { return details_.fault; }

 private:
  ViolationDetails details_;
};

}  // namespace strata::gpu_tests
