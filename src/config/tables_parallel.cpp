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
      "parallel", ResumeClass::kFree, &RunConfig::parallel, "The distribution of work over ranks.",
      {
          key("replicate", &T::replicate, "Replicas; -1: the remaining ranks.", degree()),
          key("shard", &T::shard, "The group over which ZeRO shards; -1: the remaining ranks.", degree()),
          key("zero", &T::zero,
              "What ZeRO shards: 0 nothing, 1 optimizer states and masters, 2 also gradients, 3 also weights; auto: "
              "the least that fits into memory.",
              between(0, 3)),
          key("tensor", &T::tensor,
              "Ranks that share each layer: its heads and the width of its FFN; -1: the remaining ranks.",
              degree()),
          key("sequence", &T::sequence,
              "With tensor above 1: between the blocks each of its ranks holds a part of the tokens, so that "
              "norms and the residual stream are not computed and stored on every rank."),
          key("context", &T::context,
              "Ranks that share the tokens of each sequence: each has two chunks, from both ends; -1: the remaining "
              "ranks.",
              degree()),
          key("context_kind", &T::context_kind,
              "With context above 1: how attention reads the keys of other ranks: all_gather gathers them all; ring "
              "passes them on; ulysses exchanges them, so that each rank has whole sequences for some of the heads."),
          key("pipeline", &T::pipeline,
              "Ranks that hold consecutive stages of the layers; -1: the remaining ranks.", degree()),
          key("schedule", &T::schedule,
              "Order of a step's micro-batches on these ranks: 1f1b, gpipe, interleaved, zb_h1, "
              "interleaved_zb, zbv, v_half, v_min, dualpipev, or a file that ends in .json, as explain "
              "--schedule --json writes it."),
          key("virtual_stages", &T::virtual_stages, "Stages per rank in an interleaved schedule.",
              between(1, 4096)),
          key("stage_layers", &T::stage_layers,
              "Layers of each stage: auto, balanced by cost; a list; or Megatron-LM's layout string."),
          key("expert", &T::expert,
              "Ranks that share the experts of each layer: those of tensor, of context and tensor, or of shard, "
              "context and tensor together; -1: all of these. With shard = -1 the remaining ranks are replicas.",
              degree()),
          key("expert_tensor", &T::expert_tensor,
              "Ranks that share each expert's width: 1, or as many as tensor, which then share no experts.",
              between(1, kMostRanks)),
          key("dispatch", &T::dispatch,
              "How tokens reach experts: flat, directly to the ranks that have them; two_level, once to each host "
              "and on from there; auto: two_level if the ranks are on several hosts."),
          key("expert_capacity", &T::expert_capacity,
              "Capacity for tokens from one rank to another, as a factor of the balanced share; tokens beyond it "
              "take another pass, and none are dropped. auto: 1.25, plus four standard deviations of a random "
              "routing.",
              between(1e-6, 1e6)),
          key("prefetch", &T::prefetch,
              "With zero = 3: how many layers before their use weights are gathered; each takes the memory of a "
              "layer. auto: 1 if a thread makes progress, else 0.",
              between(0, 1024)),
          key("reshard_after_forward", &T::reshard_after_forward,
              "With zero = 3: whether gathered weights are dropped after forward and gathered again; auto: yes."),
          key("reduce_dtype", &T::reduce_dtype,
              "Type in which gradients are sent while they are summed over ranks, in fp32: fp32, bf16.",
              choice({"fp32", "bf16"})),
          key("progress", &T::progress,
              "What drives communication during computation: inline, the computing thread, when it starts or waits; "
              "thread, another one for each rank; auto: a thread if device.threads leaves cores free for it."),
          key("silence_limit", &T::silence_limit, "Longest silence of a process before the job ends."),
          key("wait_limit", &T::wait_limit,
              "Longest wait of a rank in one collective for live ranks before the job ends."),
          key("overlap_chunks", &T::overlap_chunks,
              "With tensor and sequence: number of chunks of a micro-batch's rows, so that one chunk's "
              "communication overlaps another's matmul; 1: no overlap.",
              between(1, 64)),
          key("backend", &T::backend,
              "Library of collectives: local for ranks that are threads (--ranks), mpi for processes; auto: by how "
              "the ranks were started.",
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
              "Routing: top_k, each token selects its experts; hash, by a hash of the token's id; two_level, each "
              "token selects a group of experts and then an expert of it; expert_choice, each expert selects its "
              "tokens; soft, experts read means of all tokens. The last two let later tokens affect earlier ones and "
              "cannot generate text. auto: the model's."),
          key("groups", &T::groups,
              "With two_level: groups of experts; auto: the divisor of the experts nearest their square root.",
              between(1, models::kMostExperts)),
          key("kept_groups", &T::kept_groups, "With two_level: groups that a token goes to.",
              between(1, models::kMostExperts)),
          key("slots", &T::slots,
              "With soft: rows per expert; auto: the number of tokens that would go to it if a token's experts were "
              "equally busy.",
              between(1, models::kMostWidth)),
          key("balance", &T::balance,
              "Tokens over which the balancing loss is computed: sequence, each sequence, independent of the layout; "
              "micro_batch, a rank's micro-batch; or global, with the counts of all ranks' micro-batches of the step "
              "so far."),
          key("pool_layers", &T::pool_layers,
              "One balancing loss over all layers, as in transformers, instead of one per layer."),
          key("aux_coef", &T::aux_coef,
              "Weight of the loss that keeps experts equally busy; auto: the family's "
              "(router_aux_loss_coef).",
              between(0, kMostCoefficient)),
          key("z_coef", &T::z_coef,
              "Weight of the loss that keeps the router's logits small; auto: the family's.",
              between(0, kMostCoefficient)),
          key("bias_rate", &T::bias_rate,
              "How far a step moves the bias that selects experts, up for those below the mean load, down for the "
              "others; auto: 0.001 for families that have one.",
              between(0, 1)),
          key("capacity_factor", &T::capacity_factor,
              "Capacity of an expert, as a factor of its equal share; tokens beyond it are dropped. 0: unlimited; "
              "below 0: as needed, but at most this factor (Tutel); auto: the family's, else 0.",
              between(-kMostCoefficient, kMostCoefficient)),
          key("min_capacity", &T::min_capacity, "With a capacity factor: smallest capacity of an expert.",
              between(1, 1e9)),
          key("drop", &T::drop,
              "Tokens that an expert beyond its capacity keeps: the first by position, or those with the greatest "
              "probability, which lets later tokens affect earlier ones."),
          key("capacity_over", &T::capacity_over,
              "Tokens that share an expert's capacity: those of a sequence, or of a rank's micro-batch, whose "
              "sequences then affect each other."),
          key("jitter", &T::jitter,
              "Noise in training: a router multiplies each input by a random number between 1 - jitter and "
              "1 + jitter, the same on every layout; auto: the family's (router_jitter_noise), else 0.",
              between(0, 1)),
          key("force_balanced", &T::force_balanced,
              "Give all experts equal numbers of tokens and ignore the router: for measuring, never for training."),
      });
}

}  // namespace strata::config
