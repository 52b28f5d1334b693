#include "program/pipeline.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/localize.h"
#include "parallel/messages.h"
#include "program/model_graph.h"
#include "program/narrow.h"
#include "program/precision_pass.h"

namespace strata::program {

using graph::kNone;
using graph::ValueId;
using parallel::ActionKind;

bool Pipeline::splits_backward() const {
  for (const auto& actions : schedule.ranks) {
    for (const parallel::Action& action : actions) {
      if (action.kind == ActionKind::kInputGrad || action.kind == ActionKind::kWeightGrad) return true;
    }
  }
  return false;
}

std::vector<layers::LayerRange> layer_ranges_of(const Pipeline& pipeline) {
  const auto& rank_of = pipeline.schedule.rank_of_stage;
  std::vector<layers::LayerRange> ranges;
  for (const int32_t stage : pipeline.stages()) {
    const parallel::StageParts& parts = pipeline.layout[static_cast<size_t>(stage)];
    const auto is_elsewhere = [&](int32_t other) {
      return other >= 0 && other < pipeline.schedule.stages &&
             rank_of[static_cast<size_t>(other)] != pipeline.rank;
    };
    ranges.push_back({.first = parts.first_layer,
                      .end = parts.first_layer + parts.layers,
                      .has_embedding = parts.has_embedding,
                      .has_head = parts.has_head,
                      .receives = is_elsewhere(stage - 1),
                      .sends = is_elsewhere(stage + 1)});
  }
  return ranges;
}

std::vector<int32_t> holders_of(const Pipeline& pipeline, graph::ParameterRole role, bool of_encoder) {
  using graph::ParameterRole;
  const parallel::SharedTables tables = parallel::shared_tables(pipeline.layout, pipeline.parts);
  std::vector<int32_t> stages;
  if (role == ParameterRole::kEmbedding) {
    stages = tables.embedding;
  } else if (role == ParameterRole::kHead) {
    stages = tables.head;
  } else {
    // Distances are for all layers of a stack; what else is outside of layers belongs to one stage.
    const int32_t border = pipeline.parts.encoder_layers;
    const int32_t first = of_encoder ? 0 : border, end = of_encoder ? border : pipeline.parts.layers;
    for (int32_t stage = 0; stage < pipeline.schedule.stages; ++stage) {
      const parallel::StageParts& parts = pipeline.layout[static_cast<size_t>(stage)];
      const bool has_layers =
          std::max(first, parts.first_layer) < std::min(end, parts.first_layer + parts.layers);
      if (role == ParameterRole::kDistanceTable && has_layers) stages.push_back(stage);
    }
  }
  std::set<int32_t> ranks;
  for (const int32_t stage : stages)
    ranks.insert(pipeline.schedule.rank_of_stage[static_cast<size_t>(stage)]);
  return {ranks.begin(), ranks.end()};
}

std::vector<std::vector<int32_t>> sharing_ranks(const Pipeline& pipeline) {
  using graph::ParameterRole;
  std::set<std::vector<int32_t>> sets;
  for (const ParameterRole role :
       {ParameterRole::kEmbedding, ParameterRole::kHead, ParameterRole::kDistanceTable}) {
    for (const bool of_encoder : {false, true}) {
      std::vector<int32_t> ranks = holders_of(pipeline, role, of_encoder);
      if (ranks.size() > 1) sets.insert(std::move(ranks));
    }
  }
  return {sets.begin(), sets.end()};
}

AllStages all_stages(const ProgramSet& set) {
  const Pipeline& pipeline = *set.options.pipeline;
  // As if one rank had all stages: each is a chunk of its graph.
  auto on_one = std::make_shared<Pipeline>(pipeline);
  std::fill(on_one->schedule.rank_of_stage.begin(), on_one->schedule.rank_of_stage.end(), 0);
  on_one->rank = 0;
  CompileOptions options = set.options;
  options.pipeline = on_one;
  ModelGraph model = build_graph(set.programs.front().request, options);
  AllStages all;
  std::map<ValueId, std::set<int32_t>> readers;  // of parameters: ranks
  for (const graph::Node& node : model.graph.nodes()) {
    // Its training form replaces a fused loss's forward.
    if (node.phase == graph::Phase::kUpdate || node.phase == graph::Phase::kEncode) continue;
    for (const ValueId input : node.inputs) {
      if (input == kNone) continue;
      const ValueId whole_of = model.graph.value(input).sharding.whole_of;
      readers[whole_of != kNone ? whole_of : input].insert(
          pipeline.schedule.rank_of_stage[static_cast<size_t>(node.chunk)]);
    }
  }
  for (const graph::Parameter& parameter : model.graph.parameters()) {
    const auto& ranks = readers[parameter.value];
    std::vector<int32_t>& holders = all.holders[model.graph.value(parameter.value).name];
    // Here one node reads a table of distances for all layers of a stack; a stage reads it if it has any of
    // them.
    holders = parameter.role == graph::ParameterRole::kDistanceTable
                  ? holders_of(pipeline, parameter.role, parameter.of_encoder)
                  : std::vector<int32_t>(ranks.begin(), ranks.end());
  }
  if (options.precision != nullptr && options.precision->recipe.is_delayed()) {
    const auto histories = precision_pass(model.graph, *options.precision,
                                          set.programs.front().request.sequence_length, options.words);
    model.states.insert(model.states.end(), histories.begin(), histories.end());
  }
  graph::localize(model.graph);
  narrow_values(model.graph, options.rule_of);
  all.graph = std::move(model.graph);
  all.states = std::move(model.states);
  return all;
}

namespace {

// The segments that an action of the schedule runs, one after the other.
std::vector<Segment> segments_of(ActionKind kind, Backward backward) {
  std::vector<Segment> both = backward == Backward::kCombined
                                  ? std::vector{Segment::kBackward}
                                  : std::vector{Segment::kInputGrad, Segment::kWeightGrad};
  switch (kind) {
    case ActionKind::kForward:
      return {Segment::kForward};
    case ActionKind::kInputGrad:
      return {Segment::kInputGrad};
    case ActionKind::kWeightGrad:
      return {Segment::kWeightGrad};
    case ActionKind::kBackward:
    case ActionKind::kForwardBackward:
      return both;
  }
  return both;
}

// Calls `each` with the place of an action in the schedule and the resulting program actions.
template <typename Each>
void for_each_action(const Pipeline& pipeline, Backward backward, const Each& each) {
  const std::vector<int32_t> chunk_of = pipeline.schedule.chunks();
  const auto& actions = pipeline.schedule.ranks[static_cast<size_t>(pipeline.rank)];
  for (size_t i = 0; i < actions.size(); ++i) {
    const parallel::Action& action = actions[i];
    const auto chunk = [&](int32_t stage) { return chunk_of[static_cast<size_t>(stage)]; };
    const bool is_pair = action.kind == ActionKind::kForwardBackward;
    if (is_pair) each(i, Action{Segment::kForward, action.micro_batch, false, chunk(action.stage)});
    for (const Segment segment : segments_of(action.kind, backward)) {
      each(i, Action{segment, is_pair ? action.backward_micro_batch : action.micro_batch, false,
                     chunk(is_pair ? action.backward_stage : action.stage)});
    }
  }
}

}  // namespace

Script order_of(const Pipeline& pipeline, Backward backward) {
  Script order;
  for_each_action(pipeline, backward, [&](size_t, const Action& action) { order.push_back(action); });
  return order;
}

std::vector<int32_t> places_in_order(const Pipeline& pipeline, Backward backward) {
  std::vector<int32_t> places;
  int32_t at = 0;
  for_each_action(pipeline, backward, [&](size_t i, const Action&) {
    if (places.size() == i) places.push_back(at);
    ++at;
  });
  places.push_back(at);
  return places;
}

namespace {

bool is_activation(const Message& message) {
  return message.at.segment == Segment::kForward;
}

// Places of a micro-batch's action in a script.
int32_t place_of(const Script& script, const SegmentAt& at, int32_t micro_batch) {
  const auto found = std::find_if(script.begin(), script.end(), [&](const Action& action) {
    return SegmentAt{action.segment, action.chunk} == at && action.micro_batch == micro_batch;
  });
  STRATA_CHECK(found != script.end(), "no action of {}{}", letter_of(at.segment), micro_batch);
  return static_cast<int32_t>(found - script.begin());
}

// Receives of a training step, in the order in which they start: that of parallel::messages_of.
std::vector<Receive> receives_of_step(const Program& program, const Pipeline& pipeline, Backward backward) {
  const std::vector<int32_t> script_place = places_in_order(pipeline, backward);
  std::vector<parallel::Message> mine;
  for (const parallel::Message& message : parallel::messages_of(pipeline.schedule)) {
    if (message.to_rank == pipeline.rank) mine.push_back(message);
  }
  std::stable_sort(mine.begin(), mine.end(),
                   [](const auto& a, const auto& b) { return a.received_before < b.received_before; });
  const std::vector<int32_t> chunk_of = pipeline.schedule.chunks();
  std::vector<Receive> receives;
  for (const parallel::Message& one : mine) {
    const bool forward = one.kind == parallel::Message::Kind::kActivation;
    const int32_t chunk = chunk_of[static_cast<size_t>(one.to_stage)];
    const auto found =
        std::find_if(program.messages.begin(), program.messages.end(), [&](const Message& each) {
          return !each.sends && is_activation(each) == forward && each.at.chunk == chunk;
        });
    STRATA_CHECK(found != program.messages.end(), "stage {} receives nothing", one.to_stage);
    receives.push_back({script_place[static_cast<size_t>(one.received_before)],
                        static_cast<int32_t>(found - program.messages.begin()), one.micro_batch});
  }
  return receives;
}

// Receives of programs whose script is one micro-batch after the other.
std::vector<Receive> receives_in_turn(const Program& program) {
  std::vector<Receive> receives;
  for (size_t i = 0; i < program.script.size(); ++i) {
    const Action& action = program.script[i];
    for (size_t m = 0; m < program.messages.size(); ++m) {
      const Message& message = program.messages[m];
      if (!message.sends && message.at == SegmentAt{action.segment, action.chunk})
        receives.push_back({static_cast<int32_t>(i), static_cast<int32_t>(m), action.micro_batch});
    }
  }
  return receives;
}

// The segments in which an instruction reads one of these values.
std::vector<SegmentAt> readers_of(const Draft& draft, const std::vector<ValueId>& values) {
  std::vector<SegmentAt> readers;
  for (const SegmentAt& at : in_order_of_micro_batch(draft.program.chunks())) {
    for (const Bound& bound : draft.segment(at)) {
      const auto& inputs = draft.program.graph.nodes()[static_cast<size_t>(bound.node)].inputs;
      const bool reads = std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) {
        return std::find(values.begin(), values.end(), input) != values.end();
      });
      if (reads && (readers.empty() || readers.back() != at)) readers.push_back(at);
    }
  }
  return readers;
}

