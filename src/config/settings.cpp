// Lists and compares configurations key by key.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "config/keys.h"
#include "config/ramp.h"

namespace strata::config {
namespace {

const char* class_text(ResumeClass resume) {
  switch (resume) {
    case ResumeClass::kFree:
      return "may change";
    case ResumeClass::kAccept:
      return "needs --accept-changes";
    case ResumeClass::kRefused:
      return "cannot change during a run; start a new run in another run.folder";
  }
  return "";
}

// Takes the stored value of every key whose current value is the word of its shape.
void keep_words(RunConfig& now, RunConfig& stored) {
  for (const TableSpec& table : run_tables()) {
    const size_t count = std::min(table.count(now), table.count(stored));
    for (size_t i = 0; i < count; ++i) {
      void* object = table.at(now, i);
      const void* source = table.at(stored, i);
      for (const KeySpec& spec : table.keys) {
        if (spec.later) continue;  // has its default
        const auto value = spec.write(object);
        const auto* text = value ? value->get_if<std::string>() : nullptr;
        // "repeat" is a user's choice; the other words leave the choice to the program.
        const bool open = text && (*text == "auto" || *text == "training") &&
                          (*text == spec.shape.word || spec.shape.base == ValueShape::Base::kChoice);
        if (!open) continue;
        if (const auto kept = spec.write(source)) spec.read(object, *kept);
      }
    }
  }
}

std::optional<double> number_of(const ConfigValue& value) {
  if (const auto* integer = value.get_if<int64_t>()) return static_cast<double>(*integer);
  if (const auto* number = value.get_if<double>()) return *number;
  return std::nullopt;
}

std::string normal_path(const std::string& path) {
  if (path.find("://") != std::string::npos) return path;
  std::string normal = std::filesystem::absolute(path).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

bool same_meaning(const ConfigValue& a, const ConfigValue& b, bool path) {
  if (const auto left = number_of(a), right = number_of(b); left && right) {
    // Integers too large for an exact double are compared as integers.
    return a.data.index() == b.data.index() ? same_value(a, b) : *left == *right;
  }
  if (a.data.index() != b.data.index()) return false;
  if (const auto* left = a.get_if<ConfigValue::Array>()) {
    const auto& right = std::get<ConfigValue::Array>(b.data);
    return std::equal(left->begin(), left->end(), right.begin(), right.end(),
                      [&](const ConfigValue& x, const ConfigValue& y) { return same_meaning(x, y, path); });
  }
  if (const auto* left = a.get_if<ConfigValue::Table>()) {
    return left->size() == std::get<ConfigValue::Table>(b.data).size() &&
           std::all_of(left->begin(), left->end(), [&](const ConfigEntry& entry) {
             const ConfigValue* other = b.find(entry.key);
             return other != nullptr && same_meaning(entry.value, *other, path);
           });
  }
  if (const auto* left = a.get_if<std::string>(); left && path)
    return normal_path(*left) == normal_path(std::get<std::string>(b.data));
  return same_value(a, b);
}

// A key's value with the properties that comparison needs.
struct Valued {
  Setting setting;
  ConfigValue value;
  bool path;
};

std::vector<Valued> values(const RunConfig& config) {
  RunConfig own = config;
  std::vector<Valued> out;
  for (const TableSpec& table : run_tables()) {
    for (size_t i = 0; i < table.count(config); ++i) {
      const void* object = table.at(own, i);
      for (const KeySpec& spec : table.keys) {
        const auto value = spec.write(object);
        if (!value) continue;
        const std::string path = table_path(table, i) + "." + spec.name;
        out.push_back({{path, to_toml(*value), config.origin_of(path), spec.resume.value_or(table.resume)},
                       *value,
                       spec.path});
      }
    }
  }
  return out;
}

bool divides_batches(const RunConfig& config, int64_t size) {
  const std::vector<int64_t> all = batch_sizes(config);
  return std::all_of(all.begin(), all.end(), [&](int64_t batch) { return batch % size == 0; });
}

// Choices for a machine are made again, and so are those for a batch, a length, a precision or a given amount
// of memory if that changes; a resolved "auto" is not a user's choice.
void drop_stale(RunConfig& out, const RunConfig& now, const RunConfig& stored) {
  const bool precision = out.precision.compute != stored.precision.compute;
  if (now.precision.residual.is_word() && precision) out.precision.residual = now.precision.residual;
  const int64_t micro_batch = out.training.micro_batch_size.value_or(1);
  // The machine, or the available part of it, may differ.
  if (now.device.threads.is_word()) out.device.threads = now.device.threads;
  if (now.memory.budget.is_word()) out.memory.budget = now.memory.budget;
  if (now.parallel.progress.is_word()) out.parallel.progress = now.parallel.progress;
  // Ranks share a batch: choices for another number of ranks are made again.
  const bool layout =
      out.parallel.replicate != stored.parallel.replicate || out.parallel.shard != stored.parallel.shard ||
      out.parallel.context != stored.parallel.context || out.parallel.tensor != stored.parallel.tensor ||
      out.parallel.pipeline != stored.parallel.pipeline;
  if (layout && now.parallel.zero.is_word()) out.parallel.zero = now.parallel.zero;
  const bool sizes = layout || out.training.sequence_length != stored.training.sequence_length ||
                     !divides_batches(out, micro_batch) ||
                     (now.memory.budget.value && stored.memory.budget.value &&
                      now.memory.budget.value->count != stored.memory.budget.value->count);
  if (now.training.micro_batch_size.is_word() && (precision || sizes))
    out.training.micro_batch_size = now.training.micro_batch_size;
  const bool micro_batch_changed =
      !(out.training.micro_batch_size.value == stored.training.micro_batch_size.value);
  if (now.memory.recompute.is_word() && (precision || sizes || micro_batch_changed))
    out.memory.recompute = now.memory.recompute;
}

}  // namespace

std::vector<Setting> settings(const RunConfig& config) {
  std::vector<Setting> out;
  for (Valued& one : values(config)) out.push_back(std::move(one.setting));
  return out;
}

std::vector<Change> compare(const RunConfig& before, const RunConfig& after) {
  const std::vector<Valued> old_values = values(before), new_values = values(after);
  const auto find = [](const std::vector<Valued>& list, const std::string& key) {
    const auto at =
        std::find_if(list.begin(), list.end(), [&](const Valued& one) { return one.setting.key == key; });
    return at == list.end() ? nullptr : &*at;
  };
  std::vector<Change> out;
  for (const Valued& old : old_values) {
    const Valued* now = find(new_values, old.setting.key);
    if (now == nullptr) {
      out.push_back({old.setting.key, old.setting.value, "", old.setting.resume});
    } else if (!same_meaning(old.value, now->value, old.path)) {
      out.push_back({old.setting.key, old.setting.value, now->setting.value, old.setting.resume});
    }
  }
  for (const Valued& now : new_values) {
    if (find(old_values, now.setting.key) == nullptr)
      out.push_back({now.setting.key, "", now.setting.value, now.setting.resume});
  }
  return out;
}

RunConfig keep_resolved(const RunConfig& now, const RunConfig& stored) {
  RunConfig out = now;
  RunConfig source = stored;
  keep_words(out, source);
  drop_stale(out, now, stored);
  // Span corruption has only one packing, which a run uses if none is set.
  if (!out.was_set("data.pack") && source.data.objective == data::Objective::kSpanCorruption)
    out.data.pack = source.data.pack;
  // Special tokens added by the objective remain.
  if (!out.was_set("tokenizer.train.special")) out.tokenizer.train.special = source.tokenizer.train.special;
  // A length in tokens remains; a tokenizer left to the program is the run's own.
  if (out.tokenizer.path.empty() && !out.tokenizer.train_given) {
    out.tokenizer.path = source.tokenizer.path;
    out.tokenizer.train = source.tokenizer.train;
    out.tokenizer.train_given = source.tokenizer.train_given;
  }
  return out;
}

std::vector<Change> compare_for_resume(const RunConfig& stored, const RunConfig& now) {
  // A group without a name uses the optimizer's.
  const auto with_names = [](RunConfig config) {
    config.run.started_in.clear();
    config.run.chosen.clear();
    for (OptimizerGroup& group : config.optimizer.group)
      group.name = group.name.value_or(config.optimizer.name);
    return config;
  };
  auto changes = compare(with_names(stored), with_names(keep_resolved(now, stored)));
  // A value that is to be chosen again is not a user's choice.
  std::erase_if(changes, [](const Change& change) { return change.after == "\"auto\""; });
  return changes;
}

void require_resumable(std::span<const Change> changes, bool accepted) {
  std::string text;
  for (const Change& change : changes) {
    if (change.resume == ResumeClass::kFree || (change.resume == ResumeClass::kAccept && accepted)) continue;
    text += fmt::format("\n  {}: {} → {}: {}", change.key, change.before.empty() ? "unset" : change.before,
                        change.after.empty() ? "unset" : change.after, class_text(change.resume));
  }
  if (!text.empty()) {
    throw ConfigError("[resume] found a configuration that differs from the one this run was started with:{}",
                      text);
  }
}

}  // namespace strata::config
