// Showing and comparing configurations key by key.
#include <algorithm>

#include "base/error.h"
#include "config/keys.h"

namespace strata::config {
namespace {

const char* class_text(ResumeClass resume) {
  switch (resume) {
    case ResumeClass::kFree:
      return "may change";
    case ResumeClass::kAccept:
      return "needs --accept-changes";
    case ResumeClass::kRefused:
      return "cannot change in a run: start a new one in another run.folder";
  }
  return "";
}

// Takes the stored value of every key whose value now is the word of its shape.
void keep_words(RunConfig& now, RunConfig& stored) {
  for (const TableSpec& table : run_tables()) {
    const size_t count = std::min(table.count(now), table.count(stored));
    for (size_t i = 0; i < count; ++i) {
      void* object = table.at(now, i);
      const void* source = table.at(stored, i);
      for (const KeySpec& spec : table.keys) {
        const auto value = spec.write(object);
        const auto* text = value ? value->get_if<std::string>() : nullptr;
        // "repeat" is a wish of its own; the other words leave the choice to the program.
        const bool open = text && (*text == "auto" || *text == "training") &&
                          (*text == spec.shape.word || spec.shape.base == ValueShape::Base::kChoice);
        if (!open) continue;
        if (const auto kept = spec.write(source)) spec.read(object, *kept);
      }
    }
  }
}

}  // namespace

std::vector<Setting> settings(const RunConfig& config) {
  RunConfig own = config;
  std::vector<Setting> out;
  for (const TableSpec& table : run_tables()) {
    for (size_t i = 0; i < table.count(config); ++i) {
      const void* object = table.at(own, i);
      for (const KeySpec& spec : table.keys) {
        const auto value = spec.write(object);
        if (!value) continue;
        const std::string path = table_path(table, i) + "." + spec.name;
        out.push_back({path, to_toml(*value), config.origin_of(path), spec.resume.value_or(table.resume)});
      }
    }
  }
  return out;
}

std::vector<Change> compare(const RunConfig& before, const RunConfig& after) {
  const std::vector<Setting> old_settings = settings(before);
  const std::vector<Setting> new_settings = settings(after);
  const auto find = [](const std::vector<Setting>& list, const std::string& key) {
    const auto at =
        std::find_if(list.begin(), list.end(), [&](const Setting& setting) { return setting.key == key; });
    return at == list.end() ? std::string() : at->value;
  };
  std::vector<Change> out;
  for (const Setting& setting : old_settings) {
    const std::string now = find(new_settings, setting.key);
    if (now != setting.value) out.push_back({setting.key, setting.value, now, setting.resume});
  }
  for (const Setting& setting : new_settings) {
    if (find(old_settings, setting.key).empty())
      out.push_back({setting.key, "", setting.value, setting.resume});
  }
  return out;
}

RunConfig keep_resolved(const RunConfig& now, const RunConfig& stored) {
  RunConfig out = now;
  RunConfig source = stored;
  keep_words(out, source);
  // Span corruption has one packing, which a run takes where none was given.
  if (!out.was_set("data.pack") && source.data.objective == Objective::kSpanCorruption)
    out.data.pack = source.data.pack;
  // What the objective added to the special tokens stays.
  if (!out.was_set("tokenizer.train.special")) out.tokenizer.train.special = source.tokenizer.train.special;
  // A length in tokens stays what it was; a tokenizer left to the program is the run's own.
  if (out.tokenizer.path.empty() && !out.tokenizer.train_given) {
    out.tokenizer.path = source.tokenizer.path;
    out.tokenizer.train = source.tokenizer.train;
    out.tokenizer.train_given = source.tokenizer.train_given;
  }
  return out;
}

std::vector<Change> compare_for_resume(const RunConfig& stored, const RunConfig& now) {
  // A group without a name means the optimizer's.
  const auto with_names = [](RunConfig config) {
    for (OptimizerGroup& group : config.optimizer.group)
      group.name = group.name.value_or(config.optimizer.name);
    return config;
  };
  return compare(with_names(stored), with_names(keep_resolved(now, stored)));
}

void require_resumable(std::span<const Change> changes, bool accepted) {
  std::string text;
  for (const Change& change : changes) {
    if (change.resume == ResumeClass::kFree || (change.resume == ResumeClass::kAccept && accepted)) continue;
    text += fmt::format("\n  {}: {} → {}: {}", change.key, change.before.empty() ? "unset" : change.before,
                        change.after.empty() ? "unset" : change.after, class_text(change.resume));
  }
  if (!text.empty()) {
    throw ConfigError("[resume] the configuration differs from the one that this run was started with:{}",
                      text);
  }
}

}  // namespace strata::config
