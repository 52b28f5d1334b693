// Operands of cases: internal to the table of op_cases.h.
#pragma once

#include <cstring>

#include "ops/op_cases.h"

namespace strata::device::op_rows {

using graph::Axis;

// A tensor that is bf16 where activations are.
inline Operand act(Shape shape, std::vector<int64_t> segments = {}) {
  return {.shape = shape, .segments = std::move(segments), .activation = true};
}
inline Operand f32(Shape shape, std::vector<int64_t> segments = {}) {
  return {.shape = shape, .segments = std::move(segments)};
}
inline Operand f32_of(Shape shape, std::function<double(int64_t)> content) {
  return {.shape = shape, .content = std::move(content)};
}
inline Operand bf16(Shape shape) {
  return {.dtype = DType::kBF16, .shape = shape};
}
inline Operand positive(Shape shape, std::vector<int64_t> segments = {}) {
  return {.shape = shape, .segments = std::move(segments), .content = [](int64_t i) {
            return 0.5 + 0.1 * static_cast<double>(i % 7);
          }};
}
inline Operand zeros(Shape shape, DType dtype = DType::kF32) {
  return {.dtype = dtype, .shape = shape, .content = [](int64_t) { return 0.0; }};
}
// ±0.05, ±0.15, … ±0.95: no value at a bend of a function that has its bends at tenths.
inline Operand between_tenths(Shape shape, std::vector<int64_t> segments = {}) {
  Operand operand = act(shape, std::move(segments));
  operand.content = [](int64_t i) { return static_cast<double>(2 * (i * 7 % 20) - 19) / 20; };
  return operand;
}
inline Operand i32_by(int64_t n, std::function<double(int64_t)> content) {
  return {.dtype = DType::kI32, .shape = {n}, .content = std::move(content)};
}
inline Operand i32(int64_t n, int64_t below) {
  return i32_by(n, [below](int64_t i) { return static_cast<double>(i * 7 % below); });
}
inline Operand i32_of(const std::vector<int64_t>& values) {
  return i32_by(static_cast<int64_t>(values.size()),
                [values](int64_t i) { return static_cast<double>(values[static_cast<size_t>(i)]); });
}
// A rank block; the other places are 0.
inline Operand rank_at(std::initializer_list<std::pair<Axis, int64_t>> places) {
  graph::PerAxis<int64_t> at;
  for (const auto& [axis, place] : places) at[axis] = place;
  return i32_of({at.values.begin(), at.values.end()});
}
inline Operand i64_of(double number) {
  return {.dtype = DType::kI64, .shape = {1}, .content = [number](int64_t) { return number; }};
}
inline Operand absent() {
  return {.absent = true};
}
inline Operand same_as(int input) {
  return {.absent = true, .same_as = input};
}
inline Operand constant(Operand operand) {
  operand.constant = true;
  return operand;
}
// Bytes as a tensor of them.
template <typename T>
Operand bytes_of(const T& object, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  std::memcpy(bytes.data(), &object, sizeof object);
  return {.dtype = DType::kU8, .shape = {size}, .content = [bytes](int64_t i) {
            return static_cast<double>(static_cast<uint8_t>(bytes[static_cast<size_t>(i)]));
          }};
}

// Activations of the sizes at which rates are measured: rows of a model of width 512 with two query heads a
// key-value head.
inline constexpr int64_t kTimedTokens = 1024, kTimedWidth = 512, kTimedKvWidth = 256, kTimedFfn = 1536,
                         kTimedVocabulary = 8192;
inline Operand timed_rows(int64_t width = kTimedWidth, std::vector<int64_t> segments = {}) {
  return act({kTimedTokens, width}, std::move(segments));
}
inline Operand timed_qkv() {
  return timed_rows(kTimedWidth + 2 * kTimedKvWidth, {kTimedWidth, kTimedKvWidth, kTimedKvWidth});
}

// Token ids, spread over those below.
inline Operand timed_ids(int64_t n, int64_t below = kTimedVocabulary) {
  return i32_by(n, [below](int64_t i) { return static_cast<double>(i * 7919 % below); });
}

// Why no rate of an op is measured.
inline constexpr std::string_view kOnce = "once, before the first step", kFewNumbers = "a few numbers",
                                  kRows = "moves rows between ranks",
                                  kPass = "one pass, priced by the bandwidth",
                                  kText = "writes text, of which nothing is predicted",
                                  kOther = "of routers that no published model has";

}  // namespace strata::device::op_rows
