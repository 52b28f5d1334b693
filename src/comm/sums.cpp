#include "comm/sums.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.h"

namespace strata::comm {
namespace {

// Makes sums the same on all threads: compute threads flush denormals, others do not.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | 0x8040);
  }
  ~FlushDenormals() {
    _mm_setcsr(before_);
  }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | (uint64_t{1} << 24)));
  }
  ~FlushDenormals() {
    asm volatile("msr fpcr, %0" ::"r"(before_));
  }

 private:
  uint64_t before_ = 0;
#endif
};

constexpr int64_t kBlock = 2048;  // elements: accumulators stay in the L1 cache

template <class T>
using Block = std::array<T, kBlock>;

void round_floats(float* values, DType wire, int64_t n) {
  if (wire == DType::kBF16) {
    for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(BF16(values[i]));
  } else if (wire == DType::kF16) {
    for (int64_t i = 0; i < n; ++i) values[i] = f16_to_float(float_to_f16(values[i]));
  }
}

template <class T>
void add_to(T* __restrict out, const T* __restrict a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(out[i] + a[i]);
}

// `out` may be a or b. These are separate cases, because the compiler does not vectorize a loop whose stores
// may alias its loads.
template <class T>
void add(T* out, const T* a, const T* b, int64_t n) {
  if (out == a) return add_to(out, b, n);
  if (out == b) return add_to(out, a, n);
  T* __restrict sum = out;
  for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<T>(a[i] + b[i]);
}

// n elements of an addend, rounded to the wire type: in place, or in `scratch`.
template <class T>
const T* view(const SumRule& rule, const Addend& addend, int64_t begin, int64_t n, T* scratch) {
  const auto* at = static_cast<const std::byte*>(addend.at) + begin * size_of(addend.type);
  if constexpr (std::is_same_v<T, float>) {
    if (addend.type != DType::kF32 || rule.wire != DType::kF32) {
      convert(scratch, DType::kF32, at, addend.type, n);
      if (addend.type != rule.wire) round_floats(scratch, rule.wire, n);
      return scratch;
    }
  }
  return reinterpret_cast<const T*>(at);
}

template <class T>
struct Scratch {
  Block<T> a, b, part, total;
};

// Sums one block into `out`.
template <class T>
void add_block(const SumRule& rule, std::span<const Addend> addends, std::span<const int> ends, int64_t begin,
               int64_t n, std::byte* out, DType out_type, Scratch<T>& scratch) {
  const auto bytes = static_cast<size_t>(n) * sizeof(T);
  const bool plain = !std::is_same_v<T, float> || out_type == DType::kF32;
  // With at most two addends in one domain, an addend that is `out` is read before it is written.
  const bool direct = plain && !rule.adds && addends.size() <= 2 && ends.size() == 1;
  T* total = direct ? reinterpret_cast<T*>(out) : scratch.total.data();
  size_t next = 0;
  for (size_t d = 0; d < ends.size(); ++d) {
    T* sum = d == 0 ? total : scratch.part.data();
    const auto end = static_cast<size_t>(ends[d]);
    const T* first = view(rule, addends[next++], begin, n, scratch.a.data());
    if (next == end) {
      if (sum != first) std::memcpy(sum, first, bytes);
    } else {
      add(sum, first, view(rule, addends[next++], begin, n, scratch.b.data()), n);
      while (next < end) add(sum, sum, view(rule, addends[next++], begin, n, scratch.b.data()), n);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (ends.size() > 1) round_floats(sum, rule.wire, n);
    }
    if (d > 0) add(total, total, sum, n);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (rule.rounds) round_floats(total, rule.wire, n);
    if (rule.adds) {
      convert(scratch.a.data(), DType::kF32, out, out_type, n);
      add(total, scratch.a.data(), total, n);
    }
    if (!direct) convert(out, out_type, total, DType::kF32, n);
  } else {
    if (rule.adds) add(total, reinterpret_cast<const T*>(out), total, n);
    if (!direct) std::memcpy(out, total, bytes);
  }
}

template <class T>
void add_all(const SumRule& rule, std::span<const Addend> addends, std::span<const int> ends, std::byte* out,
             DType out_type, int64_t n) {
  Scratch<T> scratch;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t length = std::min(kBlock, n - i);
    add_block<T>(rule, addends, ends, i, length, out + i * size_of(out_type), out_type, scratch);
  }
}

}  // namespace

void add_up(const SumRule& rule, std::span<const Addend> addends, std::span<const int> domain_ends, void* out,
            DType out_type, int64_t n) {
  const FlushDenormals flush;
  auto* bytes = static_cast<std::byte*>(out);
  switch (rule.dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
      return add_all<float>(rule, addends, domain_ends, bytes, out_type, n);
    case DType::kF64:
      return add_all<double>(rule, addends, domain_ends, bytes, out_type, n);
    // Integers wrap around, which is defined only for unsigned types.
    case DType::kI64:
      return add_all<uint64_t>(rule, addends, domain_ends, bytes, out_type, n);
    case DType::kI32:
      return add_all<uint32_t>(rule, addends, domain_ends, bytes, out_type, n);
    case DType::kI16:
    case DType::kU16:
      return add_all<uint16_t>(rule, addends, domain_ends, bytes, out_type, n);
    case DType::kI8:
    case DType::kU8:
      return add_all<uint8_t>(rule, addends, domain_ends, bytes, out_type, n);
    case DType::kBool:
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
    case DType::kE2M1:
      break;
  }
  throw InternalError("cannot sum {}", name_of(rule.dtype));
}

}  // namespace strata::comm
