#include "train/copy_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"

namespace strata::training {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "copy-", kManifest = ".json", kData = ".state";
constexpr size_t kRankDigits = 5;

Path path_of(const Path& folder, int64_t rank, int slot, std::string_view suffix) {
  return folder / fmt::format("{}{:0{}}-{}{}", kPrefix, rank, kRankDigits, slot, suffix);
}

uint64_t from_hex(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size())
    throw DataError("'{}' is not a checksum", text);
  return value;
}

// The rank in the name of a manifest; nullopt: it is another file's name.
std::optional<int64_t> rank_in(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kManifest)) return std::nullopt;
  int64_t rank = 0;
  const char* const begin = name.data() + kPrefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), rank);
  if (error != std::errc() || *end != '-') return std::nullopt;
  return rank;
}

std::vector<Path> files_of_copies(const Path& folder) {
  std::vector<Path> all;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with(kPrefix)) all.push_back(entry.path());
  return all;
}

}  // namespace

int64_t CopyManifest::bytes() const {
  int64_t sum = 0;
  for (const Value& value : values) sum += value.bytes;
  return sum;
}

std::string to_json(const CopyManifest& manifest) {
  Json copy{{"program", manifest.origin.program},
            {"run", manifest.origin.run},
            {"layout", manifest.origin.layout},
            {"ranks", manifest.origin.ranks},
            {"rank", manifest.rank},
            {"step", manifest.step},
            {"state", manifest.state},
            {"values", Json::array()}};
  for (const CopyManifest::Value& value : manifest.values)
    copy["values"].push_back(
        {{"name", value.name}, {"bytes", value.bytes}, {"checksum", to_hex(value.checksum)}});
  const std::string text = dump_json(copy);
  // The checksum comes first, so that a cut text has it too.
  return fmt::format("{{\"checksum\":\"{}\",\"copy\":{}}}\n", to_hex(hash64(text)), text);
}

CopyManifest copy_manifest_from_json(const std::string& text, const std::string& where) {
  try {
    const auto json = parse_json<Json>(text);
    const Json& copy = json.at("copy");
    CopyManifest manifest;
    copy.at("program").get_to(manifest.origin.program);
    copy.at("run").get_to(manifest.origin.run);
    copy.at("layout").get_to(manifest.origin.layout);
    copy.at("ranks").get_to(manifest.origin.ranks);
    copy.at("rank").get_to(manifest.rank);
    copy.at("step").get_to(manifest.step);
    copy.at("state").get_to(manifest.state);
    for (const auto& value : copy.at("values")) {
      manifest.values.push_back({value.at("name").get<std::string>(), value.at("bytes").get<int64_t>(),
                                 from_hex(value.at("checksum").get<std::string>())});
    }
    // Any other text, even with the same meaning, is not the one that was written.
    if (text != to_json(manifest)) throw DataError("[{}] is damaged: its checksum differs", where);
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    throw DataError("[{}] is not the manifest of a copy: {}", where, error.what());
  }
}

std::vector<FoundCopy> list_copies(const Path& folder) {
  std::vector<FoundCopy> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const auto rank = rank_in(entry.path().filename().string());
    if (!rank) continue;
    FoundCopy copy{.manifest = entry.path(), .data = entry.path(), .rank = *rank, .content = {}};
    copy.data.replace_extension(kData);
    try {
      copy.content = copy_manifest_from_json(read_file(copy.manifest), copy.manifest.string());
    } catch (const Error&) {  // damage_of() reports it
    }
    found.push_back(std::move(copy));
  }
  std::sort(found.begin(), found.end(),
            [](const FoundCopy& a, const FoundCopy& b) { return a.manifest < b.manifest; });
  return found;
}

std::optional<int64_t> newest_copied_step(const Path& folder) {
  std::map<int64_t, int64_t> newest_of;  // by rank
  for (const FoundCopy& copy : list_copies(folder)) {
    if (!copy.content) continue;
    int64_t& newest = newest_of.try_emplace(copy.rank, copy.content->step).first->second;
    newest = std::max(newest, copy.content->step);
  }
  std::optional<int64_t> least;
  for (const auto& [rank, step] : newest_of) least = std::min(least.value_or(step), step);
  return least;
}

