// run.toml and the commented RUN.toml of `strata init`.
#include <fmt/format.h>

#include <algorithm>

#include "base/version.h"
#include "config/keys.h"
#include "config/paths.h"

namespace strata::config {
namespace {

std::string header_of(const TableSpec& table) {
  return table.list ? "[[" + table.name + "]]" : "[" + table.name + "]";
}

// The text in comment lines of at most about 100 columns.
std::string comment(const std::string& text) {
  std::string out, line = "#";
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (line.size() + 1 + word.size() > 100) {
      out += line + "\n";
      line = "#";
    }
    line += " " + word;
    begin = end + 1;
  }
  return out + line + "\n";
}

// "key = value" of a setting; [model.override] and the like inline.
std::string assignment(const KeySpec& spec, const ConfigValue& value) {
  return spec.name + " = " + to_toml(value);
}

// An example value for a key that has none.
std::string placeholder(const KeySpec& spec) {
  using Base = ValueShape::Base;
  switch (spec.shape.base) {
    case Base::kInteger:
      return spec.shape.counts ? "2_000_000_000" : "1";
    case Base::kNumber:
      return "0.0";
    case Base::kBoolean:
      return "true";
    case Base::kFree:
      return "{ }";
    default:
      return "\"…\"";
  }
}

std::string commented_key(const TableSpec& table, const std::string& path, const KeySpec& spec,
                          const std::optional<ConfigValue>& value, bool given) {
  std::string help = spec.help;
  if (spec.shape.base == ValueShape::Base::kChoice) {
    std::string choices;
    for (const std::string& choice : spec.shape.choices) {
      const auto& later = spec.shape.later;
      if (std::find(later.begin(), later.end(), choice) != later.end()) continue;
      choices += (choices.empty() ? "" : "|") + choice;
    }
    help += " (" + choices + ")";
  }
  (void)table;
  (void)path;
  const std::string line =
      (given ? "" : "# ") + (value ? assignment(spec, *value) : spec.name + " = " + placeholder(spec));
  constexpr size_t kColumn = 34, kWidth = 110;
  if (line.size() < kColumn && kColumn + 2 + help.size() <= kWidth) {
    return fmt::format("{:<{}}# {}\n", line, kColumn, help);
  }
  return comment(help) + line + "\n";
}

}  // namespace

std::string resolved_toml(const RunConfig& config, const std::string& machine) {
  RunConfig own = config;
  take_back_paths(own);
  std::string out =
      fmt::format("# The resolved configuration of this run, written by strata {}.\n# Machine: {}\n",
                  program_version(), machine);
  for (const TableSpec& table : run_tables()) {
    if (table.later) continue;
    for (size_t i = 0; i < table.count(config); ++i) {
      const void* object = table.at(own, i);
      out += "\n" + header_of(table) + "\n";
      for (const KeySpec& spec : table.keys) {
        if (spec.later) continue;
        if (const auto value = spec.write(object)) out += assignment(spec, *value) + "\n";
      }
    }
  }
  return out;
}

std::string commented_toml(const RunConfig& config, const std::string& heading) {
  RunConfig own = config;
  std::string out = comment(heading);
  for (const TableSpec& table : run_tables()) {
    if (table.later) continue;
    // A list without elements is shown once, as an example in comments.
    const size_t count = table.count(config);
    for (size_t i = 0; i < std::max<size_t>(count, 1); ++i) {
      RunConfig defaults;
      const bool real = i < count;
      const void* object = table.at(real ? own : defaults, real ? i : 0);
      const std::string path = table_path(table, i);
      out += "\n" + (table.help.empty() ? "" : comment(table.help)) + (real ? "" : "# ") + header_of(table) +
             "\n";
      for (const KeySpec& spec : table.keys) {
        if (spec.later) continue;
        const std::string key = path + "." + spec.name;
        out += commented_key(table, key, spec, spec.write(object), real && config.was_set(key));
      }
    }
  }
  return out;
}

std::string short_toml(const RunConfig& config, const std::string& heading) {
  RunConfig own = config;
  take_back_paths(own);
  std::string out = comment(heading);
  for (const TableSpec& table : run_tables()) {
    if (table.later) continue;
    for (size_t i = 0; i < table.count(config); ++i) {
      RunConfig usual;
      const void* standard = table.at(usual, 0);
      std::string lines;
      for (const KeySpec& spec : table.keys) {
        // Names follow from the file's.
        if (spec.later || table.name == "run") continue;
        const auto value = spec.write(table.at(own, i)), other = spec.write(standard);
        if (!value || (other && same_value(*value, *other))) continue;
        lines += assignment(spec, *value) + "\n";
      }
      if (!lines.empty()) out += "\n" + header_of(table) + "\n" + lines;
    }
  }
  return out;
}

}  // namespace strata::config
