// The GPU code of src/kernels/gpu, as this build has it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata::device {

// Code of one module: of machine code first the most specific, PTX last.
struct GpuCode {
  std::string_view module;
  int architecture;             // ten times the compute capability that machine code is for; 0: PTX
  bool exact;                   // only for that one, else also for later ones of the same major number
  std::string_view compressed;  // by zstd, which makes it a tenth

  bool runs_on(int capability) const {
    if (architecture == 0) return true;
    return exact ? capability == architecture
                 : capability >= architecture && capability / 10 == architecture / 10;
  }
  // As the driver reads it; PTX ends at the zero of c_str().
  std::string code() const;
};
std::span<const GpuCode> gpu_code();

}  // namespace strata::device
