// The emulator against the model, with instructions that every processor traps: their fixed bit is cleared.
#include "kernels/cpu/bf16_emulator.h"

#include <gtest/gtest.h>

#include "kernels/cpu/bf16_dot.h"

#if STRATA_HAS_BF16_NATIVE && defined(__linux__)

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/bf16_block.h"
#include "kernels/cpu/listed_rows.h"

#define STRATA_BF16_INCLUDE "kernels/cpu/bf16_block_testing-inl.h"
#include "kernels/cpu/for_each_bf16_target.h"

// Each operand form: registers of both halves, addresses with a base, an index, a short and a long offset,
// and one pair broadcast to all lanes; then two vectors of sums rounded into one. f(sums, pairs, 2, -1):
// sums[16 i] uses form i; pairs: 64 bytes each.
asm(R"(
  .text
  .p2align 4
kEmulatedBegin:
  push %r12
  push %r13
  vmovups (%rdi), %zmm3
  vmovups (%rsi), %zmm17
  vmovups 64(%rsi), %zmm9
  vdpbf16ps %zmm9, %zmm17, %zmm3
  vmovups %zmm3, (%rdi)

  vmovups 64(%rdi), %zmm28
  vmovups (%rsi), %zmm5
  vmovups 64(%rsi), %zmm31
  vdpbf16ps %zmm31, %zmm5, %zmm28
  vmovups %zmm28, 64(%rdi)

  vmovups 128(%rdi), %zmm12
  vdpbf16ps 128(%rsi), %zmm5, %zmm12
  vmovups %zmm12, 128(%rdi)

  vmovups 192(%rdi), %zmm20
  mov %rsi, %r13
  vdpbf16ps 4096(%r13), %zmm17, %zmm20
  vmovups %zmm20, 192(%rdi)

  vmovups 256(%rdi), %zmm1
  mov %rdx, %r9
  vdpbf16ps 8(%rsi,%r9,4), %zmm17, %zmm1
  vmovups %zmm1, 256(%rdi)

  vmovups 320(%rdi), %zmm2
  vdpbf16ps 12(%rsi){1to16}, %zmm17, %zmm2
  vmovups %zmm2, 320(%rdi)

  vmovups 384(%rdi), %zmm30
  mov %rsi, %r12
  vdpbf16ps (%r12,%rcx,8){1to16}, %zmm5, %zmm30
  vmovups %zmm30, 384(%rdi)

  vmovups 448(%rdi), %zmm6
  vdpbf16ps kEmulatedData(%rip), %zmm5, %zmm6
  vmovups %zmm6, 448(%rdi)

  vmovups 512(%rdi), %zmm14
  vmovups 576(%rdi), %zmm29
  vcvtne2ps2bf16 %zmm14, %zmm29, %zmm8
  vmovups %zmm8, 512(%rdi)
  vzeroupper
  pop %r13
  pop %r12
  ret
  .p2align 6
kEmulatedData:
  .rept 16
  .long 0x3fc04020
  .endr
kEmulatedEnd:
)");
extern "C" const unsigned char kEmulatedBegin[], kEmulatedEnd[];

namespace strata::cpu {
namespace {

constexpr int kForms = 8;

TEST(EmulatedBf16Pairs, ExecuteEveryOperandForm) {
  if (!testing::EmulatedBf16Pairs::is_possible()) GTEST_SKIP() << "without AVX-512";
  const auto bytes = static_cast<size_t>(kEmulatedEnd - kEmulatedBegin);
  void* const page =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) GTEST_SKIP() << "no memory that may be written and executed";
  auto* const code = static_cast<unsigned char*>(page);
  std::memcpy(code, kEmulatedBegin, bytes);
  int cleared = 0;
  for (size_t i = 0; i + 6 < bytes; ++i) {
    if (code[i] != 0x62 || (code[i + 1] & 0x0f) != 2) continue;
    const int kind = code[i + 2] & 0x87, opcode = code[i + 4];
    if ((kind != 0x06 || opcode != 0x52) && (kind != 0x07 || opcode != 0x72)) continue;
    code[i + 2] &= 0xfb;
    ++cleared;
  }
  ASSERT_EQ(cleared, kForms + 1);

  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  std::vector<BF16> pairs(4096);
  for (BF16& value : pairs) value = BF16(normal(engine));
  std::vector<float> sums(16 * (kForms + 2)), wanted;
  for (float& sum : sums) sum = normal(engine);
  wanted = sums;
  const std::vector<BF16> first(pairs.begin(), pairs.begin() + 32), data = [] {
    std::vector<BF16> same(32);
    for (size_t i = 0; i < 32; ++i) same[i].bits = i % 2 == 0 ? 0x4020 : 0x3fc0;
    return same;
  }();
  // The second operand of each form: the offset of its values in `pairs`, or of one pair for all lanes.
  const auto at = [&](size_t value) { return std::vector<BF16>(&pairs[value], &pairs[value] + 32); };
  const auto same = [&](size_t value) {
    std::vector<BF16> all;
    for (size_t i = 0; i < 32; ++i) all.push_back(pairs[value + i % 2]);
    return all;
  };
  const std::vector<BF16> second[kForms] = {at(32), at(32),  at(64),     at(2048),
                                            at(8),  same(6), same(2016), data};
  for (int form = 0; form < kForms; ++form)
    bf16_model::dot_of_pairs(wanted.data() + 16 * form, first.data(), second[form].data());

  // Last, two vectors rounded into one.
  std::vector<BF16> rounded;
  for (size_t i = 0; i < 32; ++i) rounded.emplace_back(sums[16 * kForms + i]);
  std::memcpy(&wanted[16 * kForms], rounded.data(), 64);

  // The indices in rdx and rcx.
  using Function = void (*)(float*, const BF16*, int64_t, int64_t);
  {
    const testing::EmulatedBf16Pairs emulated;
    reinterpret_cast<Function>(page)(sums.data(), pairs.data(), 2, 504);
  }
  EXPECT_EQ(std::memcmp(sums.data(), wanted.data(), sums.size() * sizeof(float)), 0);
  for (size_t i = 0; i < 16 * kForms; ++i) EXPECT_EQ(sums[i], wanted[i]) << "form " << i / 16;
  munmap(page, bytes);
}

}  // namespace
}  // namespace strata::cpu

#endif
