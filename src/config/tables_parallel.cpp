// [parallel] and [moe] of RUN.toml; keys that belong to later versions accept their defaults.
#include "config/fields.h"
#include "models/model.h"

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
          key("replicate", &T::replicate, "Replicas; -1: what is left.", degree()),
          key("shard", &T::shard, "The group over which ZeRO splits; -1: the ranks that are left.", degree()),
          key("zero", &T::zero,
              "What ZeRO splits: 0 nothing, 1 optimizer states and masters, 2 gradients too, 3 weights too; "
              "auto: the "
              "least that fits the memory.",
              between(0, 3)),
          key("tensor", &T::tensor,
              "Ranks that share each layer: its heads and the width of its FFN; -1: the ranks that are left.",
              degree()),
          key("sequence", &T::sequence,
              "With tensor above 1: between the blocks each of its ranks holds a part of the tokens, so that "
              "norms and the stream are not computed and held alike by all."),
          key("context", &T::context,
              "Ranks that share the tokens of each sequence: two pieces each, from both ends; -1: the ranks "
              "that "
              "are left.",
              degree()),
          key("context_kind", &T::context_kind,
              "With context above 1: how attention reads the keys of other ranks: all_gather puts all of "
              "them "
              "together; ring lets them go round; ulysses gives each rank whole sequences for a share of the "
              "heads."),
          key("pipeline", &T::pipeline,
              "Ranks that have the layers of a model one behind the other; -1: the ranks that are left.",
              degree()),
          key("schedule", &T::schedule,
              "In which order they work on the micro-batches of a step: 1f1b, gpipe, interleaved, zb_h1, "
              "interleaved_zb, zbv, v_half, v_min, dualpipev, or a file that ends in .json, as explain "
              "--schedule --json writes it."),
          key("virtual_stages", &T::virtual_stages,
              "Stages that each of them has, of an interleaved schedule.", between(1, 4096)),
          key("stage_layers", &T::stage_layers,
              "Layers of each stage: auto, balanced by cost; a list; or Megatron-LM's layout string."),
          key("expert", &T::expert,
              "Ranks that share the experts of each layer: those of tensor, of context and tensor, or of "
              "shard, "
              "context and tensor together; -1: all of these. With shard = -1 what is left is replicas.",
              degree()),
          key("expert_tensor", &T::expert_tensor,
              "Ranks that share each expert's width: 1, or as many as tensor, which then share no experts.",
              between(1, kMostRanks)),
          key("dispatch", &T::dispatch,
              "How tokens reach experts: flat, straight to the ranks that have them; two_level, once to each "
              "host "
              "and on from there; auto: two_level where the ranks lie on several hosts."),
          key("expert_capacity", &T::expert_capacity,
              "How much room there is for tokens from one rank to another, as a factor of the balanced "
              "share; what "
              "does not fit takes a further round, and none is dropped. auto: 1.25, and four standard "
              "deviations "
              "of a random routing.",
              between(1e-6, 1e6)),
          key("prefetch", &T::prefetch,
              "With zero = 3: how many layers ahead of their use weights begin to be gathered; each takes "
              "the "
              "memory of a layer. auto: 1 where a thread makes progress, else 0.",
              between(0, 1024)),
          key("reshard_after_forward", &T::reshard_after_forward,
              "With zero = 3: whether gathered weights are dropped after forward and gathered again; auto: "
              "they are."),
          key("reduce_dtype", &T::reduce_dtype,
              "What gradients are sent as while they are summed over ranks, which is done in fp32: fp32, "
              "bf16.",
              choice({"fp32", "bf16"})),
          key("progress", &T::progress,
              "Who drives communication beside computation: inline, the thread that computes, when it starts "
              "or "
              "waits; thread, one more for each rank; auto: a thread where device.threads leaves processors "
              "free for them."),
          key("silence_limit", &T::silence_limit,
              "How long a process may give no sign of life before the job ends."),
          key("wait_limit", &T::wait_limit,
              "How long a rank may wait in one collective for ranks that are alive before the job ends."),
          key("overlap_chunks", &T::overlap_chunks,
              "With tensor and sequence: into how many parts the rows of a micro-batch are cut, so that one "
              "part's communication runs beside the product of another; 1: they are not.",
              between(1, 64)),
          key("backend", &T::backend,
              "Engine of collectives: local for ranks that are threads (--ranks), mpi for processes; auto: "
              "by how the "
              "ranks were started.",
              choice({"auto", "local", "mpi", "nccl"}, {"nccl"})),
      });
  return spec;
}