bool has_copies(const Path& folder) {
  return !files_of_copies(folder).empty();
}

std::optional<std::string> damage_of(const FoundCopy& copy) {
  if (!copy.content) return "manifest";
  std::vector<std::byte> buffer(size_t{1} << 18);
  std::optional<ReadableFile> file;
  uint64_t at = 0;
  for (const CopyManifest::Value& value : copy.content->values) {
    try {
      if (!file) file.emplace(copy.data);
      Hasher hasher;
      for (auto left = static_cast<uint64_t>(value.bytes); left > 0;) {
        const size_t size = std::min<uint64_t>(left, buffer.size());
        file->read_at(at, buffer.data(), size);
        hasher.update(buffer.data(), size);
        at += size;
        left -= size;
      }
      if (hasher.digest() != value.checksum) return value.name;
    } catch (const Error&) {  // missing, short or unreadable
      return value.name;
    }
  }
  return std::nullopt;
}

void remove_copies(FileSystem& files, const Path& folder, std::span<const FoundCopy> keep) {
  std::vector<Path> all = files_of_copies(folder);
  // Manifests first: a copy must not lose its data before.
  std::sort(all.begin(), all.end());
  for (const Path& path : all) {
    const bool is_kept = std::any_of(keep.begin(), keep.end(), [&](const FoundCopy& copy) {
      return path == copy.manifest || path == copy.data;
    });
    if (!is_kept) files.remove(path);
  }
}

CopySlots::CopySlots(FileSystem& files, const Path& folder, int64_t rank) : files_(files), rank_(rank) {
  const std::vector<FoundCopy> found = list_copies(folder);
  for (int i = 0; i < 2; ++i) {
    Slot& slot = slots_[i];
    slot = {path_of(folder, rank, i, kManifest), path_of(folder, rank, i, kData), std::nullopt};
    for (const FoundCopy& copy : found)
      if (copy.manifest == slot.manifest && copy.content) slot.step = copy.content->step;
  }
}

std::vector<int64_t> CopySlots::steps() const {
  std::vector<int64_t> steps;
  for (const Slot& slot : slots_)
    if (slot.step) steps.push_back(*slot.step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

bool CopySlots::has(int64_t step) const {
  return slots_[0].step == step || slots_[1].step == step;
}

FoundCopy CopySlots::find(int64_t step) const {
  STRATA_CHECK(has(step), "rank {} has no copy of step {}", rank_, step);
  const Slot& slot = slots_[slots_[0].step == step ? 0 : 1];
  return {.manifest = slot.manifest,
          .data = slot.data,
          .rank = rank_,
          .content = copy_manifest_from_json(read_file(slot.manifest), slot.manifest.string())};
}

void CopySlots::begin(int64_t bytes, int64_t keep) {
  open_ = nullptr;
  file_.reset();
  Slot* const older = slots_[0].step.value_or(-1) <= slots_[1].step.value_or(-1) ? &slots_[0] : &slots_[1];
  Slot* const newer = older == &slots_[0] ? &slots_[1] : &slots_[0];
  Slot& slot = older->step && *older->step == keep ? *newer : *older;
  slot.step.reset();
  files_.remove(slot.manifest);
  std::error_code none;
  // The pages of a file of the same size are used again.
  if (std::filesystem::file_size(slot.data, none) != static_cast<uintmax_t>(bytes)) files_.remove(slot.data);
  file_ = files_.open_for_update(slot.data);
  open_ = &slot;
}

void CopySlots::write(int64_t offset, const void* bytes, size_t size) {
  file_->write_at(static_cast<uint64_t>(offset), bytes, size);
}

void CopySlots::commit(int64_t step, const std::string& manifest) {
  file_->close();
  file_.reset();
  write_file_atomically(files_, open_->manifest, manifest);
  std::exchange(open_, nullptr)->step = step;
}

void CopySlots::drop_after(int64_t step) {
  for (Slot& slot : slots_) {
    if (!slot.step || *slot.step <= step) continue;
    files_.remove(slot.manifest);
    slot.step.reset();
  }
}

}  // namespace strata::training
