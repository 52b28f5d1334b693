// Tables of RUN.toml reserved for later versions: their defaults are accepted.
#include "config/fields.h"

namespace strata::config {
TableSpec recovery_table() {
  using T = RecoveryTable;
  TableSpec spec = table(
      "recovery", ResumeClass::kFree, &RunConfig::recovery, "Recovery from failures.",
      {
          later(key("rules", &T::rules, "auto, or [[recovery.rule]].")),
          later(key("rule", &T::rule, "A rule: when, preset, action, for_steps.")),
          later(key("snapshot", &T::snapshot, "How often the state is kept in memory.")),
          later(key("in_memory", &T::in_memory, "Whether the state is kept in memory.")),
          later(key("peer_copies", &T::peer_copies, "Copies of the state on other ranks.")),
          later(key("detection_delay", &T::detection_delay, "Longest delay until a failure is detected.")),
          later(key("max_interventions", &T::max_interventions,
                    "Interventions before the run ends with exit code 5.")),
          later(key("max_lost_steps", &T::max_lost_steps,
                    "Repeated steps before the run ends with exit code 5.")),
      });
  spec.later = true;
  return spec;
}

}  // namespace strata::config
