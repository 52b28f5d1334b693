// Turns a configuration into everything that a run needs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "config/choice.h"
#include "config/choose.h"
#include "config/resolve.h"

namespace strata::config {

// The requested configuration, the choices with their reasons, and the resulting programs. Training, explain
// and benchmarks start from one, so that explain shows exactly the programs that run. Immutable; ranks that
// are threads share it.
struct RunPlan {
  RunConfig asked;
  RunConfig config;             // with every "auto" replaced
  std::vector<Choice> choices;  // one per key that differs between the two
  models::ModelConfig model;    // with the token ids of the run's tokenizer
  std::optional<data::Tokenizer> tokenizer;
  RunData data;
  int64_t host_ranks = 1;                       // ranks of this host
  DescribedMachine described;                   // that it is for; nullopt: this one
  std::map<int32_t, program::Compiled> stages;  // by place on the pipeline axis: as requested
  // The place whose programs exceed memory.budget even with the smallest choices.
  std::optional<int32_t> tight_place;

  const data::Tokenizer* tokens() const { return tokenizer ? &*tokenizer : nullptr; }
  const std::shared_ptr<const program::ProgramSet>& set(int32_t place = 0) const {
    return stages.at(place).set;
  }
};

struct PlanOptions {
  FileSystem& files;
  RankPlace place = {};
  std::optional<MachineShare> share = {};  // the smallest over all ranks; unset: this machine's
  std::optional<RunConfig> stored = {};    // of the resumed run, which keeps its choices
  Path stored_tokenizer = {};              // of its newest checkpoint
  StopCheck check = [] {};
  // kFromWhatIsThere: writes nothing, trains no tokenizer and tokenizes no text; sources and held-out text
  // stay empty. The special-token ids of a tokenizer yet to be trained are known; only the lengths of task
  // questions are not. kNone: neither tokenizer nor data.
  enum class Data { kPrepared, kFromWhatIsThere, kNone } data = Data::kPrepared;
  std::optional<models::ModelConfig> model = {};  // replaces the one from [model]
  // Places on the pipeline axis to compile for. Choices made for the first apply to all.
  std::vector<int32_t> places = {0};
  // The machine to plan for; nullopt: this one.
  DescribedMachine described = {};
  // Whether programs that exceed memory.budget are kept in their smallest form; otherwise throws DoesNotFit.
  bool keep_unfit = false;
};

// `asked`: read and validated. Sets the calling thread's number of compute threads.
std::shared_ptr<const RunPlan> make_plan(const RunConfig& asked, const PlanOptions& options);

// The part of a plan that comes first and needs no file: degrees of [parallel], stored choices of a resumed
// run, the machine's share.
RunConfig begun(const RunConfig& asked, const PlanOptions& options);

// The changes that a resume makes, for people. An automatic memory budget is listed only if another change
// depends on it.
std::vector<Change> changes_of(const RunConfig& stored, const RunPlan& plan);

}  // namespace strata::config