TableSpec moe_table() {
  using T = MoeTable;
  constexpr double kMostCoefficient = 1e6;
  return table(
      "moe", ResumeClass::kAccept, &RunConfig::moe, "Models with experts.",
      {
          key("router", &T::router,
              "Who chooses: top_k, each token its experts; hash, a hash of the token's id; two_level, each "
              "token a "
              "group of experts and then an expert of it; expert_choice, each expert its tokens; soft, "
              "nobody: "
              "experts read means of all tokens. The last two let later tokens move earlier ones, and write "
              "no "
              "text. auto: the model's."),
          key("groups", &T::groups,
              "Of two_level: groups of experts; auto: the divisor of the experts that is nearest their root.",
              between(1, models::kMostExperts)),
          key("kept_groups", &T::kept_groups, "Of two_level: groups that a token goes to.",
              between(1, models::kMostExperts)),
          key("slots", &T::slots,
              "Of soft: slots of an expert; auto: as many as tokens would go to it, were a token's experts "
              "equally "
              "busy.",
              between(1, models::kMostWidth)),
          key("balance", &T::balance,
              "Tokens over which the balancing loss is taken: of each sequence, so that it does not hang on "
              "the layout; micro_batch, a rank's micro-batch, so that it does; or global, with the counts of "
              "all ranks' micro-batches of the step so far."),
          key("pool_layers", &T::pool_layers,
              "One balancing loss for all layers together, as transformers has it, not one for each."),
          key("aux_coef", &T::aux_coef,
              "Weight of the loss that keeps experts equally busy; auto: the family's "
              "(router_aux_loss_coef).",
              between(0, kMostCoefficient)),
          key("z_coef", &T::z_coef,
              "Weight of the loss that keeps the router's logits small; auto: the family's.",
              between(0, kMostCoefficient)),
          key("bias_rate", &T::bias_rate,
              "How far a step moves the bias by which experts are chosen, up for those below the mean load, "
              "down "
              "for the others; auto: 0.001 for families that have one.",
              between(0, 1)),
          key("capacity_factor", &T::capacity_factor,
              "Room of an expert, as a factor of its equal share; slots that are over are dropped. 0: as "
              "much "
              "as it needs; below 0: the same, but at most this factor's (Tutel); auto: the family's, else "
              "0.",
              between(-kMostCoefficient, kMostCoefficient)),
          key("min_capacity", &T::min_capacity,
              "By the factor, an expert has room for at least so many slots.", between(1, 1e9)),
          key("drop", &T::drop,
              "Which slots an expert keeps that has too many: the first by position, or those of the "
              "greatest "
              "probability, which lets later tokens move earlier ones."),
          key("capacity_over", &T::capacity_over,
              "Tokens that share an expert's room: those of a sequence, or of a rank's micro-batch, whose "
              "sequences move each other then."),
          key("jitter", &T::jitter,
              "Noise of training: a router reads each number times a random one between 1 - jitter and 1 + "
              "jitter, the same on every layout; auto: the family's (router_jitter_noise), else 0.",
              between(0, 1)),
          key("force_balanced", &T::force_balanced,
              "Give every expert equally many tokens whatever the router says: for measuring, never to "
              "train."),
      });
}

}  // namespace strata::config
