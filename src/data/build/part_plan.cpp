#include "data/build/part_plan.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"

namespace strata::data {
namespace {

bool is_remote(const std::string& path) {
  return path.find("://") != std::string::npos;
}

InputFile describe_file(const Path& path, int32_t source, const RecipeSource& from, const Path& base) {
  InputFile file;
  file.path = path;
  file.source = source;
  const Path relative = path.lexically_relative(base.lexically_normal());
  const bool below = !relative.empty() && *relative.begin() != "..";
  file.name = (below ? relative : path).string();
  file.format = from.records.format != RecordFormat::kAuto ? from.records.format : find_record_format(path);
  struct stat status;
  if (!is_remote(path.string()) && ::stat(path.c_str(), &status) == 0) {
    file.bytes = status.st_size;
    file.modified = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  }
  return file;
}

std::vector<Path> files_of(const RecipeSource& source) {
  std::vector<Path> out;
  for (const std::string& pattern : source.paths) {
    if (pattern == "-" || is_remote(pattern)) {
      out.emplace_back(pattern);
      continue;
    }
    const std::vector<Path> found = expand_glob(pattern);
    if (found.empty()) {
      throw ConfigError("[source {}] found no files at {}, expected a file, a folder or a pattern",
                        source.name, pattern);
    }
    out.insert(out.end(), found.begin(), found.end());
  }
  // Each once, where two patterns find it.
  std::vector<Path> once;
  std::vector<std::string> seen;
  for (const Path& path : out) seen.push_back(path.string());
  std::sort(seen.begin(), seen.end());
  if (std::adjacent_find(seen.begin(), seen.end()) == seen.end()) return out;
  for (const Path& path : out)
    if (std::find(once.begin(), once.end(), path) == once.end()) once.push_back(path);
  return once;
}

}  // namespace

PartPlan plan_parts(const Recipe& recipe, int64_t part_bytes) {
  PartPlan plan;
  for (size_t s = 0; s < recipe.sources.size(); ++s) {
    const auto source = static_cast<int32_t>(s);
    BuildPart open{.source = source, .pieces = {}, .bytes = 0};
    const auto close = [&] {
      if (open.pieces.empty()) return;
      plan.parts.push_back(std::move(open));
      open = {.source = source, .pieces = {}, .bytes = 0};
    };
    for (const Path& path : files_of(recipe.sources[s])) {
      plan.files.push_back(describe_file(path, source, recipe.sources[s], recipe.base));
      const InputFile& file = plan.files.back();
      const auto number = static_cast<int32_t>(plan.files.size() - 1);
      plan.bytes += file.bytes;
      if (open.bytes + file.bytes > part_bytes) close();
      if (file.bytes <= part_bytes || !is_splittable(path, file.format)) {
        open.pieces.push_back({number, {}});
        open.bytes += file.bytes;
        continue;
      }
      const int64_t count = (file.bytes + part_bytes - 1) / part_bytes;
      for (int64_t i = 0; i < count; ++i) {
        const FileRange range{file.bytes * i / count, file.bytes * (i + 1) / count};
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
  for (const InputFile& file : plan.files) {
    hasher.update(file.path.string());
    add(file.source);
    add(static_cast<int64_t>(file.format));
    add(file.bytes);
    add(file.modified);
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
