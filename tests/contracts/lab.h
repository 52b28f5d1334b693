// Fixture for contracts of keys: trains the smallest model that works and reads the files of a run.
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
  std::string dtype;           // as written in the file
  std::vector<double> values;  // empty for integers
};
using Tensors = std::map<std::string, Tensor>;
// The tensors of STEM.safetensors in a folder, by name. STEM: "model" or "optimizer".
Tensors tensors_in(const Path& folder, const std::string& stem = "model");

// The results and files of a run.
struct Seen {
  training::TrainResult result;
  Path folder;
  std::vector<json> steps, events;  // lines of metrics.jsonl

  Path checkpoint(int64_t step) const;  // may not exist
  std::vector<int64_t> checkpoints() const;
  json config() const;  // config.json of the final model
  Tensors weights(int64_t step) const { return tensors_in(checkpoint(step)); }
  Tensors states(int64_t step) const { return tensors_in(checkpoint(step), "optimizer"); }
  // The values of the steps that have `name`.
  std::vector<double> values(const std::string& name) const;
  double last(const std::string& name) const;  // the last of them; fails without any
  const json& event(const std::string& name) const;
  std::string run_toml() const { return read_file(folder / "run.toml"); }
};

// A run of fixtures/tiny_run.h and its folder, with a subfolder for each run.
class Lab {
 public:
  Path path(const std::string& name) const { return tiny_.path(name); }
  // A TOML array of paths: ["…"].
  std::string list(const std::vector<std::string>& names) const;
  void put(const std::string& name, const std::string& text) const { put_file(path(name), text); }
  // Writes learnable text to corpus.txt, and to corpus.jsonl with one document per line. Returns the text.
  std::string text(int lines = 300) const;

  // Two steps of two sequences with a checkpoint after each, unless `sets` change it. `more`: further tables.
  Seen run(const Sets& sets = {}, const std::string& more = "");
  // Like run(), for a run that may end with a DivergedError, whose message it stores in `diverged`.
  Seen run_to_end(const Sets& sets, std::string& diverged, const std::string& more = "");
  // Like run(), on several ranks, which are threads of this process.
  Seen run_on(int ranks, const Sets& sets = {});
  std::string refusal_on(int ranks, const Sets& sets);
  // Runs another RUN.toml instead of the tiny run's.
  Seen run_toml(const std::string& toml, const Sets& sets = {});
  Seen run_toml_on(int ranks, const std::string& toml, const Sets& sets = {});
  std::string refusal_of_toml_on(int ranks, const std::string& toml, const Sets& sets);
  // The ids in the only token file that the run made from its text.
  std::vector<int32_t> ids_of(const Seen& run) const;
  // The message of the ConfigError that rejects a run; fails if there is none.
  std::string refusal(const Sets& sets, const std::string& more = "");
  std::string refusal_of_toml(const std::string& toml, const Sets& sets = {});
  config::RunConfig config(const Sets& sets, const std::string& more = "");
  // The output of `strata explain --json` with further options.
  json explain(const std::vector<std::string>& options, const Sets& sets, const std::string& more = "");
  // The tiny run's RUN.toml without [run] and the sizes in [training]; `model` replaces [model] if not empty.
  std::string toml(const std::string& model = "") const;
  Path next_folder();

 private:
  training::TinyRun tiny_;
  int runs_ = 0;
};

// The weights do not change: after step 1 the state "m" is the gradient (beta1 = 0).
extern const Sets kStill;
// A constant learning rate.
extern const Sets kFlat;

using training::small_experts;

// ‖a − b‖ / ‖b‖.
double distance(const std::vector<double>& a, const std::vector<double>& b);
double norm(const Tensors& tensors, const std::string& prefix = "");
// Whether names, shapes and values are equal, bit for bit.
bool same(const Tensors& a, const Tensors& b);

// Runs `strata ARGUMENTS` in this process, with `folder` as the current directory.
struct Outcome {
  int code = -1;
  std::string out, err;
  json parsed() const;              // `out` as one JSON object
  std::vector<json> lines() const;  // `out` as one JSON object per line
};
Outcome strata(const Path& folder, const std::vector<std::string>& arguments);

// The loss that `strata eval` reports for a token file with the final weights of a run.
double evaluated(const Lab& lab, const Seen& run, const std::string& file);

bool has(const std::string& text, const std::string& part);

}  // namespace strata::contracts
