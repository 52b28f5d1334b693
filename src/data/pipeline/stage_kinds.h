// The stages that a recipe can name: one row a kind, with its parameters under their published names.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/file.h"
#include "data/pipeline/stage.h"

namespace strata::data {

using StageValue = std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

struct StageParameter {
  std::string name;
  StageValue value;  // the published default; its alternative is the parameter's type (an integer is taken
                     // for a double)
  std::string help;
};

// Every parameter of a kind with the value that holds.
class StageParameters {
 public:
  explicit StageParameters(std::map<std::string, StageValue> values, Path folder)
      : values_(std::move(values)), folder_(std::move(folder)) {}
  template <typename T>
  const T& get(const std::string& name) const {
    return std::get<T>(values_.at(name));
  }
  const Path& folder() const { return folder_; }  // where relative paths start: the recipe's
  const std::map<std::string, StageValue>& values() const { return values_; }

 private:
  std::map<std::string, StageValue> values_;
  Path folder_;
};

// Exactly one of them.
using AnyStage = std::variant<std::unique_ptr<DocumentStage>, std::unique_ptr<CorpusStage>>;

struct StageKind {
  std::string name;
  std::string help;  // one line: its effect and the published rule that it follows
  std::vector<StageParameter> parameters;
  // ConfigError naming a parameter whose value cannot be, or a file that is not there.
  std::function<AnyStage(const StageParameters&)> make;
};

std::vector<StageKind> filter_stage_kinds();  // data/filter
std::vector<StageKind> dedup_stage_kinds();   // data/dedup

}  // namespace strata::data
