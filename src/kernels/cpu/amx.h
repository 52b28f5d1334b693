// AMX: eight tile registers of 16 rows of 64 bytes each, and their matrix product (Intel's Software
// Developer's Manual, "TDPBF16PS", "TILELOADD", "TILESTORED", "LDTILECFG"). Two classes with one interface:
// NativeTiles executes the instructions; ModelTiles computes the same bits in plain C++, to test kernels on
// processors without AMX. Register numbers are template arguments because instructions encode them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__linux__)
#define STRATA_HAS_AMX 1
#else
#define STRATA_HAS_AMX 0
#endif

namespace strata::cpu::detail {

// Whether this processor has AMX tiles and the system lets this process use them. The first call requests
// permission.
bool has_amx_tiles();

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kTileBytes = 64;              // per row: 16 sums
inline constexpr int64_t kTileDepth = kTileBytes / 2;  // bf16 values per row
inline constexpr int64_t kTileSums = kTileBytes / 4;

// The registers are valid as long as the object lives. Not shared by threads; at most one object at a time.
class ModelTiles {
 public:
  template <int kTile>
  void zero() {
    std::memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  // Rows from `from` on, `stride` bytes apart.
  template <int kTile>
  void load(const void* from, int64_t stride) {
    for (int64_t r = 0; r < kTileRows; ++r)
      std::memcpy(tiles_[kTile][r], static_cast<const std::byte*>(from) + r * stride, kTileBytes);
  }
  template <int kTile>
  void store(void* to, int64_t stride) const {
    for (int64_t r = 0; r < kTileRows; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * stride, tiles_[kTile][r], kTileBytes);
  }
  // sums[m, n] += Σ_k a[m, 2k] · b[k, 2n] + Σ_k a[m, 2k + 1] · b[k, 2n + 1]: two sums by fused multiply-adds
  // in order of k, which are added to each other, then to the previous value. Denormal operands and results
  // are zero.
  template <int kSums, int kA, int kB>
  void dot() {
    multiply(tiles_[kSums], tiles_[kA], tiles_[kB]);
  }

 private:
  using Tile = uint32_t[kTileRows][kTileSums];
  static float flushed(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  static float value_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return flushed(value);
  }
  // The product of two bf16 values is exact in fp32, so adding it rounds like the fused operation (except
  // outside the range of normal values).
  static void multiply(Tile& sums, const Tile& a, const Tile& b) {
    float low[kTileSums][kTileSums], high[kTileSums][kTileSums];
    for (int64_t k = 0; k < kTileSums; ++k) {
      for (int64_t n = 0; n < kTileSums; ++n) {
        low[k][n] = value_of(b[k][n] << 16);
        high[k][n] = value_of(b[k][n] & 0xffff0000u);
      }
    }
    for (int64_t m = 0; m < kTileRows; ++m) {
      float even[kTileSums] = {}, odd[kTileSums] = {};
      for (int64_t k = 0; k < kTileSums; ++k) {
        const float x = value_of(a[m][k] << 16), y = value_of(a[m][k] & 0xffff0000u);
        for (int64_t n = 0; n < kTileSums; ++n) {
          even[n] = flushed(even[n] + x * low[k][n]);
          odd[n] = flushed(odd[n] + y * high[k][n]);
        }
      }
      for (int64_t n = 0; n < kTileSums; ++n) {
        const float sum = flushed(value_of(sums[m][n]) + flushed(even[n] + odd[n]));
        std::memcpy(&sums[m][n], &sum, sizeof sum);
      }
    }
  }

  Tile tiles_[8];
};

#if STRATA_HAS_AMX

class NativeTiles {
 public:
  NativeTiles() {
    // Palette 1: for each register, the number of rows and the bytes per row.
    alignas(64) uint8_t configuration[64] = {1};
    for (int i = 0; i < 8; ++i) {
      configuration[16 + 2 * i] = kTileBytes;
      configuration[48 + i] = kTileRows;
    }
    asm volatile("ldtilecfg %0" : : "m"(configuration));
  }
  ~NativeTiles() { asm volatile("tilerelease"); }
  NativeTiles(const NativeTiles&) = delete;
  NativeTiles& operator=(const NativeTiles&) = delete;

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* to, int64_t stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kSums, int kA, int kB>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};

#endif

}  // namespace strata::cpu::detail
