#include "quantize/tiles.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/tiles.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "quantize/bytes-inl.h"
#include "quantize/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

// Elements whose random bits are made together.
inline constexpr int64_t kRandomRun = 512;

template <typename Rounding>
void encode_vectors(const Rounding& round, const float* in, int64_t n, uint8_t* codes,
                    const uint32_t* words) {
  for_vectors(n, [&](int64_t i, auto span)
                     HWY_ATTR { store_bytes(round(load(in + i, span), words + i), codes + i, span); });
}

void EncodeRun(const FormatSpec& spec, const float* in, int64_t n, uint8_t* codes,
               const StochasticBits* stochastic, int64_t first) {
  const bool pairs = spec.bits() == 4;
  alignas(64) uint8_t buffer[kRandomRun];
  uint32_t words[kRandomRun + kRandomMargin];
  for (int64_t done = 0; done < n; done += kRandomRun) {
    const int64_t count = std::min(kRandomRun, n - done);
    uint8_t* const to = pairs ? buffer : codes + done;
    if (stochastic != nullptr) {
      encode_vectors(Stochastic(spec), in + done, count, to,
                     random_words(*stochastic, first + done, count, words));
    } else {
      encode_vectors(Nearest<false>(spec), in + done, count, to, words);
    }
    if (pairs) pack_pairs(buffer, count, codes + done / 2);
  }
}

// Magnitudes compare as integers, NaN above infinity.
HWY_INLINE IntVector magnitude(Vector v) {
  return hn::And(hn::BitCast(I32(), v), hn::Set(I32(), 0x7fffffff));
}
// Rows that are passed together.
inline constexpr int64_t kRowsTogether = 4;

#if HWY_TARGET != HWY_SCALAR
// The greatest of the blocks of 128 bits.
template <typename D>
HWY_INLINE auto greatest_block(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return greatest_block(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    static_cast<void>(d);
    return v;
  }
}
#endif

// to[0], to[pitch] … = the greatest lanes of a, b, c and d.
HWY_INLINE void store_greatest(IntVector a, IntVector b, IntVector c, IntVector d, float* to, int64_t pitch) {
  HWY_ALIGN float greatest[kRowsTogether];
#if HWY_TARGET == HWY_SCALAR
  const IntVector all[] = {a, b, c, d};
  for (int64_t k = 0; k < kRowsTogether; ++k) greatest[k] = std::bit_cast<float>(hn::GetLane(all[k]));
#else
  const I32 di;
  const hn::Repartition<int64_t, I32> pairs;
  const auto ab = hn::Max(hn::InterleaveLower(di, a, b), hn::InterleaveUpper(di, a, b));
  const auto cd = hn::Max(hn::InterleaveLower(di, c, d), hn::InterleaveUpper(di, c, d));
  const auto lower = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  const auto upper = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  const auto most = greatest_block(di, hn::Max(hn::BitCast(di, lower), hn::BitCast(di, upper)));
  const hn::FixedTag<float, kRowsTogether> block;
  hn::Store(hn::BitCast(block, most), block, greatest);
#endif
  for (int64_t k = 0; k < kRowsTogether; ++k) to[k * pitch] = greatest[k];
}

// Passes the rows of a tile, row_of(row)(i) a vector of them, and finds the greatest magnitudes. The last row may be passed
// several times.
template <int64_t kWidth, bool kDown, typename RowOf>
HWY_INLINE void pass_rows(int64_t rows, const Greatest& greatest, const RowOf& row_of) {
  const int log_height = kDown ? std::countr_zero(static_cast<uint64_t>(greatest.height)) : 0;
  for (int64_t row = 0; row < rows; row += kRowsTogether) {
    float* const down = kDown ? greatest.down + (row >> log_height) * kTile : nullptr;
    if (kDown && (row & (greatest.height - 1)) == 0) std::fill_n(down, kTile, 0.0f);
    const auto row_a = row_of(row), row_b = row_of(std::min(row + 1, rows - 1));
    const auto row_c = row_of(std::min(row + 2, rows - 1)), row_d = row_of(std::min(row + 3, rows - 1));
    for (int64_t begin = 0; begin < kTile; begin += kWidth) {
      IntVector most_a = hn::Zero(I32()), most_b = most_a, most_c = most_a, most_d = most_a;
      for (int64_t i = begin; i < begin + kWidth; i += lanes()) {
        const IntVector a = magnitude(row_a(i)), b = magnitude(row_b(i));
        const IntVector c = magnitude(row_c(i)), d = magnitude(row_d(i));
        most_a = hn::Max(most_a, a);
        most_b = hn::Max(most_b, b);
        most_c = hn::Max(most_c, c);
        most_d = hn::Max(most_d, d);
        if constexpr (kDown) {
          const IntVector before = hn::BitCast(I32(), hn::LoadU(F32(), down + i));
          const IntVector of_rows = hn::Max(hn::Max(a, b), hn::Max(c, d));
          hn::StoreU(hn::BitCast(F32(), hn::Max(before, of_rows)), F32(), down + i);
        }
      }
      if (greatest.across != nullptr)
        store_greatest(most_a, most_b, most_c, most_d,
                       greatest.across + row * (kTile / kWidth) + begin / kWidth, kTile / kWidth);
    }
  }
}
template <bool kDown, typename RowOf>
HWY_INLINE void pass_rows(int64_t rows, const Greatest& greatest, const RowOf& row_of) {
  if (greatest.width == 16) return pass_rows<16, kDown>(rows, greatest, row_of);
  if (greatest.width == 32) return pass_rows<32, kDown>(rows, greatest, row_of);
  pass_rows<kTile, kDown>(rows, greatest, row_of);
}
template <typename RowOf>
HWY_INLINE void pass_rows(int64_t rows, const Greatest& greatest, const RowOf& row_of) {
  if (greatest.down != nullptr) return pass_rows<true>(rows, greatest, row_of);
  pass_rows<false>(rows, greatest, row_of);
}

