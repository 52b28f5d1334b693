// What a device can do: the figures that plans, rooflines and reports are computed from. Catalogued or
// measured; it is data, so a plan for a machine needs no access to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "hardware/precision.h"

namespace strata::hardware {

// Instruction sets that decide which kernels and which dtypes are fast.
struct IsaFlags {
  bool avx2 = false;         // with FMA
  bool avx512 = false;       // F, BW, CD, DQ, VL
  bool avx512_bf16 = false;  // VDPBF16PS
  bool amx = false;          // AMX tiles with bf16
  bool neon = false;
  std::string str() const;  // "avx2+avx512", "baseline" when none
  friend bool operator==(const IsaFlags&, const IsaFlags&) = default;
};

// The instruction sets of `isa` up to `limit`, in the order baseline, avx2, avx512, avx512_bf16, amx; NEON is
// not limited. ConfigError if `limit` is none of these.
IsaFlags limited_to(IsaFlags isa, std::string_view limit);

// The environment variable that holds the limit for this process, for runs that must have the same bits on
// unlike processors and for tests of the paths that this processor would not take.
inline constexpr const char* kIsaLimitVariable = "STRATA_MAX_CPU_ISA";

// Of a device's memory, what plans use: the rest is for its driver, for buffers of communication, and for what
// allocators lose.
inline constexpr double kUsableMemory = 0.9;

// The sustained rates of one kernel family, measured by its micro-benchmark.
struct FamilyRate {
  std::string family;        // "gemm_forward", "attention", "rms_norm", …
  std::string dtype;         // "f32", "bf16"
  double flops_per_s = 0.0;  // 0: not bound by arithmetic, or not known
  double bytes_per_s = 0.0;  // 0: not bound by memory, or not known; without an op's streamed_bytes
  bool cold = false;         // the operands came from memory, not from the last-level cache
  bool adds = false;         // an output is an accumulator that held something, and was read too
  friend bool operator==(const FamilyRate&, const FamilyRate&) = default;
};

struct DeviceSpec {
  std::string name;
  std::string kind = "cpu";
  std::string library;  // versions of the kernels that were measured; empty before
  IsaFlags isa;
  // Whether the GEMM library multiplies bf16 with the instructions that `isa` has for it; else the in-house
  // GEMM multiplies bf16 dot products.
  bool library_bf16 = true;
  int architecture = 0;     // of a GPU: ten times its compute capability; 0: not known, or no GPU
  int multiprocessors = 0;  // of a GPU
  int cores = 0;            // processors that this process may use
  int threads = 0;          // compute threads that the rates below hold for
  int64_t l1_bytes = 0;
  int64_t l2_bytes = 0;  // L1 and L2: of one core
  int64_t l3_bytes = 0;  // of the processor
  // Effective capacity of the last-level cache, measured: other processes may share it, and its replacement
  // is not exactly LRU. 0: not known.
  int64_t kept_bytes = 0;
  int64_t memory_bytes = 0;
  Rates gemm_flops;                 // of the best GEMM: measured with all threads, or what such devices reach
  Rates peak_flops;                 // published, dense
  double memory_bytes_per_s = 0.0;  // triad, far beyond the caches
  double cache_bytes_per_s = 0.0;   // triad inside the last-level cache; 0: as fast as memory
  double launch_seconds = 0.0;      // of the host, to start one kernel that runs by itself; 0: it is a call
  double power_watts = 0.0;         // the limit of the board; 0: not known
  // Between ranks of this host: what one of them copies from another while the last-level cache holds it and from
  // memory, and the time of an exchange of little; 0: not measured, the second: as the first.
  double exchange_bytes_per_s = 0.0;
  double exchange_cold_bytes_per_s = 0.0;
  double exchange_seconds = 0.0;
  std::vector<FamilyRate> rates;
  std::string source = "catalogued";  // or "measured"
  std::string date;                   // UTC, of the measurement
  friend bool operator==(const DeviceSpec&, const DeviceSpec&) = default;
};

// The machine this process runs on, without any measured rate; its instruction sets as limited by
// STRATA_MAX_CPU_ISA. Works without /proc and /sys (base/kernel_files.h). `root`: the folder in place of "/", for
// tests.
DeviceSpec detect_cpu(int threads, const Path& root = "/");

// True where bf16 GEMMs run clearly faster than fp32 ones: measured, else from the instruction sets.
bool bf16_is_fast(const DeviceSpec& spec);

std::string to_json(const DeviceSpec& spec);
// A field that is absent keeps its default. DataError with the field and its value.
DeviceSpec device_spec_from_json(std::string_view text);

// Where the figures of this machine are kept: one file per processor model, instruction sets, threads and
// library version, in $XDG_CACHE_HOME/strata, else ~/.cache/strata, else the folder for temporary files.
Path device_cache_path(const DeviceSpec& spec);
// False when there is no usable file (absent, torn, of another machine): then measure.
bool load_cached_device(DeviceSpec& spec);
// False, with a warning logged, when it cannot be written: the run goes on without.
bool save_cached_device(FileSystem& files, const DeviceSpec& spec);

}  // namespace strata::hardware
