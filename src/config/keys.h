// The keys of RUN.toml as data, from which this module generates everything else.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace strata::config {

// What a value may be.
struct ValueShape {
  enum class Base {
    kBoolean,
    kInteger,
    kNumber,
    kString,
    kChoice,  // one of `choices`
    kTexts,   // a list of strings; a string stands for a list of one
    kBytes,
    kDuration,
    kInterval,
    kRanges,
    kRamp,  // pairs of numbers
    kStageLayers,
    kToken,    // a text or an id
    kWeights,  // a table of numbers
    kFree,     // a table of anything
    kAny,      // anything: of a later version
  };
  Base base = Base::kString;
  bool optional = false;                         // may be left unset
  std::string word = {};                         // accepted in place of a value
  std::optional<double> least = {}, most = {};   // numbers, both included
  std::optional<double> above = {}, below = {};  // numbers, excluded
  bool counts = false;                           // integers may be written "500M"
  std::vector<std::string> choices = {};
  std::vector<std::string> later = {};  // choices of a later version
};

struct KeySpec {
  std::string name;
  std::string help;  // a sentence for people
  ValueShape shape;
  bool later = false;                 // only the default is accepted yet
  std::optional<ConfigValue> former;  // later: the default of an earlier version, accepted too
  std::optional<ResumeClass> resume;  // if it differs from the table's
  bool path = false;                  // texts that name files or folders
  // Returns false if the value does not have the shape. `table` is the struct that holds the key.
  std::function<bool(void* table, const ConfigValue& value)> read;
  // Returns nothing if the key is unset.
  std::function<std::optional<ConfigValue>(const void* table)> write;
};

struct TableSpec {
  std::string name;  // "training", "optimizer.group"
  std::string help;
  ResumeClass resume = ResumeClass::kFree;
  std::vector<KeySpec> keys;
  bool list = false;  // [[name]]
  bool later = false;
  std::function<size_t(const RunConfig&)> count;  // 1 unless a list
  std::function<void*(RunConfig&, size_t)> at;    // the struct number i, made where a list lacks it
};

// All tables, in the order of the file; sub-tables follow their parent.
const std::vector<TableSpec>& run_tables();
const TableSpec* find_table(std::string_view name);

// Reads the keys of a tree into `config`, whose other keys stay; errors go to its reading_issues.
void read_tree(RunConfig& config, const ConfigValue& root);

// "a whole number of at least 1, or \"auto\"".
std::string expected_text(const ValueShape& shape);

// "data.source.0" for element 0 of a list, else the table's name.
std::string table_path(const TableSpec& table, size_t index);

}  // namespace strata::config