void FindGreatest(const Tile& tile, const Greatest& greatest) {
  pass_rows(tile.rows, greatest, [&](int64_t row) HWY_ATTR {
    const float* const from = tile.values + row * kTile;
    return [from](int64_t i) HWY_ATTR { return hn::Load(F32(), from + i); };
  });
}

// Rows between a load and the prefetch of a row: fp32 became 5 % faster on Zen 5 (2026-11-27).
inline constexpr int64_t kRowsAhead = 12;

template <typename T>
void load_tile(const T* data, int64_t stride, const Greatest& greatest, Tile* tile) {
  const int64_t rows = tile->rows, columns = tile->columns;
  std::fill(tile->values + rows * kTile, tile->values + filled(rows) * kTile, 0.0f);
  if (columns == kTile) {
    return pass_rows(rows, greatest, [&](int64_t row) HWY_ATTR {
      const T* const from = data + row * stride;
      float* const to = tile->values + row * kTile;
      const T* const ahead = data + std::min(row + kRowsAhead, rows - 1) * stride;
      return [from, to, ahead](int64_t i) HWY_ATTR {
        if (i * static_cast<int64_t>(sizeof(T)) % 64 == 0) __builtin_prefetch(ahead + i);
        const Vector v = load(from + i, Whole());
        hn::Store(v, F32(), to + i);
        return v;
      };
    });
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* const to = tile->values + row * kTile;
    const T* const from = data + row * stride;
    for_vectors(columns, [&](int64_t i, auto span) HWY_ATTR { store(to + i, load(from + i, span), span); });
    std::fill(to + columns, to + kTile, 0.0f);
  }
  FindGreatest(*tile, greatest);
}
void LoadTile(const void* data, DType dtype, int64_t stride, const Greatest& greatest, Tile* tile) {
  if (dtype == DType::kBF16) return load_tile(static_cast<const BF16*>(data), stride, greatest, tile);
  load_tile(static_cast<const float*>(data), stride, greatest, tile);
}

#if HWY_TARGET == HWY_SCALAR
void HadamardAcross(Tile* tile, HadamardSigns signs) {
  for (int64_t row = 0; row < tile->rows; ++row) {
    for (int64_t column = 0; column + kHadamard <= tile->columns; column += kHadamard)
      hadamard_16(tile->values + row * kTile + column, 1, signs);
  }
}
#else
// Adds to each lane the one `kApart` lanes from it, and subtracts in the upper of two.
template <int kApart>
class Butterfly {
 public:
  Butterfly() {
    HWY_ALIGN uint32_t partners[HWY_LANES(float)];
    HWY_ALIGN uint32_t signs[HWY_LANES(float)];
    for (uint32_t i = 0; i < HWY_LANES(float); ++i) {
      partners[i] = (i ^ kApart) % HWY_LANES(float);
      signs[i] = (i & kApart) != 0 ? 0x80000000u : 0;
    }
    signs_ = hn::BitCast(F32(), hn::Load(U32(), signs));
    partners_ = hn::SetTableIndices(F32(), partners);
  }
  HWY_INLINE Vector operator()(Vector v) const {
    return hn::Add(hn::TableLookupLanes(v, partners_), hn::Xor(v, signs_));
  }

