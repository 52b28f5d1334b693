// Compares the minima of permutations with their formula, for every instruction set.
#include "data/dedup/minhash_kernel.h"

#include "data/dedup/corpus.h"
#include "data/dedup/minhash_hash.h"
#include "fixtures/every_target.h"

namespace strata::data::dedup {
namespace {

// Ragged numbers of permutations and hashes, also beyond a tile.
void check_against_the_formula() {
  Numbers numbers(1);
  for (const size_t permutations : {1u, 5u, 16u, 17u, 112u}) {
    const Drawn drawn = draw_permutations(static_cast<uint32_t>(permutations), permutations);
    const PermutationTable table(drawn.a, drawn.b);
    for (const size_t count : {1u, 2u, 7u, 64u, 65u, 2048u, 2049u, 20000u}) {
      std::vector<uint64_t> hashes(count);
      for (auto& h : hashes) h = uint64_t{numbers.below(~0u)} << 32 | numbers.below(~0u);
      for (const bool narrow : {false, true}) {
        std::vector<uint64_t> out(table.a.size());
        least_permuted(table, hashes, narrow, out.data());
        for (size_t i = 0; i < permutations; ++i) {
          uint64_t least = ~uint64_t{0};
          for (const uint64_t h : hashes) {
            const uint64_t value = permuted(h, drawn.a[i], drawn.b[i]);
            least = std::min(least, narrow ? value & 0xFFFFFFFFu : value);
          }
          ASSERT_EQ(out[i], least) << i << " of " << permutations << ", " << count
                                   << (narrow ? " narrow" : "");
        }
      }
    }
  }
}

TEST(Minhash, KernelEqualsTheFormula) {
  fixtures::on_every_target([](int64_t) { check_against_the_formula(); });
}

// Values at the edges of the modulus and of the bits that estimates of late hashes use; texts practically
// never reach them.
void check_edges(size_t before) {
  const std::vector<uint64_t> a = {1, 1, 1, (uint64_t{1} << 61) - 2, 0xFFFFFFFF, uint64_t{0xFFFF} << 16};
  const std::vector<uint64_t> b = {0, 1, kMersenne61 - 1, 0xFFFFFFFF, 3, uint64_t{1} << 60};
  const PermutationTable table(a, b);
  std::vector<uint64_t> edges;
  for (uint64_t d = 0; d < 20; ++d) {
    for (uint64_t q = 0; q < 8; ++q) edges.push_back(((q + 1) << 61) - 10 + d);
    for (const int bit : {16, 32, 48}) edges.push_back((uint64_t{1} << bit) - 10 + d);
  }
  for (const uint64_t edge : edges) {
    for (const uint64_t other : {edge, uint64_t{1} << 40, uint64_t{3}}) {
      for (const bool narrow : {false, true}) {
        std::vector<uint64_t> out(table.a.size());
        std::vector<uint64_t> hashes(before, uint64_t{0x123456789} << 28);
        hashes.insert(hashes.end(), {edge, other});
        least_permuted(table, hashes, narrow, out.data());
        for (size_t i = 0; i < a.size(); ++i) {
          const uint64_t mask = narrow ? 0xFFFFFFFFu : ~uint64_t{0};
          uint64_t least = ~uint64_t{0};
          for (const uint64_t hash : hashes) least = std::min(least, permuted(hash, a[i], b[i]) & mask);
          ASSERT_EQ(out[i], least) << edge << " " << other << " " << i << " " << narrow << " " << before;
        }
      }
    }
  }
}

TEST(Minhash, KernelIsExactWhereTheModulusFolds) {
  for (const size_t before : {0u, 63u, 64u, 70u, 130u}) {
    fixtures::on_every_target([&](int64_t) { check_edges(before); });
  }
}

}  // namespace
}  // namespace strata::data::dedup