bool is_receiver(const Program& program, int32_t chunk, bool activations) {
  return std::any_of(program.messages.begin(), program.messages.end(), [&](const Message& message) {
    return !message.sends && is_activation(message) == activations && message.at.chunk == chunk;
  });
}

// The pool of received messages: an entry is in use from the start of the receive to the end of the last
// reader.
Pool pool_of_received(const Draft& draft, bool activations, const std::vector<Receive>& receives) {
  const Program& program = draft.program;
  Pool pool{.name = activations ? "received activations" : "received gradients", .chunks = program.chunks()};
  pool.slot_of.assign(static_cast<size_t>(program.request.micro_batches * pool.chunks), 0);
  std::vector<Span> spans;
  std::vector<std::vector<size_t>> places;  // by span
  for (const Receive& receive : receives) {
    const Message& message = program.messages[static_cast<size_t>(receive.message)];
    if (is_activation(message) != activations) continue;
    int32_t last = place_of(program.script, message.at, receive.micro_batch);
    // All later stages of this rank read an encoder's output.
    std::vector<size_t>& seen_from = places.emplace_back();
    const auto place_in = [&](int32_t chunk) { return pool.place(receive.micro_batch, chunk); };
    seen_from.push_back(place_in(message.at.chunk));
    for (const SegmentAt& reader : readers_of(draft, message.values)) {
      last = std::max(last, place_of(program.script, reader, receive.micro_batch));
      if (reader.chunk == message.at.chunk) continue;
      STRATA_CHECK(!is_receiver(program, reader.chunk, activations),
                   "chunk {} reads two messages at the same time", reader.chunk);
      seen_from.push_back(place_in(reader.chunk));
    }
    spans.push_back({receive.before, last});
  }
  const Slots slots = color(spans);
  for (size_t i = 0; i < places.size(); ++i) {
    for (const size_t place : places[i]) pool.slot_of[place] = slots.of[i];
  }
  pool.slots = slots.count;
  return pool;
}

