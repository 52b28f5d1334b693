// Tables of RUN.toml that belong to later versions: their names are reserved, their defaults accepted.
#include "config/fields.h"

namespace strata::config {
TableSpec moe_table() {
  using T = MoeTable;
  TableSpec spec = table(
      "moe", ResumeClass::kAccept, &RunConfig::moe, "Models with experts.",
      {
          later(key("balance", &T::balance, "Over what loads are balanced: sequence, micro_batch, global.")),
          later(key("aux_coef", &T::aux_coef, "Weight of the balancing loss.")),
          later(key("z_coef", &T::z_coef, "Weight of the router's z-loss.")),
          later(key("bias_rate", &T::bias_rate, "Rate of the balancing bias.")),
          later(key("capacity_factor", &T::capacity_factor, "Room of an expert; auto: the family's.")),
          later(key("force_balanced", &T::force_balanced, "Route evenly, for measuring.")),
      });
  spec.later = true;
  return spec;
}

TableSpec recovery_table() {
  using T = RecoveryTable;
  TableSpec spec =
      table("recovery", ResumeClass::kFree, &RunConfig::recovery, "What a run does about faults.",
            {
                later(key("rules", &T::rules, "auto, or [[recovery.rule]].")),
                later(key("rule", &T::rule, "A rule: when, preset, action, for_steps.")),
                later(key("snapshot", &T::snapshot, "How often the state is kept in memory.")),
                later(key("in_memory", &T::in_memory, "Whether it is.")),
                later(key("peer_copies", &T::peer_copies, "Copies of it on other ranks.")),
                later(key("detection_delay", &T::detection_delay, "How late a fault may be found.")),
                later(key("max_interventions", &T::max_interventions, "Then the run ends with exit code 5.")),
                later(key("max_lost_steps", &T::max_lost_steps, "The same of steps that were made again.")),
            });
  spec.later = true;
  return spec;
}

}  // namespace strata::config
