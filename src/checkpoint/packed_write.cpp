#include "checkpoint/packed_write.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "checkpoint/elements.h"
#include "checkpoint/packed_weights.h"
#include "quantize/quantizer.h"

namespace strata::checkpoint {
namespace {

// Elements [first, first + count) of a tensor as fp32.
std::vector<float> numbers_of(const TensorView& view, int64_t first, int64_t count) {
  const int64_t width = size_of(view.memory_dtype);
  std::vector<std::byte> stored(static_cast<size_t>(count * width));
  view.storage->read(first * width, stored.data(), count * width);
  std::vector<float> numbers(static_cast<size_t>(count));
  convert(numbers.data(), DType::kF32, stored.data(), view.memory_dtype, count);
  return numbers;
}

// Copies from `from`, which begins at byte `begin` of a tensor, those bytes that are in [offset, offset + bytes).
void copy_overlap(const void* from, int64_t begin, int64_t size, int64_t offset, std::byte* to,
                  int64_t bytes) {
  const int64_t first = std::max(begin, offset), end = std::min(begin + size, offset + bytes);
  if (first < end)
    std::memcpy(to + (first - offset), static_cast<const std::byte*>(from) + (first - begin),
                static_cast<size_t>(end - first));
}

enum class PackedPart : uint8_t { kOfCodes, kOfScales };

// Codes or scales of a matrix in bands of 128 rows.
class Fp8BlocksOf final : public ReadableStorage {
 public:
  Fp8BlocksOf(TensorView weight, PackedPart part) : weight_(std::move(weight)), part_(part) {}

  void read(int64_t offset, void* to, int64_t bytes) const override {
    const int64_t rows = weight_.shape[0], columns = weight_.shape[1];
    const int64_t of_band = part_ == PackedPart::kOfCodes ? kFp8Block * columns : fp8_blocks_in(columns) * 4;
    for (int64_t band = offset / of_band; band * of_band < offset + bytes; ++band) {
      const int64_t first = band * kFp8Block, height = std::min(kFp8Block, rows - first);
      const std::vector<float> numbers = numbers_of(weight_, first * columns, height * columns);
      const quantize::ScaleRule rule = quantize::ScaleRule::block_square(quantize::Format::kE4M3);
      const quantize::QuantizedLayout layout = quantize::layout_of(rule, height, columns);
      std::vector<std::byte> codes(static_cast<size_t>(layout.code_bytes())),
          scales(static_cast<size_t>(layout.scale_bytes()));
      quantize::quantize({.data = numbers.data(), .rows = height, .columns = columns, .stride = columns},
                         quantize::Request{.treatment = {.rule = rule}, .to = {codes.data(), scales.data()}},
                         {});
      const std::vector<std::byte>& made = part_ == PackedPart::kOfCodes ? codes : scales;
      copy_overlap(made.data(), band * of_band, std::ssize(made), offset, static_cast<std::byte*>(to), bytes);
    }
  }

 private:
  TensorView weight_;
  PackedPart part_;
};

// Blocks or scales of experts. Files have outputs first, the weights inputs first, so a whole expert is read for any part.
class Mxfp4BlocksOf final : public ReadableStorage {
 public:
  Mxfp4BlocksOf(TensorView experts, PackedPart part) : experts_(std::move(experts)), part_(part) {}

  void read(int64_t offset, void* to, int64_t bytes) const override {
    const int64_t inputs = experts_.shape[1], outputs = experts_.shape[2];
    const int64_t of_expert =
        part_ == PackedPart::kOfCodes ? outputs * inputs / 2 : outputs * inputs / kMxfp4Block;
    for (int64_t expert = offset / of_expert; expert * of_expert < offset + bytes; ++expert) {
      const std::vector<uint8_t> made = made_of(expert);
      copy_overlap(made.data(), expert * of_expert, of_expert, offset, static_cast<std::byte*>(to), bytes);
    }
  }

 private:
  std::vector<uint8_t> made_of(int64_t expert) const {
    {
      const std::lock_guard lock(mutex_);
      if (kept_expert_ == expert) return kept_;
    }
    const int64_t inputs = experts_.shape[1], outputs = experts_.shape[2];
    const std::vector<float> numbers = numbers_of(experts_, expert * inputs * outputs, inputs * outputs);
    const quantize::ScaleRule rule =
        quantize::ScaleRule::mx(quantize::Format::kE2M1, quantize::MxScale::kFloor);
    const quantize::QuantizedLayout layout = quantize::layout_of(rule, outputs, inputs);
    std::vector<uint8_t> codes(static_cast<size_t>(layout.code_bytes())),
        scales(static_cast<size_t>(layout.scale_bytes()));
    quantize::quantize({.data = numbers.data(), .rows = inputs, .columns = outputs, .stride = outputs}, {},
                       quantize::Request{.treatment = {.rule = rule}, .to = {codes.data(), scales.data()}});
    const std::lock_guard lock(mutex_);
    kept_ = part_ == PackedPart::kOfCodes ? std::move(codes) : std::move(scales);
    kept_expert_ = expert;
    return kept_;
  }

  TensorView experts_;
  PackedPart part_;
  mutable std::mutex mutex_;
  mutable std::vector<uint8_t> kept_;
  mutable int64_t kept_expert_ = -1;
};

bool is_plain(const TensorView& view) {
  return is_float(view.memory_dtype) && view.memory_dtype != DType::kF64 && view.split == nullptr &&
         !view.transposed && view.blocks == 0 && view.interleave.none() && view.parts.empty();
}

template <typename Storage>
TensorView packed_view(const TensorView& from, const char* ending, Shape shape, DType dtype,
                       PackedPart part) {
  TensorView view;
  view.name = from.name + ending;
  view.shape = std::move(shape);
  view.memory_dtype = dtype;
  view.storage = std::make_shared<Storage>(from, part);
  view.keeps_dtype = true;
  return view;
}

}  // namespace

bool has_fp8_blocks(const TensorView& weight) {
  return is_plain(weight) && weight.shape.rank() == 2;
}

std::vector<TensorView> in_fp8_blocks(const TensorView& weight) {
  STRATA_CHECK(has_fp8_blocks(weight), "'{}' {} in fp8 blocks", weight.name, weight.shape.str());
  const Shape scales{fp8_blocks_in(weight.shape[0]), fp8_blocks_in(weight.shape[1])};
  return {packed_view<Fp8BlocksOf>(weight, "", weight.shape, DType::kE4M3, PackedPart::kOfCodes),
          packed_view<Fp8BlocksOf>(weight, "_scale_inv", scales, DType::kF32, PackedPart::kOfScales)};
}

bool has_mxfp4_blocks(const TensorView& experts) {
  return is_plain(experts) && experts.shape.rank() == 3 && experts.shape[1] % kMxfp4Block == 0;
}

std::vector<TensorView> in_mxfp4_blocks(const TensorView& experts) {
  STRATA_CHECK(has_mxfp4_blocks(experts), "'{}' {} in MXFP4 blocks", experts.name, experts.shape.str());
  const int64_t count = experts.shape[0], groups = experts.shape[1] / kMxfp4Block, outputs = experts.shape[2];
  return {packed_view<Mxfp4BlocksOf>(experts, "_blocks", {count, outputs, groups, kMxfp4Block / 2},
                                     DType::kU8, PackedPart::kOfCodes),
          packed_view<Mxfp4BlocksOf>(experts, "_scales", {count, outputs, groups}, DType::kU8,
                                     PackedPart::kOfScales)};
}

}  // namespace strata::checkpoint
