// Syntax of a PTX module, before names are resolved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptx/types.h"

namespace strata::gpu_tests {

struct Operand {
  enum class Kind : uint8_t {
    kName,     // a register, special register, symbol or label, with an optional offset
    kInteger,  // its bits in `value`
    kFloat32,  // 0f…: its bits in `value`
    kFloat64,  // 0d… or decimal: its bits in `value`
    kAddress,  // [base + offset]; `name` is the base, empty if the address is the number `value`
    kVector,   // {…} in `elements`
    kPair,     // d|p in `elements`
    kGroup,    // (…) of a call, in `elements`
  };
  Kind kind = Kind::kName;
  bool negated = false;  // !p
  std::string name;
  int64_t value = 0;  // a number or an offset
  std::vector<Operand> elements;
};

struct Initializer {
  uint64_t offset;
  std::string symbol;
  int64_t addend;
  bool generic;
};

struct Variable {
  Space space = Space::kGlobal;
  Type type = Type::kB32;
  uint64_t align = 0;
  uint64_t bytes = 0;
  bool external = false;  // also shared memory whose size is set at launch
  bool constant_size = true;
  std::string name;
  std::vector<uint8_t> initial;  // empty if the text initializes nothing
  std::vector<Initializer> addresses;
  int line = 0;
};

struct RegisterDeclaration {
  Type type;
  std::string name;
  int count;  // 0: the name itself; n: name0 … name(n-1)
};

struct SourceLine {
  int file = 0;
  int line = 0;
};

struct Statement {
  enum class Kind : uint8_t { kInstruction, kLabel, kRegisters, kVariable, kOpen, kClose, kTargets };
  Kind kind = Kind::kInstruction;
  int line = 0;
  SourceLine source;
  std::string guard;  // a predicate register, or empty
  bool guard_negated = false;
  std::string name;  // the opcode's first part, or the label
  std::vector<std::string> modifiers;
  std::vector<Operand> operands;
  std::vector<RegisterDeclaration> registers;
  Variable variable;
};

struct FunctionSyntax {
  std::string name;
  bool entry = false;
  bool has_body = false;
  int line = 0;
  std::vector<Variable> results;
  std::vector<Variable> params;
  std::vector<Statement> body;
  unsigned max_threads[3] = {0, 0, 0};       // .maxntid
  unsigned required_threads[3] = {0, 0, 0};  // .reqntid
};

struct ModuleSyntax {
  std::string file;
  std::string target;
  std::vector<std::string> source_files;  // indexed by the numbers of .file
  std::vector<Variable> variables;
  std::vector<FunctionSyntax> functions;
};

}  // namespace strata::gpu_tests