 private:
  Vector signs_ = hn::Zero(F32());
  decltype(hn::SetTableIndices(F32(), static_cast<const uint32_t*>(nullptr))) partners_;
};

// The same sums and differences as hadamard_16(), in its order.
void HadamardAcross(Tile* tile, HadamardSigns signs) {
  constexpr int64_t kLanes = HWY_LANES(float), kVectors = std::max<int64_t>(1, kHadamard / kLanes);
  constexpr int64_t kPerVector = std::max<int64_t>(1, kLanes / kHadamard);
  const Butterfly<8> by_8;
  const Butterfly<4> by_4;
  const Butterfly<2> by_2;
  const Butterfly<1> by_1;
  HWY_ALIGN uint32_t bits[kVectors * kLanes];
  for (int64_t i = 0; i < kVectors * kLanes; ++i)
    bits[i] = (signs.bits >> (i % kHadamard) & 1) != 0 ? 0x80000000u : 0;
  const int64_t whole = tile->columns / kHadamard * kHadamard;
  for (int64_t row = 0; row < tile->rows; ++row) {
    float* const values = tile->values + row * kTile;
    for (int64_t column = 0; column < whole; column += kHadamard * kPerVector) {
      Vector x[kVectors];
      for (int64_t i = 0; i < kVectors; ++i) {
        const Vector v = hn::Load(F32(), values + column + i * kLanes);
        x[i] = hn::Xor(v, hn::BitCast(F32(), hn::Load(U32(), bits + i * kLanes)));
      }
      for (int64_t apart = kVectors / 2; apart > 0; apart /= 2) {
        for (int64_t i = 0; i < kVectors; ++i) {
          if ((i & apart) != 0) continue;
          const Vector sum = hn::Add(x[i], x[i + apart]), difference = hn::Sub(x[i], x[i + apart]);
          x[i] = sum;
          x[i + apart] = difference;
        }
      }
      for (int64_t i = 0; i < kVectors; ++i) {
        if constexpr (kLanes > 8) x[i] = by_8(x[i]);
        if constexpr (kLanes > 4) x[i] = by_4(x[i]);
        x[i] = hn::Mul(by_1(by_2(x[i])), constant(0.25f));
        hn::Store(x[i], F32(), values + column + i * kLanes);
      }
    }
  }
}
#endif

void HadamardDown(Tile* tile, HadamardSigns signs) {
  for (int64_t row = 0; row + kHadamard <= tile->rows; row += kHadamard) {
    for (int64_t column = 0; column < kTile; column += lanes()) {
      float* const at = tile->values + row * kTile + column;
      Vector x[kHadamard];
      for (int64_t i = 0; i < kHadamard; ++i) {
        x[i] = hn::Load(F32(), at + i * kTile);
        if ((signs.bits >> i & 1) != 0) x[i] = hn::Neg(x[i]);
      }
      for (int64_t apart = kHadamard / 2; apart > 0; apart /= 2) {
        for (int64_t i = 0; i < kHadamard; ++i) {
          if ((i & apart) != 0) continue;
          const Vector sum = hn::Add(x[i], x[i + apart]), difference = hn::Sub(x[i], x[i + apart]);
          x[i] = sum;
          x[i + apart] = difference;
        }
      }
      for (int64_t i = 0; i < kHadamard; ++i)
        hn::Store(hn::Mul(x[i], constant(0.25f)), F32(), at + i * kTile);
    }
  }
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::quantize::tiles {

HWY_EXPORT(EncodeRun);
HWY_EXPORT(LoadTile);
HWY_EXPORT(FindGreatest);
HWY_EXPORT(HadamardAcross);
HWY_EXPORT(HadamardDown);

void encode_run(Format format, const float* in, int64_t n, uint8_t* codes, const StochasticBits* stochastic,
                int64_t first) {
  HWY_DYNAMIC_DISPATCH(EncodeRun)(spec_of(format), in, n, codes, stochastic, first);
}
void load(const void* data, DType dtype, int64_t stride, const Greatest& greatest, Tile* tile) {
  HWY_DYNAMIC_DISPATCH(LoadTile)(data, dtype, stride, greatest, tile);
}
void hadamard_across(Tile* tile, HadamardSigns signs) {
  HWY_DYNAMIC_DISPATCH(HadamardAcross)(tile, signs);
}
void hadamard_down(Tile* tile, HadamardSigns signs) {
  HWY_DYNAMIC_DISPATCH(HadamardDown)(tile, signs);
}
void find_greatest(const Tile& tile, const Greatest& greatest) {
  HWY_DYNAMIC_DISPATCH(FindGreatest)(tile, greatest);
}

}  // namespace strata::quantize::tiles
#endif
