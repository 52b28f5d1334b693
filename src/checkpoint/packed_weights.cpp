#include "checkpoint/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/elements.h"
#include "quantize/formats.h"

namespace strata::checkpoint {
namespace {

constexpr int64_t kGroupBytes = 16;  // and their bytes
constexpr std::string_view kScaleInverse = "_scale_inv", kScale = "_scale", kBlocks = "_blocks",
                           kScales = "_scales";

// The floats of 8 bits by safetensors' names. It has names of 6 bits too, but no order of their bits in bytes.
std::optional<quantize::Format> fp8_format(std::string_view dtype_name) {
  using quantize::Format;
  constexpr std::pair<std::string_view, Format> kNames[] = {{"F8_E4M3", Format::kE4M3},
                                                            {"F8_E5M2", Format::kE5M2},
                                                            {"F8_E4M3FNUZ", Format::kE4M3Fnuz},
                                                            {"F8_E5M2FNUZ", Format::kE5M2Fnuz}};
  for (const auto& [name, format] : kNames)
    if (name == dtype_name) return format;
  return std::nullopt;
}

// A scale that is zero, negative or not finite is of no quantiser.
void check_scales(const TensorSource::Entry& entry, int64_t first, std::span<const float> scales) {
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] > 0 && std::isfinite(scales[i])) continue;
    throw DataError(
        "[{}] '{}' has {} at element {}; expected a scale above 0: the file is damaged or of another format",
        entry.file->path().string(), entry.tensor->name, scales[i], first + static_cast<int64_t>(i));
  }
}

// One unpacked tensor.
class Unpacked {
 public:
  virtual ~Unpacked() = default;
  // Elements [first, first + count).
  virtual void make(int64_t first, int64_t count, float* out) const = 0;
};

class Fp8Blocks final : public Unpacked {
 public:
  Fp8Blocks(TensorSource::Entry weight, quantize::Format format, TensorSource::Entry scales)
      : weight_(weight), format_(format), scales_(scales) {}

  void make(int64_t first, int64_t count, float* out) const override {
    const auto& numbers = quantize::values_of(format_);
    const int64_t columns = weight_.tensor->shape[1], blocks = scales_.tensor->shape[1];
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    weight_.file->read(*weight_.tensor, static_cast<uint64_t>(first), bytes.data(), bytes.size());
    const int64_t first_scale = first / columns / kFp8Block * blocks,
                  last_scale = ((first + count - 1) / columns / kFp8Block + 1) * blocks;
    std::vector<float> scales(static_cast<size_t>(last_scale - first_scale));
    scales_.file->read(*scales_.tensor, static_cast<uint64_t>(first_scale) * sizeof(float), scales.data(),
                       scales.size() * sizeof(float));
    check_scales(scales_, first_scale, scales);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = (first + i) / columns, column = (first + i) % columns;
      const int64_t scale = row / kFp8Block * blocks + column / kFp8Block - first_scale;
      out[i] = numbers[bytes[static_cast<size_t>(i)]] * scales[static_cast<size_t>(scale)];
    }
  }

 private:
  TensorSource::Entry weight_;
  quantize::Format format_;
  TensorSource::Entry scales_;
};

// One scale for all weights, or one a row.
class Fp8Scaled final : public Unpacked {
 public:
  Fp8Scaled(TensorSource::Entry weight, quantize::Format format, std::vector<float> scales)
      : weight_(weight), format_(format), scales_(std::move(scales)) {}

  void make(int64_t first, int64_t count, float* out) const override {
    const auto& numbers = quantize::values_of(format_);
    const int64_t columns =
        scales_.size() == 1 ? std::numeric_limits<int64_t>::max() : weight_.tensor->shape[1];
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    weight_.file->read(*weight_.tensor, static_cast<uint64_t>(first), bytes.data(), bytes.size());
    for (int64_t i = 0; i < count; ++i)
      out[i] = numbers[bytes[static_cast<size_t>(i)]] * scales_[static_cast<size_t>((first + i) / columns)];
  }

 private:
  TensorSource::Entry weight_;
  quantize::Format format_;
  std::vector<float> scales_;
};

// One expert's blocks and scales. Files store them by output but readers ask for them by input: each read
// needs a few bytes of every output, so the cache holds a few whole experts.
struct Expert {
  std::vector<uint8_t> blocks, scales;
};
class ExpertCache {
 public:
  explicit ExpertCache(size_t most) : most_(most) {}
  std::shared_ptr<const Expert> get(const TensorInfo* tensor, int64_t expert,
                                    const std::function<Expert()>& read) {
    {
      const std::lock_guard lock(mutex_);
      for (auto it = kept_.begin(); it != kept_.end(); ++it) {
        if (it->tensor != tensor || it->expert != expert) continue;
        std::rotate(kept_.begin(), it, it + 1);
        return kept_.front().data;
      }
    }
    auto data = std::make_shared<const Expert>(read());
    const std::lock_guard lock(mutex_);
    kept_.insert(kept_.begin(), {tensor, expert, data});
    if (kept_.size() > most_) kept_.pop_back();
    return data;
  }

