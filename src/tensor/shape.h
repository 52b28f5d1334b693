// Static shapes of at most kMaxRank dimensions, 64-bit sizes, row-major.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace strata {

inline constexpr int kMaxRank = 6;

class Shape {
 public:
  Shape() = default;
  Shape(
      std::initializer_list<int64_t> dims);  // NOLINT(google-explicit-constructor): a literal list is a shape
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  // Negative axes count from the end.
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  void set(int axis, int64_t size) { dims_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)] = size; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  int64_t elements() const;
  std::string str() const;  // "[4096, 512]"
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace strata
