// Everything done to a run: interventions, changed settings, jumps in the data. A run that resumes, moves to
// another folder or is replayed takes the same steps, because it applies the same effects at the same steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace strata::training {

// Something that holds from a step on.
struct Effect {
  enum class Kind : uint8_t {
    kJump,             // training continues at global sample `next_sample`
    kEaseLr,           // the learning rate is multiplied by `factor` for `for_steps` steps
    kShrinkEmbedding,  // the gradient of the embedding likewise
    kSet,              // a setting has been changed: `key` is `value`, as on the command line
    kBatch,            // a step has `sequences` sequences
  } kind = Kind::kJump;
  int64_t step = 0;  // completed steps: it holds from the next one on
  int64_t next_sample = 0;
  double factor = 1;
  int64_t for_steps = 0;
  std::string key = {}, value = {}, by = {};
  int64_t sequences = 0;
  bool operator==(const Effect&) const = default;
};

// An action that a rule took.
struct Intervention {
  int64_t at_step = 0;       // the step that the rule judged
  std::string rule, action;  // as in [[recovery.rule]]
  double measured = 0, limit = 0;
  std::optional<int64_t> to_step = {};  // rollbacks
  // The global samples that a rollback leaves out.
  std::optional<int64_t> first_skipped = {}, last_skipped = {};
  std::optional<double> factor = {};
  std::optional<int64_t> for_steps = {};
  bool operator==(const Intervention&) const = default;
};

// The same on all ranks. Used by one thread.
class Journal {
 public:
  static constexpr int64_t kCountedSteps = 1000;  // for which recovery.max_interventions holds

  const std::vector<Effect>& effects() const { return effects_; }
  const std::vector<Intervention>& interventions() const { return interventions_; }
  int64_t lost_steps() const { return lost_steps_; }
  bool is_empty() const { return effects_.empty() && interventions_.empty(); }

  void add(Effect effect) { effects_.push_back(std::move(effect)); }
  bool has(const Intervention& intervention) const;
  // False if it is there already: a resumed run repeats its steps. A rollback because of wrong bits is always a new one: it
  // repeats the same steps with the same data.
  bool add(const Intervention& intervention);
  // Undoes the steps after `step`: what rules did there no longer holds; settings that the user changed hold
  // from `step` on. Interventions stay. `from`: the last step made.
  void undo_after(int64_t step, int64_t from);

  // The global sample at which training continues after this many steps, if it jumps there.
  std::optional<int64_t> jump_at(int64_t completed_steps) const;
  // The sequences of a step's batch after this many steps, where the batch follows the noise scale and has
  // changed.
  std::optional<int64_t> batch_at(int64_t completed_steps) const;
  // Settings that hold from a number of completed steps between `first` and `last` on, in their order.
  std::vector<Effect> settings(int64_t first, int64_t last) const;
  bool sets(const std::string& key) const;
  // The keys of all settings.
  std::vector<std::string> set_keys() const;
  // The product of the factors of this kind that hold in a step.
  double factor(Effect::Kind kind, int64_t step) const;
  // Interventions in the last kCountedSteps steps up to `step`.
  int64_t recent(int64_t step) const;
  // The newest rollback; nullptr: none.
  const Intervention* last_rollback() const;

  nlohmann::ordered_json to_json() const;
  // DataError, naming `where`, for anything else than what to_json() writes.
  static Journal from_json(const nlohmann::json& json, const std::string& where);
  bool operator==(const Journal&) const = default;

 private:
  std::vector<Effect> effects_;  // by the order in which they were added
  std::vector<Intervention> interventions_;
  int64_t lost_steps_ = 0;
};

}  // namespace strata::training