 private:
  struct Kept {
    const TensorInfo* tensor;
    int64_t expert;
    std::shared_ptr<const Expert> data;
  };
  std::mutex mutex_;
  std::vector<Kept> kept_;  // most recently used first
  size_t most_;
};

class Mxfp4Experts final : public Unpacked {
 public:
  Mxfp4Experts(TensorSource::Entry blocks, TensorSource::Entry scales, std::shared_ptr<ExpertCache> cache)
      : blocks_(blocks), scales_(scales), cache_(std::move(cache)) {}

  void make(int64_t first, int64_t count, float* out) const override {
    const int64_t outputs = scales_.tensor->shape[1], groups = scales_.tensor->shape[2];
    const int64_t of_expert = groups * kMxfp4Block * outputs;
    for (int64_t done = 0; done < count;) {
      const int64_t expert = (first + done) / of_expert, begin = (first + done) % of_expert;
      const int64_t here = std::min(count - done, of_expert - begin);
      const auto data = cache_->get(blocks_.tensor, expert, [&] { return read(expert); });
      for (int64_t i = begin; i < begin + here; ++i) {
        const int64_t input = i / outputs, output = i % outputs;
        const int64_t group = output * groups + input / kMxfp4Block, place = input % kMxfp4Block;
        const uint8_t pair = data->blocks[static_cast<size_t>(group * kGroupBytes + place / 2)];
        out[done + i - begin] =
            scaled(place % 2 == 0 ? pair & 15 : pair >> 4, data->scales[static_cast<size_t>(group)]);
      }
      done += here;
    }
  }

 private:
  static float scaled(int code, uint8_t scale) {
    return std::ldexp(quantize::decode(quantize::Format::kE2M1, static_cast<uint32_t>(code)), scale - 127);
  }
  static std::vector<uint8_t> part(const TensorSource::Entry& entry, int64_t expert) {
    const uint64_t bytes = entry.tensor->bytes / static_cast<uint64_t>(entry.tensor->shape[0]);
    std::vector<uint8_t> data(bytes);
    entry.file->read(*entry.tensor, static_cast<uint64_t>(expert) * bytes, data.data(), data.size());
    return data;
  }
  Expert read(int64_t expert) const {
    Expert one{part(blocks_, expert), part(scales_, expert)};
    const auto nan = std::find(one.scales.begin(), one.scales.end(), uint8_t{255});
    if (nan != one.scales.end()) {
      throw DataError(
          "[{}] '{}' has scale 255 (NaN) for expert {} at element {}, expected 0 to 254: the file is damaged",
          scales_.file->path().string(), scales_.tensor->name, expert, nan - one.scales.begin());
    }
    return one;
  }

  TensorSource::Entry blocks_, scales_;
  std::shared_ptr<ExpertCache> cache_;
};

// A file with the unpacked tensors.
class UnpackedFile final : public TensorFile {
 public:
  explicit UnpackedFile(Path path) : path_(std::move(path)) {}
  void add(std::string name, Shape shape, std::unique_ptr<Unpacked> of) {
    const auto bytes = static_cast<uint64_t>(shape.elements()) * sizeof(float);
    tensors_.push_back({std::move(name), "F32", DType::kF32, std::move(shape), 0, bytes});
    unpacked_.push_back(std::move(of));
  }
  const Path& path() const override { return path_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const TensorInfo& tensor) { return tensor.name == name; });
    return found == tensors_.end() ? nullptr : &*found;
  }
  void read(const TensorInfo& tensor, uint64_t first, void* out, size_t size) const override {
    constexpr auto kWidth = sizeof(float);
    STRATA_CHECK(first % kWidth == 0 && size % kWidth == 0, "'{}' is read at a fraction of an element",
                 tensor.name);
    if (size == 0) return;
    std::vector<float> numbers(size / kWidth);
    unpacked_[static_cast<size_t>(&tensor - tensors_.data())]->make(
        static_cast<int64_t>(first / kWidth), static_cast<int64_t>(numbers.size()), numbers.data());
    std::memcpy(out, numbers.data(), size);
  }
  uint64_t head_checksum() const override { return 0; }  // checkpoints have no packed weights

 private:
  Path path_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::unique_ptr<Unpacked>> unpacked_;
};

[[noreturn]] void refuse_shapes(const TensorSource& source, const TensorInfo& weight,
                                const TensorInfo& scales, std::string_view expected) {
  throw DataError("[{}] '{}' {} {} and '{}' {} {} do not match; expected {}", source.where, weight.name,
                  weight.dtype_name, weight.shape.str(), scales.name, scales.dtype_name, scales.shape.str(),
                  expected);
}

