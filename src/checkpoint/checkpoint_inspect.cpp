#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "checkpoint/checkpoint.h"

namespace strata::checkpoint {
namespace {

constexpr const char* kOptimizerFile = "optimizer.safetensors";

void check_there(const Path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    throw ConfigError("[{}] does not exist; expected a checkpoint or model folder", path.string());
}

// The sources of a folder: the model's tensors, and the optimizer's if there are any.
std::vector<TensorSource> open_all(const Path& path) {
  check_there(path);
  std::vector<TensorSource> sources;
  sources.push_back(open_tensors(path));
  std::error_code error;
  if (std::filesystem::exists(path / kOptimizerFile, error))
    sources.push_back(open_tensor_file(path / kOptimizerFile));
  return sources;
}

std::string message_of(const Error& error) {
  return error.what();
}

// Compares a folder with its manifest and collects the problems.
class Verifier {
 public:
  Verifier(const Path& path, std::vector<Problem>& problems) : path_(path), problems_(problems) {}

  void against(const std::vector<StoredFile>& files) {
    for (const auto& file : files) {
      try {
        if (file.tensors.empty() && !file.name.ends_with(".safetensors")) {
          if (hash64(read_file(path_ / file.name)) != file.checksum)
            add(file.name, "does not match its checksum");
        } else {
          tensors(SafetensorsFile(path_ / file.name), &file);
        }
      } catch (const Error& error) {
        add(file.name, message_of(error));
      }
    }
  }

  // If `stored` is null, only looks for NaN and infinities.
  void tensors(const TensorFile& file, const StoredFile* stored) {
    const std::string name = file.path().filename().string();
    std::map<std::string_view, const std::vector<uint64_t>*> expected;
    if (stored != nullptr) {
      if (file.head_checksum() != stored->checksum) add(name, "header does not match its checksum");
      for (const auto& tensor : stored->tensors) expected[tensor.name] = &tensor.checksums;
      for (const auto& tensor : stored->tensors) {
        if (file.find(tensor.name) == nullptr) add(name, fmt::format("'{}' is missing", tensor.name));
      }
    }
    const bool weights = name != kOptimizerFile;
    parallel_for(static_cast<int64_t>(file.tensors().size()), [&](int64_t i) {
      const TensorInfo& tensor = file.tensors()[static_cast<size_t>(i)];
      const uint64_t chunk_bytes = stored != nullptr ? stored->chunk_bytes : 0;
      const TensorScan scan = scan_tensor(file, tensor, chunk_bytes);
      const auto wanted = expected.find(tensor.name);
      if (stored != nullptr && wanted == expected.end())
        add(name, fmt::format("'{}' has no checksum", tensor.name));
      if (wanted != expected.end()) compare(name, tensor, chunk_bytes, *wanted->second, scan.checksums);
      if (weights && scan.first_not_finite >= 0)
        add(name,
            fmt::format("'{}' has a NaN or infinity at element {}", tensor.name, scan.first_not_finite));
    });
  }

  // Reports the bytes of each chunk that differs.
  void compare(const std::string& file, const TensorInfo& tensor, uint64_t chunk_bytes,
               const std::vector<uint64_t>& wanted, const std::vector<uint64_t>& found) {
    if (wanted.size() != found.size())
      return add(file,
                 fmt::format("'{}' has {} checksums, expected {}", tensor.name, wanted.size(), found.size()));
    const auto chunks = chunks_of(tensor.offset, tensor.bytes, chunk_bytes);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const uint64_t begin = tensor.offset + chunks[i].first;
      if (wanted[i] != found[i])
        add(file, fmt::format("'{}' (bytes {} to {}) does not match its checksum", tensor.name, begin,
                              begin + chunks[i].bytes));
    }
  }

  void add(const std::string& file, std::string what) {
    std::lock_guard lock(mutex_);
    problems_.push_back({file, std::move(what)});
  }

 private:
  const Path& path_;
  std::vector<Problem>& problems_;
  std::mutex mutex_;
};

// Converts n elements to doubles, also integers (exact up to 2^53).
void to_doubles(const std::byte* raw, DType dtype, int64_t n, double* out) {
  const auto each = [&]<typename T>(const T* in) {
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<double>(in[i]);
  };
  switch (dtype) {
    case DType::kI64:
      return each(reinterpret_cast<const int64_t*>(raw));
    case DType::kI32:
      return each(reinterpret_cast<const int32_t*>(raw));
    case DType::kI16:
      return each(reinterpret_cast<const int16_t*>(raw));
    case DType::kI8:
      return each(reinterpret_cast<const int8_t*>(raw));
    case DType::kU16:
      return each(reinterpret_cast<const uint16_t*>(raw));
    case DType::kU8:
    case DType::kBool:
      return each(reinterpret_cast<const uint8_t*>(raw));
    default:
      convert(out, DType::kF64, raw, dtype, n);
  }
}

bool is_plain(const TensorSource::Entry& entry) {
  return entry.tensor->dtype && !is_code(*entry.tensor->dtype);
}

// Compares the bits if the dtypes are equal, which distinguishes +0 from −0 and one NaN from another.
void compare_values(const TensorSource::Entry& a, const TensorSource::Entry& b, TensorDiff& diff) {
  constexpr int64_t kElements = int64_t{1} << 16;
  std::vector<std::byte> raw_a(kElements * 8), raw_b(kElements * 8);
  std::vector<double> left(kElements), right(kElements);
  const DType dtype_a = *a.tensor->dtype, dtype_b = *b.tensor->dtype;
  const auto width_a = static_cast<size_t>(size_of(dtype_a)), width_b = static_cast<size_t>(size_of(dtype_b));
  const int64_t elements = a.tensor->shape.elements();
  for (int64_t first = 0; first < elements; first += kElements) {
    const auto n = static_cast<size_t>(std::min(kElements, elements - first));
    a.file->read(*a.tensor, static_cast<uint64_t>(first) * width_a, raw_a.data(), n * width_a);
    b.file->read(*b.tensor, static_cast<uint64_t>(first) * width_b, raw_b.data(), n * width_b);
    if (dtype_a == dtype_b && std::memcmp(raw_a.data(), raw_b.data(), n * width_a) == 0) continue;
    to_doubles(raw_a.data(), dtype_a, static_cast<int64_t>(n), left.data());
    to_doubles(raw_b.data(), dtype_b, static_cast<int64_t>(n), right.data());
    for (size_t i = 0; i < n; ++i) {
      const bool same = dtype_a == dtype_b
                            ? std::memcmp(&raw_a[i * width_a], &raw_b[i * width_a], width_a) == 0
                            : left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]));
      if (same) continue;
      ++diff.differing;
      const double distance = left[i] == right[i] ? 0 : std::abs(left[i] - right[i]);
      diff.max_abs =
          std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(diff.max_abs, distance);
    }
  }
  if (diff.differing > 0) diff.kind = DiffKind::kDifferent;
}

