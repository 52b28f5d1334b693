#include "kernels/cpu/bf16_emulator.h"

#include "kernels/cpu/bf16_dot.h"
#include "tensor/dtype.h"

#if STRATA_HAS_BF16_NATIVE && defined(__linux__)

#include <cpuid.h>
#include <ucontext.h>
#include <csignal>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace strata::cpu::testing {
namespace {

// Where Linux stores a thread's registers in a signal frame (Intel's manual, volume 1, "XSAVE").
enum Component : uint32_t { kSse = 1, kAvx = 2, kHighHalves = 6, kHigh16 = 7 };
constexpr uint32_t kXmmAt = 160, kHeaderAt = 512;

struct Layout {
  uint32_t ymm = 0, zmm = 0, high = 0;
};
uint32_t offset_of(Component component) {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  __cpuid_count(0xd, component, a, b, c, d);
  return b;
}
Layout layout;              // set before the handler is installed
struct sigaction previous;  // the previous action

class Frame {
 public:
  explicit Frame(ucontext_t& context)
      : context_(context), area_(reinterpret_cast<std::byte*>(context.uc_mcontext.fpregs)) {}

  uint64_t& general(unsigned number) const {
    constexpr int kPlaces[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                               REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return reinterpret_cast<uint64_t&>(context_.uc_mcontext.gregs[kPlaces[number]]);
  }
  uint64_t& next() const { return reinterpret_cast<uint64_t&>(context_.uc_mcontext.gregs[REG_RIP]); }

  // The lower sixteen 512-bit registers are stored in three parts each, the upper sixteen in one.
  void load(void* to, unsigned number) const { move(number, static_cast<std::byte*>(to), false); }
  void store(unsigned number, const void* from) const {
    std::byte copy[64];
    std::memcpy(copy, from, sizeof copy);
    move(number, copy, true);
  }

 private:
  void part(Component component, uint32_t at, std::byte* data, size_t bytes, bool stores) const {
    uint64_t used;  // components whose values are not all zero
    std::memcpy(&used, area_ + kHeaderAt, sizeof used);
    const uint64_t bit = uint64_t{1} << component;
    if (stores) {
      std::memcpy(area_ + at, data, bytes);
      used |= bit;
      std::memcpy(area_ + kHeaderAt, &used, sizeof used);
    } else if ((used & bit) != 0) {
      std::memcpy(data, area_ + at, bytes);
    } else {
      std::memset(data, 0, bytes);
    }
  }
  void move(unsigned number, std::byte* data, bool stores) const {
    if (number >= 16) return part(kHigh16, layout.high + 64 * (number - 16), data, 64, stores);
    part(kSse, kXmmAt + 16 * number, data, 16, stores);
    part(kAvx, layout.ymm + 16 * number, data + 16, 16, stores);
    part(kHighHalves, layout.zmm + 32 * number, data + 32, 32, stores);
  }

  ucontext_t& context_;
  std::byte* area_;
};

float flushed(uint32_t bits) {
  return std::bit_cast<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}
float fused(float sum, uint32_t a, uint32_t b) {
  const float next = std::fma(flushed(a), flushed(b), flushed(std::bit_cast<uint32_t>(sum)));
  return flushed(std::bit_cast<uint32_t>(next));
}

uint16_t rounded(uint32_t bits) {
  return BF16(flushed(bits)).bits;
}

// EVEX.512.F3.0F38.W0 52 /r (VDPBF16PS) and EVEX.512.F2.0F38.W0 72 /r (VCVTNE2PS2BF16) without a mask;
// returns false for other instructions. Bit 2 of the third byte, normally set, is ignored: every processor
// traps if it is cleared.
bool emulate(Frame frame) {
  const auto* const code = reinterpret_cast<const uint8_t*>(frame.next());
  if (code[0] != 0x62 || (code[1] & 0x0f) != 2) return false;
  const bool rounds = (code[2] & 0x83) == 0x03 && code[4] == 0x72;
  if (!rounds && ((code[2] & 0x83) != 0x02 || code[4] != 0x52)) return false;
  const uint8_t p0 = static_cast<uint8_t>(~code[1]), p1 = code[2], p2 = code[3], modrm = code[5];
  const bool same_for_all = (p2 & 0x10) != 0;
  if ((p2 & 0x60) != 0x40 || (p2 & 0x87) != 0) return false;  // 512 bits, all lanes
  const unsigned to = (modrm >> 3 & 7u) | (p0 >> 4 & 8u) | (p0 & 0x10u);
  const unsigned first = (~p1 >> 3 & 15u) | ((p2 & 8) != 0 ? 0u : 16u);
  const unsigned x = p0 >> 6 & 1u, b = p0 >> 5 & 1u, mode = modrm >> 6;
  unsigned size = 6;
  uint32_t second[16];
  if (mode == 3) {
    frame.load(second, (modrm & 7u) | b << 3 | x << 4);
  } else {
    uint64_t address = 0;
    bool far = mode == 2, relative = false;
    if ((modrm & 7) == 4) {
      const uint8_t sib = code[size++];
      const unsigned base = (sib & 7u) | b << 3, index = (sib >> 3 & 7u) | x << 3;
      if ((sib & 7) == 5 && mode == 0) {
        far = true;
      } else {
        address = frame.general(base);
      }
      if (index != 4) address += frame.general(index) << (sib >> 6);
    } else if ((modrm & 7) == 5 && mode == 0) {
      far = relative = true;
    } else {
      address = frame.general((modrm & 7u) | b << 3);
    }
    if (far) {
      int32_t offset;
      std::memcpy(&offset, code + size, sizeof offset);
      size += 4;
      address += static_cast<uint64_t>(int64_t{offset});
    } else if (mode == 1) {
      address += static_cast<uint64_t>(int64_t{static_cast<int8_t>(code[size++])} * (same_for_all ? 4 : 64));
    }
    if (relative) address += frame.next() + size;
    const auto* const memory = reinterpret_cast<const std::byte*>(address);
    if (same_for_all) {
      std::memcpy(second, memory, 4);
      for (int i = 1; i < 16; ++i) second[i] = second[0];
    } else {
      std::memcpy(second, memory, 64);
    }
  }
  uint32_t words[16];
  frame.load(words, first);
  if (rounds) {
    uint16_t halves[32];
    for (int i = 0; i < 16; ++i) {
      halves[i] = rounded(second[i]);
      halves[16 + i] = rounded(words[i]);
    }
    frame.store(to, halves);
  } else {
    float sums[16];
    frame.load(sums, to);
    for (int i = 0; i < 16; ++i) {
      const float high = fused(sums[i], words[i] & 0xffff0000u, second[i] & 0xffff0000u);
      sums[i] = fused(high, words[i] << 16, second[i] << 16);
    }
    frame.store(to, sums);
  }
  frame.next() += size;
  return true;
}

void on_illegal(int, siginfo_t*, void* context) {
  if (!emulate(Frame(*static_cast<ucontext_t*>(context)))) sigaction(SIGILL, &previous, nullptr);
}

}  // namespace

bool EmulatedBf16Pairs::is_possible() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

EmulatedBf16Pairs::EmulatedBf16Pairs() {
  layout = {offset_of(kAvx), offset_of(kHighHalves), offset_of(kHigh16)};
  struct sigaction action = {};
  action.sa_sigaction = on_illegal;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &previous);
}

EmulatedBf16Pairs::~EmulatedBf16Pairs() {
  sigaction(SIGILL, &previous, nullptr);
}

}  // namespace strata::cpu::testing

#else

namespace strata::cpu::testing {

bool EmulatedBf16Pairs::is_possible() {
  return false;
}
EmulatedBf16Pairs::EmulatedBf16Pairs() = default;
EmulatedBf16Pairs::~EmulatedBf16Pairs() = default;

}  // namespace strata::cpu::testing

#endif
