// The report of strata check causality.
#pragma once

#include <string>
#include <vector>

#include "evaluation/causality.h"
#include "graph/placement.h"

namespace strata::cli {

// The answer for one program.
struct CausalityAnswer {
  program::Request request = {};
  int64_t batch_parts = 1;  // ranks among which sequences are split
  evaluation::Causality found = {};
  std::string mode() const { return std::string(name_of(request.kind)); }
};

struct CausalityReport {
  std::vector<CausalityAnswer> answers = {};
  graph::Mesh mesh = graph::Mesh::of_one();
  DType computed = DType::kF32;
  std::string weights = {};   // their source, for people
  bool documents = true;      // several in a sequence
  std::string left_out = {};  // a mode, and why; empty: none is
  bool causal() const;
  int exit_code() const { return causal() ? 0 : 3; }
  // Parts of the model that the check does not cover.
  std::vector<std::string> not_covered() const;
};

std::string text_of(const CausalityReport& report);
// {"causal", "leaks": [{"op", "layer", "mode", "largest", …}], …}; "layer" is null outside the model's
// layers.
std::string json_of(const CausalityReport& report);

}  // namespace strata::cli
