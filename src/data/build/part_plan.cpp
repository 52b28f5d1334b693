#include "data/build/part_plan.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "data/input/arrow_support.h"

namespace strata::data {
namespace {

BuildInput describe(InputFile file, int32_t source, const Path& base) {
  BuildInput input{.file = std::move(file), .name = "", .source = source, .modified = 0};
  const Path& path = input.file.path;
  const Path relative = path.lexically_relative(base.lexically_normal());
  const bool below = !relative.empty() && *relative.begin() != "..";
  input.name = (below ? relative : path).string();
  struct stat status;
  if (::stat(path.c_str(), &status) == 0)
    input.modified = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return input;
}

// The folders that a build fills, and empties first.
class OwnOutputs {
 public:
  explicit OwnOutputs(const Path& folder) : folder_(canonical(folder)) {}

  bool hold(const Path& file) {
    if (file.parent_path() != parent_) {  // files come sorted: each folder is checked once
      parent_ = file.parent_path();
      const Path below = canonical(parent_->empty() ? Path(".") : *parent_).lexically_relative(folder_);
      const std::string first = below.empty() ? "" : below.begin()->string();
      held_ = std::find(std::begin(kBuildOutputs), std::end(kBuildOutputs), first) != std::end(kBuildOutputs);
    }
    return held_;
  }

 private:
  static Path canonical(const Path& path) {
    std::error_code error;
    return std::filesystem::weakly_canonical(path, error);
  }

  Path folder_;
  std::optional<Path> parent_;
  bool held_ = false;
};

// A folder that holds the build's own is read without it.
std::vector<InputFile> files_of(const RecipeSource& source, const Path& folder) {
  std::vector<InputFile> files;
  try {
    files = list_inputs(source.paths, source.records.format);
  } catch (const ConfigError& error) {
    throw ConfigError("[source {}] {}", source.name, error.what());
  }
  const std::string first = files.front().path.string();
  OwnOutputs own(folder);
  std::erase_if(files, [&](const InputFile& file) {
    return file.path != kStandardInput && !is_uri(file.path) && own.hold(file.path);
  });
  if (files.empty()) {
    throw ConfigError(
        "[source {}] {} is an output of this very build, which would replace it; choose another build.folder "
        "than {}",
        source.name, first, folder.string());
  }
  return files;
}

}  // namespace

PartPlan plan_parts(const Recipe& recipe, int64_t most_bytes) {
  PartPlan plan;
  for (size_t s = 0; s < recipe.sources.size(); ++s) {
    for (InputFile& listed : files_of(recipe.sources[s], recipe.folder)) {
      plan.files.push_back(describe(std::move(listed), static_cast<int32_t>(s), recipe.base));
      plan.bytes += plan.files.back().file.size;
    }
  }
  const int64_t part_bytes =
      std::clamp(plan.bytes / kPartsWanted, std::min(kLeastPartBytes, most_bytes), most_bytes);
  size_t next = 0;
  for (size_t s = 0; s < recipe.sources.size(); ++s) {
    const auto source = static_cast<int32_t>(s);
    BuildPart open{.source = source, .pieces = {}, .bytes = 0};
    const auto close = [&] {
      if (open.pieces.empty()) return;
      plan.parts.push_back(std::move(open));
      open = {.source = source, .pieces = {}, .bytes = 0};
    };
    for (; next < plan.files.size() && plan.files[next].source == source; ++next) {
      const InputFile& file = plan.files[next].file;
      const auto number = static_cast<int32_t>(next);
      if (open.bytes + file.size > part_bytes) close();
      if (file.size <= part_bytes || !file.splittable) {
        open.pieces.push_back({number, {}});
        open.bytes += file.size;
        continue;
      }
      const int64_t count = (file.size + part_bytes - 1) / part_bytes;
      for (int64_t i = 0; i < count; ++i) {
        const FileRange range{file.size * i / count, file.size * (i + 1) / count};
        open.pieces.push_back({number, range});
        open.bytes = range.end - range.begin;
        close();
      }
    }
    close();
  }
  return plan;
}

std::string plan_identity(const PartPlan& plan) {
  Hasher hasher;
  const auto add = [&](int64_t value) { hasher.update(&value, sizeof value); };
  for (const BuildInput& input : plan.files) {
    hasher.update(input.file.path.string());
    add(input.source);
    add(static_cast<int64_t>(input.file.format));
    add(input.file.size);
    add(input.modified);
  }
  for (const BuildPart& part : plan.parts) {
    add(part.source);
    for (const PartPiece& piece : part.pieces) {
      add(piece.file);
      add(piece.range.begin);
      add(piece.range.end);
    }
  }
  return to_hex(hasher.digest());
}

}  // namespace strata::data
