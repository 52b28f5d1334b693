#include "kernels/cpu/amx.h"

#if STRATA_HAS_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace strata::cpu::detail {
#if STRATA_HAS_AMX
namespace {

// Linux provides tiles only to processes that request them (Documentation/arch/x86/xstate.rst).
bool ask_for_tiles() {
  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kBoth = kAmxBf16 | kAmxTile;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBoth) != kBoth) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool has_amx_tiles() {
  static const bool has = ask_for_tiles();
  return has;
}
#else
bool has_amx_tiles() {
  return false;
}
#endif

}  // namespace strata::cpu::detail
