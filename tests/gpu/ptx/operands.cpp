// The part of the decoder that turns operands and modifiers into registers and options.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "ptx/decoder.h"

namespace strata::gpu_tests {
namespace {

constexpr std::array<std::string_view, 26> kSpecials = {
    "%tid.x",           "%tid.y",          "%tid.z",       "%ntid.x",
    "%ntid.y",          "%ntid.z",         "%ctaid.x",     "%ctaid.y",
    "%ctaid.z",         "%nctaid.x",       "%nctaid.y",    "%nctaid.z",
    "%laneid",          "%warpid",         "%nwarpid",     "%smid",
    "%nsmid",           "%gridid",         "%lanemask_eq", "%lanemask_lt",
    "%lanemask_le",     "%lanemask_gt",    "%lanemask_ge", "%dynamic_smem_size",
    "%total_smem_size", "%aggr_smem_size",
};

}  // namespace

std::string Decoder::opcode() const {
  std::string text = statement_->name;
  for (const std::string& modifier : statement_->modifiers) text += "." + modifier;
  return text;
}

bool Decoder::take(std::string_view modifier) {
  if (next_modifier() != modifier) return false;
  ++modifier_;
  return true;
}

void Decoder::need(std::string_view modifier) {
  if (!take(modifier)) fail("{}: expected .{}", opcode(), modifier);
}

Type Decoder::take_type() {
  const Type type = type_named(next_modifier());
  if (type == Type::kNone) {
    if (!more_modifiers()) fail("{} needs a type", opcode());
    fail("the modifier .{} of {} is not implemented or out of place", next_modifier(), opcode());
  }
  ++modifier_;
  return type;
}

Type Decoder::take_type_of(std::initializer_list<Type> allowed) {
  const Type type = take_type();
  if (std::find(allowed.begin(), allowed.end(), type) == allowed.end()) {
    fail("{} does not support the type .{}", statement_->name, type_name(type));
  }
  return type;
}

bool Decoder::take_rounding(Rounding* rounding) {
  for (const auto& [name, one] : {std::pair<std::string_view, Rounding>{"rn", Rounding::kNearest},
                                  {"rz", Rounding::kZero},
                                  {"rm", Rounding::kDown},
                                  {"rp", Rounding::kUp},
                                  {"rna", Rounding::kNearestAway}}) {
    if (!take(name)) continue;
    *rounding = one;
    return true;
  }
  return false;
}

const Operand& Decoder::operand(size_t index) const {
  if (index >= statement_->operands.size()) fail("{} needs more operands", opcode());
  return statement_->operands[index];
}

void Decoder::need_operands(size_t least, size_t most) {
  const size_t count = operand_count();
  if (count >= least && count <= most) return;
  fail("{} has {} operands; it takes {}", opcode(), count,
       least == most ? std::to_string(least) : fmt::format("{} to {}", least, most));
}

const Decoder::Register* Decoder::find_register(const std::string& name) {
  for (uint32_t scope = scope_; scope != kNone; scope = scopes_[scope].parent) {
    const auto found = scopes_[scope].registers.find(name);
    if (found != scopes_[scope].registers.end()) return &found->second;
  }
  const auto known = specials_.find(name);
  if (known != specials_.end()) return &known->second;
  if (std::find(kSpecials.begin(), kSpecials.end(), name) == kSpecials.end()) return nullptr;
  const bool wide = name == "%gridid";
  const Register reg{wide ? Type::kU64 : Type::kU32, new_register(wide ? 8 : 4)};
  kernel_.specials.push_back({reg.offset, static_cast<uint8_t>(wide ? 8 : 4), name});
  return &specials_.emplace(name, reg).first->second;
}

bool Decoder::find_variable(const std::string& name, Symbol* symbol) {
  for (uint32_t scope = scope_; scope != kNone; scope = scopes_[scope].parent) {
    const auto found = scopes_[scope].variables.find(name);
    if (found == scopes_[scope].variables.end()) continue;
    *symbol = found->second;
    return true;
  }
  if (const auto found = names_.variables.find(name); found != names_.variables.end()) {
    *symbol = found->second;
    return true;
  }
  if (const auto found = used_shared_.find(name); found != used_shared_.end()) {
    *symbol = found->second;
    return true;
  }
  if (const auto found = names_.shared.find(name); found != names_.shared.end()) {
    *symbol = used_shared_[name] = add_shared(*found->second);
    return true;
  }
  return false;
}

const Decoder::Register& Decoder::need_register(const Operand& operand) {
  if (operand.kind != Operand::Kind::kName || operand.value != 0) fail("expected a register");
  const Register* reg = find_register(operand.name);
  if (reg == nullptr) fail("{} is not a register here", operand.name);
  return *reg;
}

uint32_t Decoder::destination(const Operand& operand, unsigned bytes) {
  if (operand.kind == Operand::Kind::kName && operand.name == "_") return new_register(bytes);
  const Register& reg = need_register(operand);
  if (operand.negated) fail("a destination cannot be negated");
  if (specials_.contains(operand.name)) fail("{} cannot be written", operand.name);
  if (type_bytes(reg.type) != bytes || (bytes == 0) != (reg.type == Type::kPred)) {
    fail("{} is a register of .{}; {} bits are written", operand.name, type_name(reg.type), bytes * 8);
  }
  return reg.offset;
}

uint64_t Decoder::immediate_bits(const Operand& operand, Type type) const {
  const unsigned bytes = type_bytes(type);
  if (operand.kind == Operand::Kind::kFloat32) {
    if (bytes != 4) fail("a float of 32 bits does not fit .{}", type_name(type));
    return static_cast<uint64_t>(operand.value);
  }
  if (operand.kind == Operand::Kind::kFloat64) {
    if (type == Type::kF32) {
      return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.value)));
    }
    if (bytes != 8) fail("a float of 64 bits does not fit .{}", type_name(type));
    return static_cast<uint64_t>(operand.value);
  }
  if (type == Type::kF32 || type == Type::kF64) fail("{} is an integer: expected a float", operand.value);
  if (bytes < 8) {
    const int64_t least = -(int64_t{1} << (8 * bytes - 1));
    const int64_t most = (int64_t{1} << (8 * bytes)) - 1;
    if (operand.value < least || operand.value > most)
      fail("{} does not fit .{}", operand.value, type_name(type));
  }
  return static_cast<uint64_t>(operand.value);
}

