// Turns a function's statements into a Kernel. The decode functions of the opcodes (opcodes.h) process one
// statement at a time.
#pragma once

#include <fmt/core.h>

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ptx/instruction.h"

namespace strata::gpu_tests {

// The meaning of a variable's name.
struct Symbol {
  Space space = Space::kGlobal;
  uint64_t address = 0;  // within its space; for globals and constants the full address
  uint64_t bytes = 0;
  bool dynamic = false;  // dynamic shared memory, placed after all other
};

struct ModuleNames {
  const ModuleSyntax* syntax = nullptr;
  const std::vector<std::string>* lines = nullptr;
  std::map<std::string, Symbol> variables;  // global and constant
  std::map<std::string, const Variable*> shared;
  std::map<std::string, const FunctionSyntax*> functions;
};

class Decoder {
 public:
  Decoder(const ModuleNames& names, const FunctionSyntax& entry);
  Kernel run();

  // --- For decode functions: the current statement.
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_with(fmt::format(format, std::forward<Args>(args)...));
  }
  const Statement& statement() const { return *statement_; }
  std::string opcode() const;

  // Modifiers are consumed from left to right; a remaining one is an error.
  bool take(std::string_view modifier);
  void need(std::string_view modifier);
  Type take_type();
  Type take_type_of(std::initializer_list<Type> allowed);
  bool more_modifiers() const { return modifier_ < statement_->modifiers.size(); }
  std::string_view next_modifier() const {
    return more_modifiers() ? statement_->modifiers[modifier_] : std::string_view();
  }
  // True if the next modifier is a floating-point rounding: rn, rz, rm, rp, rna.
  bool take_rounding(Rounding* rounding);

  size_t operand_count() const { return statement_->operands.size(); }
  const Operand& operand(size_t index) const;
  void need_operands(size_t least, size_t most);
  void need_operands(size_t count) { need_operands(count, count); }

  // Byte offsets in the register file.
  uint32_t destination(const Operand& operand, unsigned bytes);
  uint32_t source(const Operand& operand, Type type);
  uint32_t predicate_source(const Operand& operand, bool* negated);
  uint32_t predicate_destination(const Operand& operand);
  bool is_predicate(const Operand& operand);
  // A register of any width, for instructions whose types may be narrower than their registers. Immediates
  // get `type`.
  uint32_t loose_source(const Operand& operand, Type type, unsigned* bytes);
  uint32_t loose_destination(const Operand& operand, unsigned least, unsigned* bytes);
  uint32_t constant(uint64_t bits, unsigned bytes);
  uint32_t scratch(unsigned bytes) { return new_register(bytes); }
  int64_t integer_operand(const Operand& operand, int64_t least, int64_t most);
  // Sets r[at], immediate, address_bytes and, for a variable, the space.
  void address(const Operand& operand, Instruction* i, size_t at);
  // Appends registers to Kernel::operands; returns the index of the first.
  uint32_t pool(std::span<const uint32_t> registers);
  std::vector<uint32_t> vector_sources(const Operand& operand, Type type, size_t count);
  std::vector<uint32_t> vector_destinations(const Operand& operand, unsigned bytes, size_t count);

  void emit(Instruction i);

 private:
  struct Register {
    Type type;
    uint32_t offset;
  };
  struct Scope {
    uint32_t parent;
    std::map<std::string, Register> registers;
    std::map<std::string, Symbol> variables;
    std::map<std::string, uint32_t> labels;
    std::map<std::string, const Statement*> targets;
  };
  struct Fixup {
    uint32_t instruction;
    uint32_t scope;
    std::string label;
    const Statement* statement;
    uint32_t targets = kNone;  // index in Kernel::targets instead
  };

  [[noreturn]] void fail_with(const std::string& message) const;
  void function(const FunctionSyntax& function, uint32_t scope, uint32_t depth);
  void instruction(uint32_t depth);
  void branch();
  void indexed_branch();
  void call(uint32_t depth);
  void bind_arguments(const std::vector<Variable>& formal, const Operand* actual, Scope* scope);
  void exit();
  void add_variable(const Variable& variable, std::map<std::string, Symbol>* into);
  Symbol add_shared(const Variable& variable);
  uint64_t add_local(uint64_t bytes, uint64_t align);
  uint32_t new_register(unsigned bytes);
  const Register* find_register(const std::string& name);
  bool find_variable(const std::string& name, Symbol* symbol);
  const Register& need_register(const Operand& operand);
  uint32_t symbol_constant(const Symbol& symbol, int64_t offset, unsigned bytes);
  uint64_t immediate_bits(const Operand& operand, Type type) const;
  void resolve_labels();
  void relocate();

  const ModuleNames& names_;
  const FunctionSyntax& entry_;
  Kernel kernel_;
  const Statement* statement_ = nullptr;
  size_t modifier_ = 0;
  std::vector<Scope> scopes_;
  uint32_t scope_ = 0;
  std::vector<Fixup> fixups_;
  std::vector<std::vector<uint32_t>> returns_;  // branches to the end of each inlined function
  std::vector<const FunctionSyntax*> calls_;
  uint32_t next_register_ = 0;
  std::map<std::tuple<uint64_t, unsigned, bool>, uint32_t> constants_;
  std::map<std::string, Register> specials_;
  std::map<std::string, Symbol> used_shared_;
  std::vector<std::pair<uint32_t, uint64_t>> dynamic_constants_;  // index in `constants`, addend
  uint64_t dynamic_align_ = 16;
  std::string dynamic_name_;
};

}  // namespace strata::gpu_tests
