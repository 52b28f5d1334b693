// A synthetic run: a healthy, finished one of 2,000 steps with deterministic noise, unless a test changes it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "diagnosis/diagnosis.h"
#include "fixtures/scratch_folder.h"

namespace strata::diagnosis {

using Line = nlohmann::ordered_json;

class RunFiles {
 public:
  explicit RunFiles(int64_t steps = 2000, uint64_t seed = 1);

  std::map<std::string, std::string> settings;  // KEY → TOML value
  std::vector<Line> lines;                      // of metrics.jsonl
  std::vector<Line> discarded, layers, experts, ranks, ledger;
  struct Checkpoint {
    int64_t step = 0;
    bool healthy = true;
    int64_t passes = 1;         // over the data
    std::string manifest = {};  // empty: a valid one
  };
  std::vector<Checkpoint> checkpoints;
  bool locked = false;
  double seconds_since_last_line = 5;
  std::function<void(Evidence&)> change;  // of the files, after they are read

  // Changes all step lines, or those of a range.
  void each(const std::function<void(int64_t step, Line&)>& edit);
  void each_between(int64_t first, int64_t last, const std::function<void(int64_t step, Line&)>& edit);
  void scale(const std::string& name, double factor, const std::vector<int64_t>& steps);
  // Inserts an event after a step's line.
  void event(const std::string& name, int64_t at_step, const Line& fields = Line::object());
  // Removes everything after a step.
  void cut(int64_t after);
  // All lines after a step are this much later.
  void delay(int64_t after, double seconds);
  // Deterministic, about normal with deviation 1.
  double noise(int64_t step, uint64_t stream) const;

  // Writes the folder, and diagnoses it.
  Diagnosis diagnose();
  void write();
  double last_time() const;
  const Path& path() const { return folder_.path(); }

 private:
  size_t after(int64_t step) const;

  uint64_t seed_;
  ScratchFolder folder_;
  std::optional<FileLock> lock_;
};

const Finding* find(const Diagnosis& diagnosis, const std::string& name);
std::string names_of(const Diagnosis& diagnosis);

}  // namespace strata::diagnosis
