#include "kernels/cpu/embedding.h"

#include "base/error.h"
#include "kernels/cpu/array_testing.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;

constexpr int64_t kVocab = 97, kContext = 33;

// Skewed like text: half of the rows have id 5.
std::vector<int32_t> some_ids(int64_t rows, int64_t size) {
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row)
    ids.push_back(static_cast<int32_t>(row % 2 == 0 ? 5 : row * 31 % size));
  return ids;
}

TEST(Embedding, ForwardGathersAndAddsPositions) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t rows : testing::kRaggedRows) {
      for (const int64_t dim : testing::kRaggedDims) {
        const EmbeddingShape shape{rows, dim, kVocab, kContext, dtype};
        const Array table = Array::random(DType::kF32, kVocab * dim, 1);
        const Array pos_table = Array::random(DType::kF32, kContext * dim, 2);
        const auto ids = some_ids(rows, kVocab), positions = some_ids(rows, kContext);
        Array plain(dtype, rows * dim), both(dtype, rows * dim), want(dtype, rows * dim),
            want_both(dtype, rows * dim);
        embedding_forward(shape, plain.data(), ids.data(), table.f32(), nullptr, nullptr);
        embedding_forward(shape, both.data(), ids.data(), table.f32(), pos_table.f32(), positions.data());
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < dim; ++i) {
            const float token = table.f32()[ids[static_cast<size_t>(row)] * dim + i];
            want.set(row * dim + i, token);
            want_both.set(row * dim + i,
                          token + pos_table.f32()[positions[static_cast<size_t>(row)] * dim + i]);
          }
        }
        EXPECT_TRUE(plain.bytes() == want.bytes());
        EXPECT_TRUE(both.bytes() == want_both.bytes());
      }
    }
  }
}

TEST(Embedding, BackwardSumsRowsByIdAndAccumulates) {
  for (const DType dtype : testing::kActivationTypes) {
    for (const int64_t rows : testing::kRaggedRows) {
      for (const int64_t dim : testing::kRaggedDims) {
        const EmbeddingShape shape{rows, dim, kVocab, 0, dtype};
        const Array dy = Array::random(dtype, rows * dim, 1);
        const auto ids = some_ids(rows, kVocab);
        std::vector<double> want(static_cast<size_t>(kVocab * dim));
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < dim; ++i) {
            want[static_cast<size_t>(ids[static_cast<size_t>(row)] * dim + i)] += dy[row * dim + i];
          }
        }
        Array d_table(DType::kF32, kVocab * dim);
        embedding_backward(shape, d_table.f32(), dy.data(), ids.data(), false);
        expect_near(d_table, want, 1e-6, 20);
        embedding_backward(shape, d_table.f32(), dy.data(), ids.data(), true);
        for (double& w : want) w *= 2;
        expect_near(d_table, want, 1e-6, 20);
      }
    }
  }
}

TEST(Embedding, SameBitsForAnyNumberOfThreads) {
  const EmbeddingShape shape{257, 300, kVocab, 0, DType::kBF16};
  const Array dy = Array::random(DType::kBF16, 257 * 300, 1);
  const auto ids = some_ids(257, kVocab);
  expect_same_bits([&] {
    Array d_table(DType::kF32, kVocab * 300);
    embedding_backward(shape, d_table.f32(), dy.data(), ids.data(), false);
    return d_table.bytes();
  });
}

TEST(Embedding, RejectsIdsOutsideTheTable) {
  const EmbeddingShape shape{1, 4, kVocab, kContext, DType::kF32};
  Array table = Array::random(DType::kF32, kVocab * 4, 1), out(DType::kF32, 4);
  for (const int32_t id : {-1, static_cast<int32_t>(kVocab)}) {
    EXPECT_THROW(embedding_forward(shape, out.data(), &id, table.f32(), nullptr, nullptr), InternalError);
    EXPECT_THROW(embedding_backward(shape, table.f32(), out.data(), &id, true), InternalError);
  }
  const int32_t id = 0, position = kContext;
  EXPECT_THROW(embedding_forward(shape, out.data(), &id, table.f32(), table.f32(), &position), InternalError);
}

}  // namespace
}  // namespace strata::cpu
