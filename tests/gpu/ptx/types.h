// Scalar types, state spaces and rounding modes of PTX.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace strata::gpu_tests {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBf16,
  kF16x2,
  kBf16x2,
  kTf32,
  kF32,
  kF64,
  kF32x2,
};

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam };

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp, kNearestAway };

// Bytes of a value in memory and in a register; 0 for a predicate.
constexpr unsigned type_bytes(Type type) {
  switch (type) {
    case Type::kNone:
    case Type::kPred:
      return 0;
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
      return 2;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
    case Type::kF32x2:
      return 8;
    default:
      return 4;
  }
}

constexpr bool is_signed(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}
constexpr bool is_float(Type type) {
  return type >= Type::kF16;
}
constexpr bool is_integer(Type type) {
  return type >= Type::kU8 && type <= Type::kS64;
}
constexpr bool is_bits(Type type) {
  return type >= Type::kB8 && type <= Type::kB64;
}

// kNone unless the name is a type's. The name has no dot.
Type type_named(std::string_view name);
const char* type_name(Type type);
const char* space_name(Space space);

// PTX text that is not valid, or not supported by this executor.
class LoadError : public std::runtime_error {
 public:
  LoadError(const std::string& file, int line, const std::string& message);
  int line() const { return line_; }

 private:
  int line_;
};

}  // namespace strata::gpu_tests