void compare(const TensorSource::Entry& a, const TensorSource::Entry& b, TensorDiff& diff) {
  if (!(a.tensor->shape == b.tensor->shape)) {
    diff.kind = DiffKind::kShape;
    diff.detail = a.tensor->shape.str() + " against " + b.tensor->shape.str();
    return;
  }
  if (a.tensor->dtype_name != b.tensor->dtype_name)
    diff.detail = a.tensor->dtype_name + " against " + b.tensor->dtype_name;
  if (!is_plain(a) || !is_plain(b)) {  // no values to compare: compare the bytes
    const bool same = diff.detail.empty() &&
                      scan_tensor(*a.file, *a.tensor).checksums == scan_tensor(*b.file, *b.tensor).checksums;
    diff.kind = same ? DiffKind::kEqual : DiffKind::kDifferent;
    return;
  }
  compare_values(a, b, diff);
}

std::map<std::string, TensorSource::Entry> entries_of(const std::vector<TensorSource>& sources) {
  std::map<std::string, TensorSource::Entry> entries;
  for (const auto& source : sources) entries.insert(source.tensors.begin(), source.tensors.end());
  return entries;
}

}  // namespace

std::vector<Problem> verify_checkpoint(const Path& path) {
  check_there(path);
  std::vector<Problem> problems;
  Verifier verifier(path, problems);
  const bool checksums = has_checksums(path);
  try {
    if (const auto files = stored_files(path)) verifier.against(*files);
  } catch (const DataError& damage) {
    verifier.add("", message_of(damage));
  }
  // The structure as a loader sees it: index and shards agree, config.json exists.
  try {
    read_config_json(path);
    const auto sources = open_all(path);
    if (!checksums) {
      for (const auto& source : sources) {
        for (const auto& file : source.files) verifier.tensors(*file, nullptr);
      }
    }
  } catch (const Error& damage) {
    verifier.add("", message_of(damage));
  }
  std::sort(problems.begin(), problems.end(), [](const Problem& a, const Problem& b) {
    return std::tie(a.file, a.what) < std::tie(b.file, b.what);
  });
  return problems;
}

bool has_checksums(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path / "manifest.json", error) ||
         std::filesystem::exists(path / kChecksumsFile, error);
}

CheckpointInfo inspect_checkpoint(const Path& path) {
  CheckpointInfo info;
  const auto sources = open_all(path);
  std::error_code error;
  if (std::filesystem::exists(path / "manifest.json", error)) info.manifest = read_manifest(path);
  for (size_t i = 0; i < sources.size(); ++i) {
    for (const auto& [name, entry] : sources[i].tensors) {
      info.tensors.push_back({entry.file->path().filename().string(), name, entry.tensor->dtype_name,
                              entry.tensor->shape, entry.tensor->bytes});
      info.bytes += entry.tensor->bytes;
      if (i == 0) info.parameters += entry.tensor->shape.elements();
    }
  }
  return info;
}

std::vector<TensorDiff> diff_checkpoints(const Path& first, const Path& second) {
  const auto sources_a = open_all(first), sources_b = open_all(second);
  const auto a = entries_of(sources_a), b = entries_of(sources_b);
  std::set<std::string> names;
  for (const auto& [name, entry] : a) names.insert(name);
  for (const auto& [name, entry] : b) names.insert(name);
  std::vector<TensorDiff> diffs;
  for (const auto& name : names) diffs.push_back({name, DiffKind::kEqual, 0, 0, {}});
  parallel_for(static_cast<int64_t>(diffs.size()), [&](int64_t i) {
    TensorDiff& diff = diffs[static_cast<size_t>(i)];
    const auto in_a = a.find(diff.name), in_b = b.find(diff.name);
    if (in_a == a.end() || in_b == b.end()) {
      diff.kind = in_a == a.end() ? DiffKind::kOnlyInSecond : DiffKind::kOnlyInFirst;
      return;
    }
    compare(in_a->second, in_b->second, diff);
  });
  return diffs;
}

}  // namespace strata::checkpoint
