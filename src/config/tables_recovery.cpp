// The keys of [recovery] and [[recovery.rule]].
#include "config/fields.h"

namespace strata::config {

TableSpec recovery_table() {
  using T = RecoveryTable;
  return table(
      "recovery", ResumeClass::kFree, &RunConfig::recovery,
      "Reactions of the run to a loss or gradient that goes wrong.",
      {
          key("rules", &T::rules,
              "auto: skip an update that is not finite or that spikes, roll back after three in a row; none: "
              "watch and report, change nothing. [[recovery.rule]] replaces the rules of auto."),
          key("snapshot", &T::snapshot,
              "How often the state is kept to go back to: \"50 steps\" or \"never\"."),
          key("in_memory", &T::in_memory,
              "Whether snapshots are in memory; if not, the run goes back to checkpoints; auto: if the memory "
              "budget has enough left."),
          key("detection_delay", &T::detection_delay,
              "Steps for which older snapshots are kept: how late an error may be noticed; auto: the interval "
              "of snapshots.",
              count_between(1, kMostNumber)),
          key("max_interventions", &T::max_interventions,
              "Interventions in any 1,000 steps, beyond which the run ends with exit code 5.",
              between(0, kMostNumber)),
          key("max_lost_steps", &T::max_lost_steps,
              "Steps undone by rollbacks, beyond which the run ends with exit code 5.",
              between(0, kMostNumber)),
          key("copies", &T::copies,
              "How often each rank's state is copied to /dev/shm, which outlives the rank: \"20 steps\" or "
              "\"never\"; auto: under strata launch, for at most 1 % of the time.",
              word("auto")),
          key("peer_copies", &T::peer_copies,
              "Whether each copy is stored on another host too; auto: if the ranks are on several hosts."),
          key("compare_replicas", &T::compare_replicas,
              "How often the bits of weights and of summed gradients are compared between ranks that hold the "
              "same ones: \"10 steps\" or \"never\"; auto: in every step.",
              word("auto")),
          key("recompute_check", &T::recompute_check,
              "How often a rank computes the first micro-batch of its neighbour too, to compare their bits: "
              "\"100 steps\" or \"never\". It costs two micro-batches."),
      });
}

TableSpec recovery_rule_table() {
  using T = RecoveryRule;
  return list(
      "recovery.rule", ResumeClass::kFree, &RunConfig::recovery, &RecoveryTable::rule,
      "A rule of recovery, in place of the usual ones.",
      {
          key("when", &T::when, "The event that the rule watches for."),
          key("preset", &T::preset,
              "How loss_spike and grad_spike are found: robust_z: deviations from the median in the last "
              "`window` steps, in units of the median deviation; olmo: standard deviations from the mean "
              "(OLMo-core); megatron: multiples of the largest of the first `window` steps (Megatron-LM); "
              "zclip: like olmo with a decaying mean, for gradients (ZClip); ratio: multiples of the mean of "
              "the last `window` steps; auto: robust_z."),
          key("threshold", &T::threshold,
              "In units of the preset; auto: robust_z 8 for the loss and 20 for the gradient, olmo 6, megatron 10, zclip 2.5, ratio 3 for the loss "
              "and 2 for the gradient.",
              above_to(0, kMostReal)),
          key("window", &T::window, "Steps that a value is compared with; auto: 128, megatron 100.",
              count_between(2, optim::kMostGuardWindow)),
          key("action", &T::action, "The reaction to it."),
          key("factor", &T::factor,
              "ease_lr: the learning rate's; shrink_embedding: the embedding gradient's; clip: of the limit; "
              "auto: 0.5, 0.1 and 1.",
              above_to(0, 1)),
          key("for_steps", &T::for_steps,
              "Steps for which ease_lr and shrink_embedding last, and for which loss_high, plateau and "
              "divergence must hold; auto: 100.",
              count_between(1, kMostNumber)),
      });
}

}  // namespace strata::config
