#include "train/injected_marks.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/json.h"
#include "base/log.h"

namespace strata::training {
namespace {

using Json = nlohmann::ordered_json;

std::optional<InjectedMarks::Mark> mark_in(const std::string& text) {
  const Json json = parse_json_or_discard<Json>(text);
  if (!json.is_object()) return std::nullopt;
  const auto entry = json.find("entry"), undone = json.find("undone");
  const auto number = [&](const char* name) {
    const auto at = json.find(name);
    return at != json.end() && at->is_number_integer() ? std::optional(at->get<int64_t>()) : std::nullopt;
  };
  const auto step = number("step"), last = number("last_step");
  if (entry == json.end() || !entry->is_string() || !step || !last) return std::nullopt;
  InjectedMarks::Mark mark{entry->get<std::string>(), *step, *last};
  if (undone != json.end() && undone->is_number_integer()) mark.undone = undone->get<int64_t>();
  return mark;
}

}  // namespace

InjectedMarks::InjectedMarks(FileSystem& files, const Path& run) : files_(files), folder_(run / "injected") {
  if (!std::filesystem::exists(folder_)) return;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    const Path& path = file.path();
    const std::string name = path.stem();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (path.extension() != ".json" || error != std::errc() || end != name.data() + name.size()) continue;
    const auto mark = mark_in(read_file(path));
    if (!mark) {
      log_warning("[{}] is not a mark of an injected fault; ignored", path.string());
      continue;
    }
    marks_.push_back({number, *mark});
    next_ = std::max(next_, number + 1);
  }
}

const InjectedMarks::Mark* InjectedMarks::find(std::string_view entry) const {
  for (const Numbered& one : marks_)
    if (one.mark.entry == entry) return &one.mark;
  return nullptr;
}

void InjectedMarks::add(const config::Fault& fault, int64_t step, bool writes) {
  marks_.push_back({next_++, {fault.entry, step, step + fault.last_step() - fault.step}});
  if (writes) write(marks_.back());
}

void InjectedMarks::undo_after(int64_t step, bool writes) {
  for (Numbered& one : marks_) {
    if (one.mark.last_step <= step || one.mark.undone.value_or(step + 1) <= step) continue;
    one.mark.undone = step;
    if (writes) write(one);
  }
}

void InjectedMarks::write(const Numbered& one) {
  Json json{{"entry", one.mark.entry}, {"step", one.mark.step}, {"last_step", one.mark.last_step}};
  json["undone"] = one.mark.undone ? Json(*one.mark.undone) : Json();
  if (!std::filesystem::exists(folder_)) {
    files_.create_directories(folder_);
    files_.sync_directory(folder_.parent_path());
  }
  write_file_atomically(files_, folder_ / fmt::format("{:03}.json", one.number), dump_json(json, 1) + "\n");
}

}  // namespace strata::training