// All scales of a tensor, none of which may be zero or NaN.
std::vector<float> scales_of(const TensorSource::Entry& entry) {
  const int64_t count = entry.tensor->shape.elements();
  std::vector<std::byte> stored(entry.tensor->bytes);
  entry.file->read(*entry.tensor, 0, stored.data(), stored.size());
  std::vector<float> scales(static_cast<size_t>(count));
  convert(scales.data(), DType::kF32, stored.data(), *entry.tensor->dtype, count);
  check_scales(entry, 0, scales);
  return scales;
}

// The tensor whose name has the ending `other` in place of `ending`; nullptr if there is none.
const TensorSource::Entry* partner(const TensorSource& source, std::string_view name, std::string_view ending,
                                   std::string_view other) {
  if (!name.ends_with(ending)) return nullptr;
  const std::string wanted = std::string(name.substr(0, name.size() - ending.size())).append(other);
  const auto found = source.tensors.find(wanted);
  return found == source.tensors.end() ? nullptr : &found->second;
}

}  // namespace

void unpack_weights(TensorSource& source) {
  std::unique_ptr<UnpackedFile> made;
  std::vector<std::string> parts;
  const auto cache = std::make_shared<ExpertCache>(static_cast<size_t>(compute_threads()) + 1);
  const auto add = [&](const TensorSource::Entry& of, std::string name, Shape shape,
                       std::unique_ptr<Unpacked> unpacked) {
    if (made == nullptr) made = std::make_unique<UnpackedFile>(of.file->path());
    made->add(std::move(name), std::move(shape), std::move(unpacked));
  };
  for (const auto& [name, scales] : source.tensors) {
    const TensorInfo& scale = *scales.tensor;
    if (const auto* weight = partner(source, name, kScaleInverse, "")) {
      const Shape& shape = weight->tensor->shape;
      const auto format = fp8_format(weight->tensor->dtype_name);
      if (!format || scale.dtype != DType::kF32 || shape.rank() != 2 ||
          !(scale.shape == Shape{fp8_blocks_in(shape[0]), fp8_blocks_in(shape[1])}))
        refuse_shapes(source, *weight->tensor, scale,
                      "F8_E4M3 [R, C] and an F32 scale for each block of 128 by 128");
      add(*weight, weight->tensor->name, shape, std::make_unique<Fp8Blocks>(*weight, *format, scales));
      parts.push_back(weight->tensor->name);
      parts.push_back(name);
    } else if (const auto* scaled = partner(source, name, kScale, "")) {
      const Shape& shape = scaled->tensor->shape;
      const int64_t count = scale.shape.elements();
      // Files with integers have such scales too; they are refused by their dtype later.
      const auto format = fp8_format(scaled->tensor->dtype_name);
      if (!format) continue;
      if (shape.rank() != 2 || (count != 1 && !(scale.shape == Shape{shape[0], 1})) || !scale.dtype ||
          !is_float(*scale.dtype))
        refuse_shapes(source, *scaled->tensor, scale,
                      "F8_E4M3 [R, C] and one scale, or one for each row: [R, 1]");
      add(*scaled, scaled->tensor->name, shape,
          std::make_unique<Fp8Scaled>(*scaled, *format, scales_of(scales)));
      parts.push_back(scaled->tensor->name);
      parts.push_back(name);
    } else if (const auto* blocks = partner(source, name, kScales, kBlocks)) {
      const Shape &shape = blocks->tensor->shape, &groups = scale.shape;
      int64_t inputs = 0, rows = 0;  // of one expert, and of all
      if (blocks->tensor->dtype != DType::kU8 || scale.dtype != DType::kU8 || groups.rank() != 3 ||
          !(shape == Shape{groups[0], groups[1], groups[2], kGroupBytes}) ||
          __builtin_mul_overflow(kMxfp4Block, groups[2], &inputs) ||
          __builtin_mul_overflow(groups[0], inputs, &rows))
        refuse_shapes(source, *blocks->tensor, scale, "U8 [E, O, G, 16] and U8 [E, O, G]");
      add(*blocks, name.substr(0, name.size() - kScales.size()), {groups[0], inputs, groups[1]},
          std::make_unique<Mxfp4Experts>(*blocks, scales, cache));
      parts.push_back(blocks->tensor->name);
      parts.push_back(name);
    }
  }
  if (made == nullptr) return;
  for (const std::string& part : parts) source.tensors.erase(part);
  for (const TensorInfo& tensor : made->tensors()) {
    const auto [at, is_new] = source.tensors.emplace(tensor.name, TensorSource::Entry{made.get(), &tensor});
    if (!is_new)
      throw DataError("[{}] contains '{}' both plain and in blocks; expected one of them", source.where,
                      at->first);
  }
  source.files.push_back(std::move(made));
}

}  // namespace strata::checkpoint
