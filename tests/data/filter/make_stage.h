// A stage with some of its parameters set, as a recipe would.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "data/pipeline/stage_kinds.h"

namespace strata::data {

inline std::unique_ptr<DocumentStage> make_stage(const std::string& kind,
                                                 const std::map<std::string, StageValue>& changes = {},
                                                 const Path& folder = ".") {
  for (const StageKind& known : filter_stage_kinds()) {
    if (known.name != kind) continue;
    std::map<std::string, StageValue> values;
    for (const StageParameter& parameter : known.parameters) values[parameter.name] = parameter.value;
    for (const auto& [name, value] : changes) {
      if (!values.contains(name) || values[name].index() != value.index())
        throw std::invalid_argument(kind + " has no such parameter " + name);
      values[name] = value;
    }
    return std::get<0>(known.make(StageParameters(values, folder)));
  }
  throw std::invalid_argument("no stage " + kind);
}

struct Outcome {
  std::string reason, text;
  bool operator==(const Outcome&) const = default;
};

// Applies a stage to one text, with a fresh view.
inline Outcome apply_stage(const DocumentStage& stage, std::string text, const Document& document = {},
                           StageStats* stats = nullptr) {
  StageStats own(stage.metrics());
  TextView view;
  view.reset(text);
  Outcome out;
  out.reason = stage.apply(view, document, stats ? *stats : own);
  out.text = view.bytes();
  return out;
}

}  // namespace strata::data
