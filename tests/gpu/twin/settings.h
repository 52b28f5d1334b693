// The GPUs that the twin imitates, and the faults that it plants: a text such as
//
//   seed=3;arch=75;memory=2GiB;driver=11040;fail=cuLaunchKernel:120:700;drop=cuStreamWaitEvent:2
//
// | setting | meaning | default |
// | --- | --- | --- |
// | seed=N | order of streams, blocks and warps | 1 |
// | cards=N | number of GPUs, 0 to 8 | 1 |
// | name=TEXT | of every GPU | PTX executor |
// | arch=N | compute capability × 10 | 90 |
// | multiprocessors=N | | 16 |
// | memory=SIZE | of each GPU; bytes, or with KiB, MiB, GiB | 1GiB |
// | held=SIZE | part of the memory that other programs have | 0 |
// | driver=N | version as cuDriverGetVersion returns it | 13000 |
// | unwritten=on or off | whether a read of memory that was never written is a fault | on |
// | traffic=FILE | what kernels moved, as CSV (ptx/traffic.h), written when the process ends | |
// | fail=CALL:K:NUMBER | the K-th call of that name, from 1, returns the number | |
// | fault=CALL:K:NUMBER | the operation that the K-th call enqueues fails when it runs | |
// | drop=CALL:K | the K-th call does nothing and succeeds | |
// | edit=KERNEL:REGEX:K:TEXT | in this kernel, the K-th line of PTX with a match, from 1, gets TEXT for the match | |
//
// In TEXT $1 is a group of the expression; without TEXT the line is deleted.
//
// Calls have the names of cuda.h, without _v2. The last four may be repeated.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "twin/errors.h"

namespace strata::twin {

// Something planted in one call.
struct CallFault {
  enum class Kind : uint8_t { kFail, kFault, kDrop };
  Kind kind;
  std::string call;
  uint64_t at;        // from 1
  Result number = 0;  // not of kDrop
  std::string text;   // as it was set
};

struct Edit {
  std::string kernel;
  std::string pattern;
  uint64_t at;  // from 1
  std::string replacement;
  std::string text;  // as it was set
};

struct Settings {
  uint64_t seed = 1;
  int cards = 1;
  std::string name = "PTX executor";
  int architecture = 90;
  int multiprocessors = 16;
  uint64_t memory = uint64_t{1} << 30;
  uint64_t held = 0;
  int driver_version = 13000;
  bool unwritten = true;
  std::string traffic = {};
  std::vector<CallFault> faults;
  std::vector<Edit> edits;

  // Throws std::invalid_argument, which quotes the setting.
  static Settings parse(std::string_view text);

  // Dynamic and static shared memory of a block, in bytes (CUDA C++ Programming Guide, "Compute Capabilities").
  unsigned shared_limit() const;
  // The newest PTX that the driver compiles, × 10 (PTX ISA, "Release Notes").
  int ptx_version() const;
};

// Applies an edit to a module's PTX. False: no kernel of that name in it. Throws std::invalid_argument if the kernel has
// no such line.
bool apply_edit(const Edit& edit, std::string& ptx);

}  // namespace strata::twin
