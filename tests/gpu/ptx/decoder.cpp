#include "ptx/decoder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ptx/flow.h"
#include "ptx/opcodes.h"
#include "ptx/warp.h"

namespace strata::gpu_tests {
namespace {

constexpr size_t kMaxCode = 400'000;
constexpr uint64_t kMaxRegisterBytes = 64u << 20;
constexpr uint32_t kMaxDepth = 32;
// Unused space before and after each shared variable, to catch overruns.
constexpr uint64_t kSharedGap = 64;
constexpr uint32_t kConstantFlag = 0x8000'0000;

uint64_t round_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

Decoder::Decoder(const ModuleNames& names, const FunctionSyntax& entry) : names_(names), entry_(entry) {}

void Decoder::fail_with(const std::string& message) const {
  const int line = statement_ != nullptr ? statement_->line : entry_.line;
  std::string text;
  if (line > 0 && static_cast<size_t>(line) <= names_.lines->size()) {
    text = (*names_.lines)[static_cast<size_t>(line) - 1];
    text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
  }
  throw LoadError(names_.syntax->file, line, text.empty() ? message : message + " in \"" + text + "\"");
}

Kernel Decoder::run() {
  kernel_.name = entry_.name;
  kernel_.file = names_.syntax->file;
  kernel_.source_files = names_.syntax->source_files;
  kernel_.lines = names_.lines;
  std::copy_n(entry_.max_threads, 3, kernel_.max_threads.begin());
  std::copy_n(entry_.required_threads, 3, kernel_.required_threads.begin());
  scopes_.push_back({kNone, {}, {}, {}, {}});
  uint64_t at = 0;
  for (const Variable& param : entry_.params) {
    if (param.bytes == 0 || param.align == 0) fail("the parameter {} has no size", param.name);
    at = round_up(at, param.align);
    kernel_.params.push_back({param.name, at, param.bytes, param.align});
    scopes_[0].variables[param.name] = {Space::kParam, at, param.bytes};
    at += param.bytes;
  }
  kernel_.param_bytes = at;
  function(entry_, 0, 0);
  if (kernel_.code.empty() || kernel_.code.back().kind != Instruction::Kind::kExit ||
      kernel_.code.back().guard != kNone) {
    exit();
  }
  resolve_labels();
  relocate();
  set_joins(kernel_);
  return std::move(kernel_);
}

void Decoder::function(const FunctionSyntax& function, uint32_t scope, uint32_t depth) {
  scope_ = scope;
  const uint32_t outer = scope;
  calls_.push_back(&function);
  for (const Statement& one : function.body) {
    statement_ = &one;
    Scope& here = scopes_[scope_];
    switch (one.kind) {
      case Statement::Kind::kOpen:
        scopes_.push_back({scope_, {}, {}, {}, {}});
        scope_ = static_cast<uint32_t>(scopes_.size() - 1);
        break;
      case Statement::Kind::kClose:
        if (scope_ == outer) fail("closing brace without an open block");
        scope_ = here.parent;
        break;
      case Statement::Kind::kLabel:
        if (!here.labels.emplace(one.name, static_cast<uint32_t>(kernel_.code.size())).second)
          fail("{} is duplicated", one.name);
        break;
      case Statement::Kind::kTargets:
        here.targets[one.name] = &one;
        break;
      case Statement::Kind::kVariable:
        add_variable(one.variable, &here.variables);
        break;
      case Statement::Kind::kRegisters:
        for (const RegisterDeclaration& declared : one.registers) {
          const unsigned bytes = type_bytes(declared.type);
          for (int n = 0; n < std::max(declared.count, 1); ++n) {
            const std::string name = declared.count == 0 ? declared.name : declared.name + std::to_string(n);
            if (!here.registers.emplace(name, Register{declared.type, new_register(bytes)}).second) {
              fail("the register {} is duplicated", name);
            }
          }
        }
        break;
      case Statement::Kind::kInstruction:
        instruction(depth);
        break;
    }
  }
  calls_.pop_back();
}

void Decoder::instruction(uint32_t depth) {
  modifier_ = 0;
  const std::string& name = statement_->name;
  if (name == "bra") {
    branch();
  } else if (name == "brx") {
    indexed_branch();
  } else if (name == "call") {
    call(depth);
  } else if (name == "ret" || name == "exit") {
    take("uni");
    need_operands(0);
    if (name == "exit" || depth == 0) {
      exit();
    } else {
      Instruction i;
      i.kind = Instruction::Kind::kBranch;
      emit(i);
      returns_.back().push_back(static_cast<uint32_t>(kernel_.code.size() - 1));
    }
  } else if (const Opcode* known = find_opcode(name)) {
    known->decode(*this);
  } else if (const std::string_view reason = refusal(name); !reason.empty()) {
    fail("{} is not implemented ({})", opcode(), reason);
  } else {
    fail("unknown instruction {}", opcode());
  }
  if (more_modifiers())
    fail("the modifier .{} of {} is not implemented or out of place", next_modifier(), opcode());
}

void Decoder::emit(Instruction i) {
  if (more_modifiers())
    fail("the modifier .{} of {} is not implemented or out of place", next_modifier(), opcode());
  if (!statement_->guard.empty() && i.guard == kNone) {
    Operand guard;
    guard.name = statement_->guard;
    const Register& reg = need_register(guard);
    if (reg.type != Type::kPred) fail("the guard {} is not a predicate", guard.name);
    i.guard = reg.offset;
    i.guard_negated = statement_->guard_negated;
  }
  if (kernel_.code.size() >= kMaxCode) fail("the kernel has more than {} instructions", kMaxCode);
  kernel_.code.push_back(i);
  kernel_.locations.push_back({statement_->line, statement_->source});
}

void Decoder::exit() {
  Instruction i;
  i.kind = Instruction::Kind::kExit;
  if (statement_ != nullptr && (statement_->name == "ret" || statement_->name == "exit")) {
    emit(i);
    return;
  }
  kernel_.code.push_back(i);  // executed if control falls off the end
  kernel_.locations.push_back({statement_ != nullptr ? statement_->line : entry_.line, {}});
}

void Decoder::branch() {
  take("uni");
  need_operands(1);
  Instruction i;
  i.kind = Instruction::Kind::kBranch;
  emit(i);
  fixups_.push_back({static_cast<uint32_t>(kernel_.code.size() - 1), scope_, operand(0).name, statement_});
}

void Decoder::indexed_branch() {
  need("idx");
  take("uni");
  need_operands(2);
  const Statement* list = nullptr;
  for (uint32_t scope = scope_; scope != kNone && list == nullptr; scope = scopes_[scope].parent) {
    const auto found = scopes_[scope].targets.find(operand(1).name);
    if (found != scopes_[scope].targets.end()) list = found->second;
  }
  if (list == nullptr) fail("{} is not a list of targets", operand(1).name);
  Instruction i;
  i.kind = Instruction::Kind::kIndexedBranch;
  i.r[0] = source(operand(0), Type::kU32);
  i.more = static_cast<uint32_t>(kernel_.targets.size());
  i.target = static_cast<uint32_t>(list->operands.size());
  for (const Operand& target : list->operands) {
    fixups_.push_back({0, scope_, target.name, statement_, static_cast<uint32_t>(kernel_.targets.size())});
    kernel_.targets.push_back(0);
  }
  emit(i);
}

void Decoder::bind_arguments(const std::vector<Variable>& formal, const Operand* actual, Scope* scope) {
  const size_t count = actual == nullptr ? 0 : actual->elements.size();
  if (count != formal.size()) fail("the call has {} parameters, the function {}", count, formal.size());
  for (size_t n = 0; n < count; ++n) {
    Symbol symbol;
    if (!find_variable(actual->elements[n].name, &symbol) || symbol.space != Space::kLocal) {
      fail("{} is not a parameter variable", actual->elements[n].name);
    }
    if (symbol.bytes != formal[n].bytes)
      fail("parameter {} has {} bytes, the argument {}", n, formal[n].bytes, symbol.bytes);
    scope->variables[formal[n].name] = symbol;
  }
}

// Decodes the function inline.
void Decoder::call(uint32_t depth) {
  take("uni");
  const Statement* const here = statement_;
  size_t next = 0;
  const Operand* results = nullptr;
  const Operand* arguments = nullptr;
  if (next < operand_count() && operand(next).kind == Operand::Kind::kGroup) results = &operand(next++);
  const std::string callee = operand(next++).name;
  if (next < operand_count() && operand(next).kind == Operand::Kind::kGroup) arguments = &operand(next++);
  if (next != operand_count()) fail("indirect calls are not implemented");
  if (callee == "__assertfail") {
    Instruction i;
    i.run = [](Warp& warp, const Instruction& at, uint32_t mask) {
      warp.fail(Fault::kTrap, at, static_cast<unsigned>(std::countr_zero(mask)),
                "an assertion of the kernel failed");
    };
    emit(i);
    return;
  }
  const auto found = names_.functions.find(callee);
  if (found == names_.functions.end()) fail("{} is not a function of this module", callee);
  const FunctionSyntax& function = *found->second;
  if (!function.has_body) fail("{} has no body in this module", callee);
  if (function.entry) fail("{} is a kernel", callee);
  if (depth >= kMaxDepth || std::find(calls_.begin(), calls_.end(), &function) != calls_.end()) {
    fail("recursive calls are not implemented ({})", callee);
  }
  Scope inner{kNone, {}, {}, {}, {}};
  bind_arguments(function.results, results, &inner);
  bind_arguments(function.params, arguments, &inner);
  uint32_t skip = kNone;
  if (!here->guard.empty()) {
    Instruction i;
    i.kind = Instruction::Kind::kBranch;
    emit(i);
    skip = static_cast<uint32_t>(kernel_.code.size() - 1);
    kernel_.code[skip].guard_negated = !here->guard_negated;
  }
  const uint32_t outer = scope_;
  scopes_.push_back(std::move(inner));
  returns_.emplace_back();
  this->function(function, static_cast<uint32_t>(scopes_.size() - 1), depth + 1);
  scope_ = outer;
  statement_ = here;
  modifier_ = here->modifiers.size();
  const auto end = static_cast<uint32_t>(kernel_.code.size());
  for (const uint32_t at : returns_.back()) kernel_.code[at].target = end;
  returns_.pop_back();
  if (skip != kNone) kernel_.code[skip].target = end;
}

void Decoder::resolve_labels() {
  const auto count = static_cast<uint32_t>(kernel_.code.size());
  for (const Fixup& fixup : fixups_) {
    uint32_t target = kNone;
    for (uint32_t scope = fixup.scope; scope != kNone && target == kNone; scope = scopes_[scope].parent) {
      const auto found = scopes_[scope].labels.find(fixup.label);
      if (found != scopes_[scope].labels.end()) target = found->second;
    }
    statement_ = fixup.statement;
    if (target == kNone) fail("label {} does not exist", fixup.label);
    if (fixup.targets != kNone) {
      kernel_.targets[fixup.targets] = target;
    } else {
      kernel_.code[fixup.instruction].target = target;
    }
  }
  // The code ends with an exit, so a label there has an instruction too.
  for (const Instruction& i : kernel_.code) {
    if (i.kind == Instruction::Kind::kBranch && i.target >= count) fail("a branch leaves the kernel");
  }
}

// Constants come first in a register file, so that one copy initializes them.
void Decoder::relocate() {
  const auto constant_bytes = static_cast<uint32_t>(kernel_.constants.size());
  kernel_.shared_used = 0;
  for (const SharedVariable& one : kernel_.shared) kernel_.shared_used += one.bytes;
  if (!dynamic_name_.empty()) {
    const uint64_t begin = round_up(kernel_.shared_bytes, std::max<uint64_t>(dynamic_align_, 16));
    kernel_.dynamic_shared = true;
    kernel_.shared.push_back({dynamic_name_, begin, 0});
    kernel_.shared_bytes = begin;
    for (const auto& [at, addend] : dynamic_constants_) {
      const unsigned bytes = static_cast<unsigned>(addend >> 60);
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        uint64_t value = begin;
        std::memcpy(kernel_.constants.data() + at + lane * bytes, &value, bytes);
      }
    }
  }
  const auto move = [&](uint32_t& reg) {
    if (reg == kNone) return;
    reg = (reg & kConstantFlag) != 0 ? reg & ~kConstantFlag : reg + constant_bytes;
  };
  for (Instruction& i : kernel_.code) {
    for (uint32_t& reg : i.r) move(reg);
    move(i.guard);
  }
  for (uint32_t& reg : kernel_.operands) move(reg);
  for (SpecialRegister& special : kernel_.specials) move(special.reg);
  kernel_.register_bytes = next_register_ + constant_bytes;
}

uint32_t Decoder::new_register(unsigned bytes) {
  const uint32_t offset = next_register_;
  // Each register starts at a cache line: vector accesses across lines are slow.
  next_register_ += bytes <= 2 ? 64 : static_cast<uint32_t>(bytes * kLanes);
  if (next_register_ > kMaxRegisterBytes) fail("too many registers");
  return offset;
}

uint32_t Decoder::constant(uint64_t bits, unsigned bytes) {
  if (bytes < 8) bits &= (uint64_t{1} << (8 * bytes)) - 1;
  const auto [place, fresh] = constants_.try_emplace({bits, bytes, false}, 0);
  if (fresh) {
    place->second = static_cast<uint32_t>(kernel_.constants.size()) | kConstantFlag;
    const size_t begin = kernel_.constants.size();
    kernel_.constants.resize(begin + bytes * kLanes);
    for (unsigned lane = 0; lane < kLanes; ++lane)
      std::memcpy(kernel_.constants.data() + begin + lane * bytes, &bits, bytes);
  }
  return place->second;
}

uint32_t Decoder::symbol_constant(const Symbol& symbol, int64_t offset, unsigned bytes) {
  if (!symbol.dynamic) return constant(symbol.address + static_cast<uint64_t>(offset), bytes);
  if (offset != 0) fail("an offset into dynamic shared memory must be added by a separate instruction");
  const auto [place, fresh] = constants_.try_emplace({0, bytes, true}, 0);
  if (fresh) {
    place->second = static_cast<uint32_t>(kernel_.constants.size()) | kConstantFlag;
    dynamic_constants_.emplace_back(static_cast<uint32_t>(kernel_.constants.size()), uint64_t{bytes} << 60);
    kernel_.constants.resize(kernel_.constants.size() + bytes * kLanes);
  }
  return place->second;
}

void Decoder::add_variable(const Variable& variable, std::map<std::string, Symbol>* into) {
  Symbol symbol;
  if (variable.space == Space::kShared) {
    // One variable for all calls of the function.
    const std::string key = calls_.back()->name + "." + variable.name;
    const auto known = used_shared_.find(key);
    symbol = known != used_shared_.end() ? known->second : add_shared(variable);
    used_shared_[key] = symbol;
  } else if (variable.space == Space::kLocal || variable.space == Space::kParam) {
    symbol = {Space::kLocal, add_local(variable.bytes, variable.align), variable.bytes};
  } else {
    fail("a .{} variable within a function is not implemented", space_name(variable.space));
  }
  if (!into->emplace(variable.name, symbol).second) fail("{} is duplicated", variable.name);
}

Symbol Decoder::add_shared(const Variable& variable) {
  if (!variable.constant_size) {
    if (dynamic_name_.empty()) dynamic_name_ = variable.name;
    dynamic_align_ = std::max(dynamic_align_, variable.align);
    return {Space::kShared, 0, 0, true};
  }
  if (variable.align == 0 || variable.align > 4096)
    fail("{} has an alignment of {}", variable.name, variable.align);
  const uint64_t begin = round_up(kernel_.shared_bytes + kSharedGap, std::max<uint64_t>(variable.align, 16));
  kernel_.shared.push_back({variable.name, begin, variable.bytes});
  kernel_.shared_bytes = begin + variable.bytes + kSharedGap;
  return {Space::kShared, begin, variable.bytes};
}

uint64_t Decoder::add_local(uint64_t bytes, uint64_t align) {
  const uint64_t begin = round_up(kernel_.local_bytes, std::max<uint64_t>(align, 1));
  // A frame is a multiple of 16 bytes, so that the frames of all lanes are aligned.
  kernel_.local_bytes = round_up(begin + bytes, 16);
  if (kernel_.local_bytes > (1u << 19)) fail("more than 512 KiB of local memory a thread");
  return begin;
}

}  // namespace strata::gpu_tests
