// Routers that see all tokens of a group: experts that choose their tokens, and soft experts.
#include "base/error.h"
#include "graph/reshard.h"
#include "layers/moe_parts.h"
#include "ops/expert_choice/expert_choice.h"
#include "ops/soft_experts/soft_experts.h"

namespace strata::layers {
namespace {

// Tokens of a group. Throws ConfigError if a rank does not have all of them.
int64_t rows_of_group(const Context& context, const MoeSpec& spec, const char* router) {
  if (context.mode == Mode::kCached) {
    throw ConfigError(
        "[{}] \"{}\" writes no text: its experts see whole sequences, and a text is written token by token{}",
        context.words.router, router,
        context.words.prompts.empty() ? "" : fmt::format("; leave {} empty", context.words.prompts));
  }
  const graph::Mesh& mesh = context.graph.mesh();
  for (const auto& [axis, name] :
       {std::pair{Axis::kTensor, context.words.tensor}, std::pair{Axis::kContext, context.words.context}}) {
    if (mesh.size(axis) == 1) continue;
    throw ConfigError(
        "[{0}] the experts of \"{1}\" see whole sequences, of which {2} ranks of {3} have parts; set {3} = 1",
        context.words.router, router, mesh.size(axis), name);
  }
  const int64_t sequences = spec.capacity.over_sequence ? 1 : context.rows.sequences / mesh.batch_ranks();
  return sequences * context.rows.length;
}

}  // namespace

ValueId experts_that_choose(Context& context, const MoeLayer& layer, ValueId x) {
  const MoeSpec& spec = layer.spec;
  Graph& graph = context.graph;
  const int64_t rows = rows_of_group(context, spec, "expert_choice"), slots = rows * spec.route.k;
  if (slots < spec.count) {
    throw ConfigError(
        "[{}] {} tokens with {} experts each give none of the {} experts of {} a whole token; take longer "
        "sequences, or {} = \"micro_batch\"",
        context.words.router, rows, spec.route.k, spec.count, layer.ffn.name, context.words.capacity_over);
  }
  const int64_t capacity = (slots + spec.count - 1) / spec.count;
  const ValueId logits = router_logits(context, layer.ffn.name + ".router", spec.count, layer.ffn.hidden_size,
                                       jittered(context, layer, x), spec.biases);
  const auto chosen = graph::add<ops::ExpertChoice>(
      graph, {.logits = logits},
      {.score = spec.route.score, .rows = rows, .capacity = capacity, .scale = spec.route.scale});
  if (context.settings.trains_experts) {
    count_slots(context, layer, logits, chosen.experts);
    add_z_loss(context, spec, logits);
  }
  const ops::GroupRowsAttrs group{.rows = rows, .slots = spec.count * capacity};
  const ValueId taken = graph::add<ops::GatherRows>(graph, {.x = x, .tokens = chosen.tokens}, group).y;
  const ValueId given = experts_of(context, layer, taken, chosen.experts, chosen.weights);
  return graph::add<ops::ScatterRows>(graph, {.x = given, .tokens = chosen.tokens}, group).y;
}

ValueId soft_experts(Context& context, const MoeLayer& layer, ValueId x) {
  const MoeSpec& spec = layer.spec;
  Graph& graph = context.graph;
  const ops::SoftExpertsAttrs attrs{.rows = rows_of_group(context, spec, "soft"), .experts = spec.count};
  const ValueId logits = router_logits(context, layer.ffn.name + ".router", spec.count * spec.slots,
                                       layer.ffn.hidden_size, jittered(context, layer, x), spec.biases);
  const auto slots = graph::add<ops::SoftDispatch>(graph, {.x = x, .logits = logits}, attrs);
  if (context.settings.trains_experts) count_slots(context, layer, logits, slots.experts);
  // Ranks that share experts send weights with their rows.
  const bool shares = context.settings.expert_layout.ranks * context.settings.expert_layout.tensor > 1;
  const ValueId given =
      experts_of(context, layer, slots.slots, slots.experts, shares ? slots.weights : kNone);
  return graph::add<ops::SoftCombine>(graph, {.h = given, .logits = logits}, attrs).y;
}

}  // namespace strata::layers