// The pool of sent messages: a ring for each peer. An entry is reused only after its message has been sent.
Pool pool_of_sent(const Program& program, bool activations, int32_t buffers) {
  Pool pool{.name = activations ? "sent activations" : "sent gradients", .chunks = program.chunks()};
  pool.slot_of.assign(static_cast<size_t>(program.request.micro_batches * pool.chunks), 0);
  std::map<int32_t, int32_t> sent;  // by peer: messages so far
  std::map<int32_t, int32_t> ring;  // by peer: its first entry
  for (const Action& action : program.script) {
    for (const Message& message : program.messages) {
      if (!message.sends || is_activation(message) != activations ||
          message.at != SegmentAt{action.segment, action.chunk})
        continue;
      const auto [first, is_new] = ring.try_emplace(message.peer, pool.slots);
      if (is_new) pool.slots += buffers;
      pool.slot_of[pool.place(action.micro_batch, action.chunk)] =
          first->second + sent[message.peer]++ % buffers;
    }
  }
  return pool;
}

}  // namespace

std::vector<Operand> place_messages(Draft& draft, Pools& pools) {
  Program& program = draft.program;
  if (program.messages.empty()) return {};
  const bool trains = program.request.kind == Kind::kTrain;
  program.receives =
      trains ? receives_of_step(program, *draft.pipeline, draft.backward) : receives_in_turn(program);
  const int32_t buffers = std::min<int32_t>(static_cast<int32_t>(program.request.micro_batches),
                                            trains ? draft.pipeline->send_buffers : 1);
  std::vector<Operand> places(static_cast<size_t>(program.graph.value_count()));
  for (const bool sends : {false, true}) {
    for (const bool activations : {true, false}) {
      const auto is_meant = [&](const Message& message) {
        return message.sends == sends && is_activation(message) == activations;
      };
      if (std::none_of(program.messages.begin(), program.messages.end(), is_meant)) continue;
      const size_t pool = pools.add(sends ? pool_of_sent(program, activations, buffers)
                                          : pool_of_received(draft, activations, program.receives));
      for (Message& message : program.messages) {
        if (!is_meant(message)) continue;
        message.pool = pool;
        for (const SegmentAt& reader : readers_of(draft, message.values)) {
          STRATA_CHECK(!sends || reader == message.at, "a sent value is read after the action that makes it");
        }
        for (const ValueId value : message.values)
          places[static_cast<size_t>(value)] = {
              pools.add_value(pool, message.at.chunk, program.graph.value(value).bytes()),
              base_of_pool(pool)};
      }
    }
  }
  return places;
}

}  // namespace strata::program
