#include "hardware/cpuid.h"

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstring>

namespace strata::hardware {
#if defined(__x86_64__)
namespace {

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

// All zero if the processor lacks the leaf.
Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers out;
  if (__get_cpuid_count(leaf, subleaf, &out.a, &out.b, &out.c, &out.d) == 0) return {};
  return out;
}

uint32_t bits(uint32_t value, int first, int count) {
  return value >> first & ((1u << count) - 1);
}

// Whether the operating system saves the registers of AMX tiles.
bool saves_tiles() {
  constexpr uint32_t kOsXsave = 1u << 27, kTiles = 3u << 17;
  if ((cpuid(1).c & kOsXsave) == 0) return false;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTiles) == kTiles;
}

}  // namespace

std::string cpuid_name() {
  constexpr uint32_t kBrand = 0x80000002;
  char brand[3 * sizeof(Registers) + 1] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers part = cpuid(kBrand + i);
    std::memcpy(brand + i * sizeof part, &part, sizeof part);
  }
  std::string name = brand;
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  const uint32_t version = cpuid(1).a;
  uint32_t family = bits(version, 8, 4), model = bits(version, 4, 4);
  if (family >= 6) model += bits(version, 16, 4) << 4;
  if (family == 15) family += bits(version, 20, 8);
  return fmt::format("{}{}(family {} model {} stepping {})", name, name.empty() ? "" : " ", family, model,
                     bits(version, 0, 4));
}

IsaFlags cpuid_isa() {
  constexpr uint32_t kAmx = 1u << 22 | 1u << 24;  // bf16, tiles
  IsaFlags isa;
  isa.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  isa.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
  isa.avx512_bf16 = isa.avx512 && __builtin_cpu_supports("avx512bf16");
  isa.amx = (cpuid(7).d & kAmx) == kAmx && saves_tiles();
  return isa;
}

int64_t cpuid_cache_bytes(int level) {
  // Both makers describe caches alike, in different leaves.
  for (const uint32_t leaf : {4u, 0x8000001du}) {
    for (uint32_t index = 0; index < 8; ++index) {
      constexpr uint32_t kNone = 0, kInstructions = 2;
      const Registers cache = cpuid(leaf, index);
      const uint32_t type = bits(cache.a, 0, 5);
      if (type == kNone) break;
      if (type == kInstructions || bits(cache.a, 5, 3) != static_cast<uint32_t>(level)) continue;
      return (int64_t{1} + bits(cache.b, 22, 10)) * (1 + bits(cache.b, 12, 10)) * (1 + bits(cache.b, 0, 12)) *
             (int64_t{1} + cache.c);
    }
  }
  return 0;
}

#else

std::string cpuid_name() {
  return "";
}

IsaFlags cpuid_isa() {
  return {};
}

int64_t cpuid_cache_bytes(int) {
  return 0;
}

#endif
}  // namespace strata::hardware
