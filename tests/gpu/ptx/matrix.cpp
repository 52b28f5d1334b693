// mma, ldmatrix, stmatrix, movmatrix. Lane l has group g = l / 4 and position t = l % 4; the layouts are
// those of the PTX ISA.
#include <array>
#include <type_traits>

#include "ptx/access.h"
#include "ptx/accumulation.h"
#include "ptx/floating.h"
#include "ptx/lanes.h"
#include "ptx/opcodes.h"
#include "ptx/traffic.h"

namespace strata::gpu_tests {
namespace {

using Row = float __attribute__((vector_size(32)));

// c[16][8] += a[16][k] · b[k][8] in fp32, sequentially in order of k.
inline __attribute__((always_inline)) void multiply(const float* a, const Row* b, Row* c, unsigned depth) {
  // Half of the rows at a time, so that their sums stay in registers.
  for (unsigned first = 0; first < 16; first += 8) {
    Row sum[8];
    for (unsigned n = 0; n < 8; ++n) sum[n] = c[first + n];
    for (unsigned k = 0; k < depth; ++k) {
      const Row right = b[k];
      for (unsigned n = 0; n < 8; ++n) sum[n] += a[(first + n) * depth + k] * right;
    }
    for (unsigned n = 0; n < 8; ++n) c[first + n] = sum[n];
  }
}

void multiply_plain(const float* a, const Row* b, Row* c, unsigned depth) {
  multiply(a, b, c, depth);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_avx2(const float* a, const Row* b, Row* c, unsigned depth) {
  multiply(a, b, c, depth);
}
#endif

using Multiply = void (*)(const float* a, const Row* b, Row* c, unsigned depth);
Multiply best_multiply() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return multiply_avx2;
#endif
  return multiply_plain;
}

template <Type kType>
constexpr Format format_of() {
  return kType == Type::kF16 ? kHalf : kType == Type::kBf16 ? kBrain : kTensor32;
}

// Elements of a and b, as float or bits.
template <Type kType, typename T>
T element(uint32_t word, unsigned which) {
  constexpr bool kBits = std::is_same_v<T, uint32_t>;
  const auto small = static_cast<uint16_t>(word >> (16 * which));
  if constexpr (kBits)
    return kType == Type::kTf32 ? word >> 13 : small;
  else if constexpr (kType == Type::kTf32)
    return std::bit_cast<float>(word & 0xffff'e000);
  else
    return kType == Type::kF16 ? half_value(small) : brain_value(small);
}

// Reads the fragments of all lanes into left[16][depth] and right[depth][8].
template <Type kType, typename T>
void gather(Warp& w, const uint32_t* a, unsigned a_registers, unsigned depth, T* left, T* right) {
  constexpr bool kSmall = kType != Type::kTf32;
  const uint32_t* b = a + a_registers;
  for (unsigned n = 0; n < a_registers; ++n) {
    const uint32_t* lanes = w.reg<uint32_t>(a[n]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const unsigned row = lane / 4 + (n & 1) * 8;
      if constexpr (kSmall) {
        const unsigned column = lane % 4 * 2 + (n >> 1) * 8;
        left[row * depth + column] = element<kType, T>(lanes[lane], 0);
        left[row * depth + column + 1] = element<kType, T>(lanes[lane], 1);
      } else {
        left[row * depth + lane % 4 + (n >> 1) * 4] = element<kType, T>(lanes[lane], 0);
      }
    }
  }
  for (unsigned n = 0; n < a_registers / 2; ++n) {
    const uint32_t* lanes = w.reg<uint32_t>(b[n]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const unsigned column = lane / 4;
      if constexpr (kSmall) {
        const unsigned row = lane % 4 * 2 + n * 8;
        right[row * 8 + column] = element<kType, T>(lanes[lane], 0);
        right[(row + 1) * 8 + column] = element<kType, T>(lanes[lane], 1);
      } else {
        right[(lane % 4 + n * 4) * 8 + column] = element<kType, T>(lanes[lane], 0);
      }
    }
  }
}

// c[16][8] += a · b with the addition of an H200.
template <Type kType>
void multiply_hopper(Warp& w, const uint32_t* a, unsigned a_registers, unsigned depth, float* sum) {
  std::array<uint32_t, 16 * 16> left;
  std::array<uint32_t, 16 * 8> right;
  gather<kType>(w, a, a_registers, depth, left.data(), right.data());
  std::array<uint32_t, 16> column;
  for (unsigned n = 0; n < 8; ++n) {
    for (unsigned k = 0; k < depth; ++k) column[k] = right[k * 8 + n];
    for (unsigned m = 0; m < 16; ++m) {
      float& c = sum[m * 8 + n];
      c = std::bit_cast<float>(kHopperSum(std::span(left).subspan(m * depth, depth),
                                          std::span(column).first(depth), std::bit_cast<uint32_t>(c),
                                          format_of<kType>()));
    }
  }
}

// The pool: d0 … d3, a…, b…, c0 … c3. `vector`: registers of a; b has half of that number.
template <Type kType>
void run_mma(Warp& w, const Instruction& i, uint32_t) {
  const unsigned a_registers = i.vector;
  const unsigned depth = (kType != Type::kTf32 ? 4 : 2) * a_registers;
  const uint32_t* d = w.more(i);
  const uint32_t* a = d + 4;
  const uint32_t* c = a + a_registers + a_registers / 2;
  alignas(32) std::array<float, 16 * 8> sum;
  const auto place = [](unsigned lane, unsigned n) {
    return (lane / 4 + (n >> 1) * 8) * 8 + lane % 4 * 2 + (n & 1);
  };
  for (unsigned n = 0; n < 4; ++n) {
    const float* lanes = w.reg<float>(c[n]);
    for (unsigned lane = 0; lane < kLanes; ++lane) sum[place(lane, n)] = lanes[lane];
  }
  if (w.block->launch->mma == MmaSum::kHopper) {
    multiply_hopper<kType>(w, a, a_registers, depth, sum.data());
  } else {
    std::array<float, 16 * 16> left;
    alignas(32) std::array<float, 16 * 8> right;
    gather<kType>(w, a, a_registers, depth, left.data(), right.data());
    static const Multiply kMultiply = best_multiply();
    kMultiply(left.data(), reinterpret_cast<const Row*>(right.data()), reinterpret_cast<Row*>(sum.data()),
              depth);
  }
  for (unsigned n = 0; n < 4; ++n) {
    float* lanes = w.reg<float>(d[n]);
    for (unsigned lane = 0; lane < kLanes; ++lane) lanes[lane] = canonical(sum[place(lane, n)]);
  }
}

void append(std::vector<uint32_t>& list, const std::vector<uint32_t>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

void decode_mma(Decoder& d) {
  d.need("sync");
  d.need("aligned");
  unsigned depth = 0;
  for (const auto& [name, k] :
       {std::pair<const char*, unsigned>{"m16n8k4", 4}, {"m16n8k8", 8}, {"m16n8k16", 16}}) {
    if (d.take(name)) depth = k;
  }
  if (depth == 0) d.fail("{}: this shape is not implemented", d.opcode());
  d.need("row");
  d.need("col");
  d.take_type_of({Type::kF32});
  const Type type = d.take_type_of({Type::kF16, Type::kBf16, Type::kTf32});
  d.take_type_of({type});
  d.take_type_of({Type::kF32});
  const bool tensor = type == Type::kTf32;
  if (tensor ? depth == 16 : depth == 4)
    d.fail("{}: this shape does not exist for .{}", d.opcode(), type_name(type));
  Instruction i;
  i.kind = Instruction::Kind::kAligned;
  i.vector = static_cast<uint8_t>(depth / (tensor ? 2 : 4));
  d.need_operands(4);
  std::vector<uint32_t> registers = d.vector_destinations(d.operand(0), 4, 4);
  append(registers, d.vector_sources(d.operand(1), Type::kB32, i.vector));
  append(registers, d.vector_sources(d.operand(2), Type::kB32, i.vector / 2));
  append(registers, d.vector_sources(d.operand(3), Type::kF32, 4));
  i.more = d.pool(registers);
  i.run = tensor ? run_mma<Type::kTf32> : type == Type::kF16 ? run_mma<Type::kF16> : run_mma<Type::kBf16>;
  d.emit(i);
}

constexpr unsigned kRowBytes = 16;

// Lane 8m + r has the address of row r of matrix m. Element (row, column) goes to lane 4·row + column / 2;
// with .trans to lane 4·column + row / 2.
void run_load_matrix(Warp& w, const Instruction& i, uint32_t) {
  const unsigned matrices = i.vector;
  std::array<const std::byte*, kLanes> rows;
  AccessTally tally(w, i, kRowBytes, Access::kRead);
  for (unsigned lane = 0; lane < matrices * 8; ++lane) {
    const Place place =
        access(w, i, lane, Space::kShared, lane_address(w, i, i.r[1], lane), kRowBytes, Access::kRead);
    tally.add(lane, place);
    rows[lane] = place.data;
  }
  for (unsigned matrix = 0; matrix < matrices; ++matrix) {
    uint32_t* out = w.reg<uint32_t>(w.more(i)[matrix]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if (i.option == 0) {
        std::memcpy(out + lane, rows[matrix * 8 + lane / 4] + lane % 4 * 4, 4);
      } else {
        uint16_t pair[2];
        for (unsigned n = 0; n < 2; ++n)
          std::memcpy(pair + n, rows[matrix * 8 + lane % 4 * 2 + n] + lane / 4 * 2, 2);
        std::memcpy(out + lane, pair, 4);
      }
    }
  }
  w.block->launch->counters->shared_bytes += matrices * 8 * kRowBytes;
}

void run_store_matrix(Warp& w, const Instruction& i, uint32_t) {
  const unsigned matrices = i.vector;
  std::array<std::byte*, kLanes> rows;
  AccessTally tally(w, i, kRowBytes, Access::kWrite);
  for (unsigned lane = 0; lane < matrices * 8; ++lane) {
    const Place place =
        access(w, i, lane, Space::kShared, lane_address(w, i, i.r[1], lane), kRowBytes, Access::kWrite);
    tally.add(lane, place);
    rows[lane] = place.data;
  }
  for (unsigned matrix = 0; matrix < matrices; ++matrix) {
    const uint32_t* in = w.reg<uint32_t>(w.more(i)[matrix]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if (i.option == 0) {
        std::memcpy(rows[matrix * 8 + lane / 4] + lane % 4 * 4, in + lane, 4);
      } else {
        uint16_t pair[2];
        std::memcpy(pair, in + lane, 4);
        for (unsigned n = 0; n < 2; ++n)
          std::memcpy(rows[matrix * 8 + lane % 4 * 2 + n] + lane / 4 * 2, pair + n, 2);
      }
    }
  }
  w.block->launch->counters->shared_bytes += matrices * 8 * kRowBytes;
}

template <bool kLoad>
void decode_matrix_access(Decoder& d) {
  d.need("sync");
  d.need("aligned");
  d.need("m8n8");
  Instruction i;
  i.kind = Instruction::Kind::kAligned;
  i.space = Space::kShared;
  if (d.take("x1"))
    i.vector = 1;
  else if (d.take("x2"))
    i.vector = 2;
  else if (d.take("x4"))
    i.vector = 4;
  else
    d.fail("{} needs .x1, .x2 or .x4", d.opcode());
  i.option = d.take("trans") ? 1 : 0;
  const bool shared = d.take("shared") || d.take("shared::cta");
  d.take_type_of({Type::kB16});
  d.need_operands(2);
  d.address(d.operand(kLoad ? 1 : 0), &i, 1);
  if (!shared) d.fail("{}: only addresses of .shared are implemented", d.opcode());
  const Operand& data = d.operand(kLoad ? 0 : 1);
  i.more =
      d.pool(kLoad ? d.vector_destinations(data, 4, i.vector) : d.vector_sources(data, Type::kB32, i.vector));
  i.run = kLoad ? run_load_matrix : run_store_matrix;
  d.emit(i);
}

// Transposes an 8 by 8 matrix of 16 bits across the warp.
void decode_movmatrix(Decoder& d) {
  d.need("sync");
  d.need("aligned");
  d.need("m8n8");
  d.need("trans");
  d.take_type_of({Type::kB16});
  d.need_operands(2);
  Instruction i;
  i.kind = Instruction::Kind::kAligned;
  i.r[0] = d.destination(d.operand(0), 4);
  i.r[1] = d.source(d.operand(1), Type::kB32);
  i.run = [](Warp& w, const Instruction& at, uint32_t) {
    std::array<uint16_t, 64> matrix;
    std::memcpy(matrix.data(), w.reg<uint16_t>(at.r[1]), sizeof matrix);
    uint16_t* out = w.reg<uint16_t>(at.r[0]);
    for (unsigned row = 0; row < 8; ++row) {
      for (unsigned column = 0; column < 8; ++column) out[row * 8 + column] = matrix[column * 8 + row];
    }
  };
  d.emit(i);
}

constexpr Opcode kOpcodes[] = {{"mma", decode_mma},
                               {"ldmatrix", decode_matrix_access<true>},
                               {"stmatrix", decode_matrix_access<false>},
                               {"movmatrix", decode_movmatrix}};

}  // namespace

std::span<const Opcode> matrix_opcodes() {
  return kOpcodes;
}

}  // namespace strata::gpu_tests
