// From a configuration to everything that a run stands on.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "config/choice.h"
#include "config/choose.h"
#include "config/resolve.h"

namespace strata::config {

// What was asked for, what was chosen from it and why, and the programs that follow. Training, explaining and
// benchmarks start from one, so that what is explained is what runs. It is made once and never changed; ranks
// that are threads share it.
struct RunPlan {
  RunConfig asked;
  RunConfig config;             // with every "auto" replaced
  std::vector<Choice> choices;  // one a key that differs between the two
  models::ModelConfig model;    // with the ids of the run's tokenizer
  std::optional<data::Tokenizer> tokenizer;
  RunData data;
  int64_t host_ranks = 1;                       // ranks of this host
  std::map<int32_t, program::Compiled> stages;  // by place on the pipeline axis: those that were asked for
  // The place whose programs memory.budget does not hold, with the least of what was left to the program.
  std::optional<int32_t> tight_place;

  const data::Tokenizer* tokens() const { return tokenizer ? &*tokenizer : nullptr; }
  const std::shared_ptr<const program::ProgramSet>& set(int32_t place = 0) const {
    return stages.at(place).set;
  }
};

struct PlanOptions {
  FileSystem& files;
  RankPlace place = {};
  std::optional<MachineShare> share = {};  // the least of all ranks; nothing: this machine's
  std::optional<RunConfig> stored = {};    // of the run that goes on, which keeps what it has chosen
  Path stored_tokenizer = {};              // of its newest checkpoint
  StopCheck check = [] {};
  // kFromWhatIsThere: nothing is written, no tokenizer is trained and no text tokenized; sources and held-out
  // text stay empty. What a tokenizer that is yet to be trained decides is known before: the ids of its
  // special tokens. Only how long a task's questions are is not. kNone: neither tokenizer nor data.
  enum class Data { kPrepared, kFromWhatIsThere, kNone } data = Data::kPrepared;
  std::optional<models::ModelConfig> model = {};  // in place of the one that [model] means
  // Places on the pipeline axis to compile for. What is chosen for the first holds for all.
  std::vector<int32_t> places = {0};
  // Whether programs that memory.budget does not hold are kept in their smallest form; else DoesNotFit.
  bool keep_unfit = false;
};

// `asked`: as read and validated. Sets the calling thread's number of compute threads.
std::shared_ptr<const RunPlan> make_plan(const RunConfig& asked, const PlanOptions& options);

// Of a plan what comes before all else and needs no file: degrees of [parallel], what the run that goes on
// has chosen, the machine's share.
RunConfig begun(const RunConfig& asked, const PlanOptions& options);

// What a resume changes, for people. An amount of memory that nobody asked for is told where something else
// hangs on it.
std::vector<Change> changes_of(const RunConfig& stored, const RunPlan& plan);

}  // namespace strata::config
