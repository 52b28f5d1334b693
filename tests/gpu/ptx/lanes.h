// Handlers as loops over lanes.
#pragma once

#include <type_traits>

#include "ptx/decoder.h"
#include "ptx/warp.h"

// Before a loop over lanes: no lane reads what another writes.
#if defined(__clang__)
#define STRATA_INDEPENDENT_LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define STRATA_INDEPENDENT_LANES _Pragma("GCC ivdep")
#endif

namespace strata::gpu_tests {

// d[lane] = f(s[lane]…) for the lanes of the mask. Whole warps use a loop that the compiler vectorizes; a
// destination may also be a source, since each lane reads before it writes.
template <typename F, typename D, typename... S>
inline void each_lane(uint32_t mask, F f, D* d, const S*... s) {
  if (mask == kAllLanes) [[likely]] {
    STRATA_INDEPENDENT_LANES
    for (unsigned lane = 0; lane < kLanes; ++lane) d[lane] = static_cast<D>(f(s[lane]...));
  } else {
    for_lanes(mask, [&](unsigned lane) { d[lane] = static_cast<D>(f(s[lane]...)); });
  }
}

// F is a template argument rather than a pointer, so that it is inlined.
template <auto F, typename D, typename A>
void unary(Warp& w, const Instruction& i, uint32_t mask) {
  each_lane(
      mask, [](A a) { return F(a); }, w.reg<D>(i.r[0]), w.reg<A>(i.r[1]));
}
template <auto F, typename D, typename A, typename B = A>
void binary(Warp& w, const Instruction& i, uint32_t mask) {
  each_lane(
      mask, [](A a, B b) { return F(a, b); }, w.reg<D>(i.r[0]), w.reg<A>(i.r[1]), w.reg<B>(i.r[2]));
}
template <auto F, typename D, typename A, typename B = A, typename C = D>
void ternary(Warp& w, const Instruction& i, uint32_t mask) {
  each_lane(
      mask, [](A a, B b, C c) { return F(a, b, c); }, w.reg<D>(i.r[0]), w.reg<A>(i.r[1]), w.reg<B>(i.r[2]),
      w.reg<C>(i.r[3]));
}

// d = op(sources of the given types), all in registers of exactly these widths.
inline Instruction elementwise(Decoder& d, Handler run, unsigned destination_bytes,
                               std::initializer_list<Type> sources) {
  d.need_operands(1 + sources.size());
  Instruction i;
  i.run = run;
  i.r[0] = d.destination(d.operand(0), destination_bytes);
  size_t at = 1;
  for (const Type type : sources) {
    i.r[at] = d.source(d.operand(at), type);
    ++at;
  }
  return i;
}

inline void emit_elementwise(Decoder& d, Handler run, Type type, size_t sources) {
  switch (sources) {
    case 1:
      d.emit(elementwise(d, run, type_bytes(type), {type}));
      break;
    case 2:
      d.emit(elementwise(d, run, type_bytes(type), {type, type}));
      break;
    default:
      d.emit(elementwise(d, run, type_bytes(type), {type, type, type}));
      break;
  }
}

}  // namespace strata::gpu_tests