uint32_t Decoder::source(const Operand& operand, Type type) {
  unsigned bytes = 0;
  const uint32_t reg = loose_source(operand, type, &bytes);
  if (bytes != type_bytes(type))
    fail("{} has {} bits: expected .{}", operand.name, bytes * 8, type_name(type));
  return reg;
}

uint32_t Decoder::loose_source(const Operand& operand, Type type, unsigned* bytes) {
  *bytes = type_bytes(type);
  switch (operand.kind) {
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat32:
    case Operand::Kind::kFloat64:
      return constant(immediate_bits(operand, type), *bytes);
    case Operand::Kind::kName:
      break;
    default:
      fail("expected a register or a number");
  }
  if (operand.negated) fail("only predicates can be negated");
  if (operand.value == 0) {
    if (const Register* reg = find_register(operand.name)) {
      if (reg->type == Type::kPred) fail("{} is a predicate", operand.name);
      *bytes = type_bytes(reg->type);
      return reg->offset;
    }
  }
  Symbol symbol;
  if (!find_variable(operand.name, &symbol)) fail("{} is not a register or variable here", operand.name);
  if (*bytes < 4 || (*bytes == 4 && symbol.address >> 32 != 0))
    fail("the address of {} does not fit .{}", operand.name, type_name(type));
  return symbol_constant(symbol, operand.value, *bytes);
}

uint32_t Decoder::loose_destination(const Operand& operand, unsigned least, unsigned* bytes) {
  if (operand.kind == Operand::Kind::kName && operand.name == "_") {
    *bytes = least;
    return new_register(least);
  }
  const Register& reg = need_register(operand);
  *bytes = type_bytes(reg.type);
  if (reg.type == Type::kPred || *bytes < least || specials_.contains(operand.name)) {
    fail("{} cannot hold {} bits", operand.name, least * 8);
  }
  return reg.offset;
}

uint32_t Decoder::predicate_source(const Operand& operand, bool* negated) {
  *negated = operand.negated;
  // nvcc writes true as -1.
  if (operand.kind == Operand::Kind::kInteger) {
    return constant(operand.value != 0 ? 0xffff'ffff : 0, 4);
  }
  const Register& reg = need_register(operand);
  if (reg.type != Type::kPred) fail("{} is not a predicate", operand.name);
  return reg.offset;
}

uint32_t Decoder::predicate_destination(const Operand& operand) {
  return destination(operand, 0);
}

bool Decoder::is_predicate(const Operand& operand) {
  const Register* reg = operand.kind == Operand::Kind::kName ? find_register(operand.name) : nullptr;
  return reg != nullptr && reg->type == Type::kPred;
}

int64_t Decoder::integer_operand(const Operand& operand, int64_t least, int64_t most) {
  if (operand.kind != Operand::Kind::kInteger || operand.value < least || operand.value > most) {
    fail("{} needs a number from {} to {}", opcode(), least, most);
  }
  return operand.value;
}

void Decoder::address(const Operand& operand, Instruction* i, size_t at) {
  if (operand.kind != Operand::Kind::kAddress) fail("expected an address in brackets");
  i->immediate = operand.value;
  if (operand.name.empty()) {
    i->r[at] = constant(0, 8);
    return;
  }
  if (const Register* reg = find_register(operand.name)) {
    const unsigned bytes = type_bytes(reg->type);
    if (bytes != 8 && bytes != 4) fail("{} cannot hold an address", operand.name);
    i->r[at] = reg->offset;
    i->address_bytes = static_cast<uint8_t>(bytes);
    return;
  }
  Symbol symbol;
  if (!find_variable(operand.name, &symbol)) fail("{} is not a register or variable here", operand.name);
  // Parameters of inlined functions are local variables.
  const bool fits = i->space == symbol.space || i->space == Space::kGeneric ||
                    (i->space == Space::kParam && symbol.space == Space::kLocal);
  if (!fits)
    fail("{} is in .{}, the instruction reads .{}", operand.name, space_name(symbol.space),
         space_name(i->space));
  i->space = symbol.space;
  i->r[at] = symbol_constant(symbol, 0, 8);
}

uint32_t Decoder::pool(std::span<const uint32_t> registers) {
  const auto begin = static_cast<uint32_t>(kernel_.operands.size());
  kernel_.operands.insert(kernel_.operands.end(), registers.begin(), registers.end());
  return begin;
}

std::vector<uint32_t> Decoder::vector_sources(const Operand& operand, Type type, size_t count) {
  if (operand.kind != Operand::Kind::kVector || operand.elements.size() != count)
    fail("expected a vector of {}", count);
  std::vector<uint32_t> registers;
  for (const Operand& element : operand.elements) registers.push_back(source(element, type));
  return registers;
}

std::vector<uint32_t> Decoder::vector_destinations(const Operand& operand, unsigned bytes, size_t count) {
  if (operand.kind != Operand::Kind::kVector || operand.elements.size() != count)
    fail("expected a vector of {}", count);
  std::vector<uint32_t> registers;
  for (const Operand& element : operand.elements) registers.push_back(destination(element, bytes));
  return registers;
}

}  // namespace strata::gpu_tests
