// PTX kernels that measure a GPU.
#pragma once

#include <fmt/core.h>

#include <string>

namespace strata::gpu_tests {

inline constexpr char kFactHead[] = ".version 8.0\n.target sm_80\n.address_size 64\n";

inline constexpr char kEmptyKernel[] = R"(
.visible .entry nothing() { ret; }
.visible .entry nothing256(.param .align 8 .b8 all[256]) { ret; }
)";

// Copies n vectors of 16 bytes; each thread has four loads in flight.
inline constexpr char kCopyKernel[] = R"(
.visible .entry copy16(.param .u64 to, .param .u64 from, .param .u64 n)
{
  .reg .pred %p<5>; .reg .b32 %r<40>; .reg .b64 %d<20>;
  ld.param.u64 %d0, [to]; ld.param.u64 %d1, [from]; ld.param.u64 %d2, [n];
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r0, %r1, %r2;
  mov.u32 %r4, %nctaid.x; mul.lo.u32 %r5, %r4, %r1;
  cvt.u64.u32 %d3, %r3; cvt.u64.u32 %d4, %r5; shl.b64 %d5, %d4, 4; shl.b64 %d6, %d3, 4;
  add.u64 %d0, %d0, %d6; add.u64 %d1, %d1, %d6;
LOOP:
  add.u64 %d7, %d3, %d4; add.u64 %d8, %d7, %d4; add.u64 %d9, %d8, %d4;
  setp.lt.u64 %p0, %d3, %d2; setp.lt.u64 %p1, %d7, %d2; setp.lt.u64 %p2, %d8, %d2; setp.lt.u64 %p3, %d9, %d2;
  add.u64 %d10, %d1, %d5; add.u64 %d11, %d10, %d5; add.u64 %d12, %d11, %d5;
  @%p0 ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%d1];
  @%p1 ld.global.v4.u32 {%r14, %r15, %r16, %r17}, [%d10];
  @%p2 ld.global.v4.u32 {%r18, %r19, %r20, %r21}, [%d11];
  @%p3 ld.global.v4.u32 {%r22, %r23, %r24, %r25}, [%d12];
  add.u64 %d13, %d0, %d5; add.u64 %d14, %d13, %d5; add.u64 %d15, %d14, %d5;
  @%p0 st.global.v4.u32 [%d0], {%r10, %r11, %r12, %r13};
  @%p1 st.global.v4.u32 [%d13], {%r14, %r15, %r16, %r17};
  @%p2 st.global.v4.u32 [%d14], {%r18, %r19, %r20, %r21};
  @%p3 st.global.v4.u32 [%d15], {%r22, %r23, %r24, %r25};
  add.u64 %d3, %d9, %d4; add.u64 %d1, %d12, %d5; add.u64 %d0, %d15, %d5;
  setp.lt.u64 %p4, %d3, %d2;
  @%p4 bra LOOP;
  ret;
}
)";

// Runs for the given number of clocks; out[0] = clocks, out[1] = nanoseconds.
inline constexpr char kSpinKernel[] = R"(
.visible .entry spin(.param .u64 out, .param .u64 clocks)
{
  .reg .pred %p<2>; .reg .b64 %d<8>;
  ld.param.u64 %d0, [out]; ld.param.u64 %d1, [clocks];
  mov.u64 %d2, %globaltimer; mov.u64 %d3, %clock64;
LOOP:
  mov.u64 %d4, %clock64; sub.u64 %d5, %d4, %d3; setp.lt.u64 %p0, %d5, %d1;
  @%p0 bra LOOP;
  mov.u64 %d6, %globaltimer; sub.u64 %d6, %d6, %d2;
  st.global.u64 [%d0], %d5; st.global.u64 [%d0+8], %d6;
  ret;
}
)";

// Follows a chain of pointers; out[0] = clocks of `steps` loads.
inline constexpr char kChaseKernel[] = R"(
.visible .entry chase(.param .u64 out, .param .u64 first, .param .u32 steps)
{
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<8>;
  ld.param.u64 %d0, [out]; ld.param.u64 %d1, [first]; ld.param.u32 %r0, [steps];
  mov.u64 %d2, %clock64;
LOOP:
  ld.global.cg.u64 %d1, [%d1]; sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0;
  @%p0 bra LOOP;
  mov.u64 %d3, %clock64; sub.u64 %d3, %d3, %d2;
  st.global.u64 [%d0], %d3; st.global.u64 [%d0+8], %d1;
  ret;
}
)";

// Repeats eight independent instructions per warp. %f0 … %f31 are sums; %r1 … %r6 hold two small bf16 values
// each that differ by lane.
inline std::string loop_kernel(const std::string& name, const std::string& instructions) {
  std::string text = fmt::format(
      ".visible .entry {}(.param .u64 out, .param .u32 rounds)\n{{\n.reg .pred %p<2>; .reg .b32 %r<16>; .reg "
      ".f32 %f<40>; .reg .b64 %d<2>;\nld.param.u64 %d0, [out]; ld.param.u32 %r0, [rounds]; mov.u32 %r8, "
      "%tid.x;\n",
      name);
  for (int n = 1; n <= 6; ++n) {
    text += fmt::format(
        "mad.lo.u32 %r{0}, %r8, 0x9e3779b1, {1}; and.b32 %r{0}, %r{0}, 0x807f807f; or.b32 %r{0}, %r{0}, "
        "0x3f003f00;\n",
        n, n * 0x85ebca6);
  }
  for (int n = 0; n < 32; ++n) text += fmt::format("cvt.rn.f32.u32 %f{}, %r8;\n", n);
  text += "mov.f32 %f32, 0f3F7FFFFE; mov.f32 %f33, 0f3F000000;\nLOOP:\n" + instructions +
          "sub.u32 %r0, %r0, 1; setp.ne.u32 %p0, %r0, 0; @%p0 bra LOOP;\n";
  for (int n = 1; n < 32; ++n) text += fmt::format("add.f32 %f0, %f0, %f{};\n", n);
  // Never true; prevents the sums from being optimized away.
  return text + "setp.eq.f32 %p1, %f0, 0f7F7FFFFF; @%p1 st.global.f32 [%d0], %f0; ret;\n}\n";
}

}  // namespace strata::gpu_tests
