#include "ptx/types.h"

#include <fmt/core.h>

#include <array>
#include <utility>

namespace strata::gpu_tests {
namespace {

constexpr std::array<std::pair<std::string_view, Type>, 21> kTypes = {{
    {"pred", Type::kPred},     {"b8", Type::kB8},     {"b16", Type::kB16},   {"b32", Type::kB32},
    {"b64", Type::kB64},       {"u8", Type::kU8},     {"u16", Type::kU16},   {"u32", Type::kU32},
    {"u64", Type::kU64},       {"s8", Type::kS8},     {"s16", Type::kS16},   {"s32", Type::kS32},
    {"s64", Type::kS64},       {"f16", Type::kF16},   {"bf16", Type::kBf16}, {"f16x2", Type::kF16x2},
    {"bf16x2", Type::kBf16x2}, {"tf32", Type::kTf32}, {"f32", Type::kF32},   {"f64", Type::kF64},
    {"f32x2", Type::kF32x2},
}};

}  // namespace

Type type_named(std::string_view name) {
  for (const auto& [text, type] : kTypes) {
    if (text == name) return type;
  }
  return Type::kNone;
}

const char* type_name(Type type) {
  for (const auto& [text, one] : kTypes) {
    if (one == type) return text.data();
  }
  return "none";
}

const char* space_name(Space space) {
  switch (space) {
    case Space::kGlobal:
      return "global";
    case Space::kShared:
      return "shared";
    case Space::kLocal:
      return "local";
    case Space::kConst:
      return "const";
    case Space::kParam:
      return "param";
    default:
      return "generic";
  }
}

LoadError::LoadError(const std::string& file, int line, const std::string& message)
    : std::runtime_error(fmt::format("{}:{}: {}", file, line, message)), line_(line) {}

}  // namespace strata::gpu_tests
