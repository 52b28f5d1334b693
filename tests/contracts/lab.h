// Where contracts are checked: runs of the smallest model that works, and what they leave behind.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "fixtures/tiny_run.h"
#include "tensor/shape.h"

namespace strata::contracts {

using nlohmann::json;
using Sets = std::vector<std::string>;

Sets operator+(Sets a, const Sets& b);

struct Tensor {
  Shape shape;
  std::string dtype;           // as the file spells it
  std::vector<double> values;  // empty for integers
};
using Tensors = std::map<std::string, Tensor>;
// STEM.safetensors of a folder by the names in the file: "model", "optimizer".
Tensors tensors_in(const Path& folder, const std::string& stem = "model");

// What a run left behind.
struct Seen {
  train::TrainResult result;
  Path folder;
  std::vector<json> steps, events;  // lines of metrics.jsonl

  Path checkpoint(int64_t step) const;  // whether it is there or not
  std::vector<int64_t> checkpoints() const;
  json config() const;  // config.json of the final model
  Tensors weights(int64_t step) const { return tensors_in(checkpoint(step)); }
  Tensors states(int64_t step) const { return tensors_in(checkpoint(step), "optimizer"); }
  // One value a step that has it.
  std::vector<double> values(const std::string& name) const;
  double last(const std::string& name) const;  // of them; fails where no step has it
  const json& event(const std::string& name) const;
  std::string run_toml() const { return read_file(folder / "run.toml"); }
};

// A run of fixtures/tiny_run.h and its folder; every run has a folder of its own within it.
class Lab {
 public:
  Path path(const std::string& name) const { return tiny_.path(name); }
  // An array of paths as TOML: ["…"].
  std::string list(const std::vector<std::string>& names) const;
  void put(const std::string& name, const std::string& text) const { put_file(path(name), text); }
  // Lines of text with something to learn, and a .jsonl of the same, a line a document.
  std::string text(int lines = 300) const;

  // Two steps of two sequences, saved at each, unless `sets` say otherwise; `more`: tables behind the others.
  Seen run(const Sets& sets = {}, const std::string& more = "");
  // The same on several ranks, threads of this process.
  Seen run_on(int ranks, const Sets& sets = {});
  std::string refusal_on(int ranks, const Sets& sets);
  // Another RUN.toml in place of the tiny run's.
  Seen run_toml(const std::string& toml, const Sets& sets = {});
  Seen run_toml_on(int ranks, const std::string& toml, const Sets& sets = {});
  std::string refusal_of_toml_on(int ranks, const std::string& toml, const Sets& sets);
  // The ids of the one token file that the run made of its text.
  std::vector<int32_t> ids_of(const Seen& run) const;
  // What a run is refused with; fails where it is not, or not as a fault of the configuration.
  std::string refusal(const Sets& sets, const std::string& more = "");
  std::string refusal_of_toml(const std::string& toml, const Sets& sets = {});
  config::RunConfig config(const Sets& sets, const std::string& more = "");
  // `strata explain --json` of such a run with further options.
  json explain(const std::vector<std::string>& options, const Sets& sets, const std::string& more = "");
  // The tiny run's RUN.toml without [run] and the sizes of [training], with another [model] where one is
  // given.
  std::string toml(const std::string& model = "") const;
  Path next_folder();

 private:
  train::TinyRun tiny_;
  int runs_ = 0;
};

// Weights do not move: what the states hold after step 1 is the gradient ("m" with beta1 = 0).
extern const Sets kStill;
// A learning rate without a curve.
extern const Sets kFlat;

// ‖a − b‖ / ‖b‖.
// [model] of a small model with so many experts, two of them a token.
std::string small_experts(int experts);

double distance(const std::vector<double>& a, const std::vector<double>& b);
double norm(const Tensors& tensors, const std::string& prefix = "");
// The same tensors with the same values, to the bit.
bool same(const Tensors& a, const Tensors& b);

// `strata ARGUMENTS`, in this process, in `folder`.
struct Outcome {
  int code = -1;
  std::string out, err;
  json parsed() const;              // of one JSON object
  std::vector<json> lines() const;  // of one a line
};
Outcome strata(const Path& folder, const std::vector<std::string>& arguments);

// The loss that `strata eval` gives for a token file, of the weights that a run ended with.
double evaluated(const Lab& lab, const Seen& run, const std::string& file);

bool has(const std::string& text, const std::string& part);

}  // namespace strata::contracts
