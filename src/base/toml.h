// TOML as configuration: a tree of values that remember their file and line.
// `include = ["base.toml"]` at the top of a file composes files: the included ones are read first, in order
// (relative to the including file's folder), then the file itself; tables are merged key by key, every other
// value, lists too, is replaced by the later one. Syntax errors are ConfigError with file and line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"

namespace strata {

// Where a value comes from.
struct Origin {
  enum class Kind { kDefault, kFile, kSet, kArgument };
  Kind kind = Kind::kDefault;
  std::string file;  // kFile: as the user named it
  int64_t line = 0;  // kFile: from 1
  std::string text;  // kSet: the KEY of --set; kArgument: the argument
  bool operator==(const Origin&) const = default;
};

// "default", "run.toml:12", "--set training.steps", "argument corpus.txt".
std::string to_string(const Origin& origin);

// A template, so that a table of values can be part of a value: it is looked into when both are complete.
template <typename Value>
struct NamedValue {
  std::string key;
  Value value;
};
struct ConfigValue;
using ConfigEntry = NamedValue<ConfigValue>;

struct ConfigValue {
  using Array = std::vector<ConfigValue>;
  using Table = std::vector<ConfigEntry>;  // in the order of the text; keys are unique
  std::variant<bool, int64_t, double, std::string, Array, Table> data = false;
  Origin origin;

  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&data);
  }
  bool is_table() const { return std::holds_alternative<Table>(data); }
  bool is_array() const { return std::holds_alternative<Array>(data); }
  // The entry of a table; null if it is missing or this is not a table.
  const ConfigValue* find(std::string_view key) const;
  ConfigValue* find(std::string_view key);
};

// The same values, wherever they were written. 1 and 1.0 differ.
bool same_value(const ConfigValue& a, const ConfigValue& b);

// Parses one text, without includes; origins and messages use `name`.
ConfigValue parse_toml(std::string_view text, const std::string& name);

// A file with all that it includes. A missing file or a cycle of includes: ConfigError.
ConfigValue read_toml(const Path& path);

// Lays `over` on `base`: tables merge, other values replace.
void merge(ConfigValue& base, ConfigValue over);

// Applies one `--set KEY=VALUE`. KEY is dotted; a number names an element of a list ("data.source.0.weight").
// VALUE is a TOML value; anything else is taken as a string, so that `--set model.preset=llama3-29m` needs no
// quotes. A KEY that is malformed or leads through a plain value: ConfigError.
void apply_set(ConfigValue& root, std::string_view assignment, Origin::Kind kind = Origin::Kind::kSet);

// The value as TOML, on one line (tables inline). Doubles are written shortest and come back exactly.
std::string to_toml(const ConfigValue& value);
// A key, quoted where TOML asks for it.
std::string toml_key(std::string_view key);

}  // namespace strata
