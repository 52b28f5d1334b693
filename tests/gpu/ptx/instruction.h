// Decoded PTX, as the executor runs it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ptx/syntax.h"
#include "ptx/types.h"

namespace strata::gpu_tests {

class Warp;
struct Instruction;

inline constexpr uint32_t kNone = 0xffff'ffff;

// Runs an instruction for the lanes in `mask`, which is not empty.
using Handler = void (*)(Warp& warp, const Instruction& instruction, uint32_t mask);

struct Instruction {
  enum class Kind : uint8_t {
    kPlain,
    kBranch,
    kIndexedBranch,  // number of targets in `target`, targets from Kernel::targets[more] on; the index is in r[0]
    kExit,
    kBarrier,   // Barrier fields
    kWarpSync,  // waits for the lanes of the mask in r[3], then runs
    kAligned,   // all lanes of the warp must be here
  };
  enum class BarrierKind : uint8_t { kSync, kArrive, kPopc, kAnd, kOr };

  Handler run = nullptr;
  std::array<uint32_t, 4> r{kNone, kNone, kNone, kNone};  // byte offsets of registers in the register file
  uint32_t more = 0;                                      // index of further registers in Kernel::operands
  uint32_t guard = kNone;                                 // byte offset of a predicate
  uint32_t target = kNone;                                // branch target
  uint32_t join = kNone;                                  // reconvergence point of a branch; kNone: none
  int64_t immediate = 0;                                  // address offset and others
  Kind kind = Kind::kPlain;
  BarrierKind barrier = BarrierKind::kSync;
  bool guard_negated = false;
  bool aligned = false;  // barrier only
  Space space = Space::kGeneric;
  Type type = Type::kNone;
  Type from = Type::kNone;  // cvt only
  Rounding rounding = Rounding::kNearest;
  uint8_t bytes = 0;  // per element
  uint8_t vector = 1;
  uint8_t address_bytes = 8;  // width of the address register
  uint8_t option = 0;         // private to the handler
  bool strong = false;        // atomic, volatile, relaxed, acquire, release
};

static_assert(sizeof(Instruction) == 64, "one cache line");

struct Location {
  int line = 0;
  SourceLine source;
};

struct SharedVariable {
  std::string name;
  uint64_t offset;
  uint64_t bytes;
};

struct SpecialRegister {
  uint32_t reg;
  uint8_t bytes;
  std::string name;
};

struct KernelParam {
  std::string name;
  uint64_t offset;
  uint64_t bytes;
  uint64_t align;
};

// A kernel of a module, with the code of the functions that it calls.
struct Kernel {
  std::string name;
  std::string file;  // the module's, for messages
  std::vector<Instruction> code;
  std::vector<Location> locations;  // one per instruction
  std::vector<uint32_t> operands;   // byte offsets of registers
  std::vector<uint32_t> targets;    // for indexed branches
  std::vector<std::string> source_files;
  std::vector<KernelParam> params;
  uint64_t param_bytes = 0;
  uint32_t register_bytes = 0;
  std::vector<std::byte> constants;  // the first bytes of every register file
  std::vector<SpecialRegister> specials;
  std::vector<SharedVariable> shared;  // by offset, with gaps in between; the one of dynamic size last
  uint64_t shared_bytes = 0;           // including gaps
  uint64_t shared_used = 0;            // without gaps
  bool dynamic_shared = false;
  uint64_t local_bytes = 0;  // per thread
  std::array<unsigned, 3> max_threads{};
  std::array<unsigned, 3> required_threads{};
  const std::vector<std::string>* lines = nullptr;  // of the module's text

  std::string statement_text(uint32_t at) const;
  std::string place_text(uint32_t at) const;  // "file.ptx:12 (kernel.cu:7)"
};

}  // namespace strata::gpu_tests
