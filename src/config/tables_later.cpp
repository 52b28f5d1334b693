// Tables of RUN.toml that belong to later versions: their names are reserved, their defaults accepted.
#include "config/fields.h"

namespace strata::config {
namespace {

constexpr double kMostRanks = 1 << 20;

}  // namespace

TableSpec parallel_table() {
  using T = ParallelTable;
  const auto degree = [] { return between(-1, kMostRanks); };
  TableSpec spec = table(
      "parallel", ResumeClass::kFree, &RunConfig::parallel, "How ranks share the work.",
      {
          later(key("replicate", &T::replicate, "Replicas; -1: what is left.", degree())),
          later(key("shard", &T::shard, "The group over which ZeRO splits; -1: the ranks that are left.",
                    degree())),
          // One rank has all of everything, whatever is split.
          later(key("zero", &T::zero, "What it splits: 0 to 3; auto: the least that fits the memory.",
                    between(0, 3)),
                3),
          later(key("tensor", &T::tensor, "Tensor parallelism.", degree())),
          later(key("sequence", &T::sequence, "Sequence parallelism with tensor parallelism.")),
          later(key("context", &T::context, "Context parallelism.", degree())),
          later(key("context_kind", &T::context_kind, "Its algorithm: all_gather, ring, ulysses.")),
          later(key("pipeline", &T::pipeline, "Pipeline stages.", degree())),
          later(key("schedule", &T::schedule, "Pipeline schedule.")),
          later(key("virtual_stages", &T::virtual_stages, "Model parts a stage.", between(1, kMostRanks))),
          later(key("stage_layers", &T::stage_layers,
                    "Layers of each stage: auto, a list or Megatron's layout string.")),
          later(key("expert", &T::expert, "Expert parallelism.", degree())),
          later(key("expert_tensor", &T::expert_tensor, "Tensor parallelism of experts.")),
          later(key("dispatch", &T::dispatch, "How tokens reach experts: auto, flat, two_level.")),
          later(key("expert_capacity", &T::expert_capacity,
                    "Room of a rank's experts, as a factor of the balanced share.")),
          later(key("prefetch", &T::prefetch, "Parameters gathered ahead of their use.")),
          later(key("reshard_after_forward", &T::reshard_after_forward,
                    "Whether gathered parameters are dropped before backward.")),
          later(key("reduce_dtype", &T::reduce_dtype, "Of gradients while they are summed.")),
          later(key("progress", &T::progress, "Who drives communication beside computation.")),
          later(key("overlap_chunks", &T::overlap_chunks,
                    "Parts of a product that overlap with its communication.")),
          later(key("backend", &T::backend, "Engine of collectives.",
                    choice({"auto", "local", "mpi", "nccl"}))),
      });
  spec.later = true;
  return spec;
}

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
