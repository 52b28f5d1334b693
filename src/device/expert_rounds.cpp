#include "device/expert_rounds.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/plan.h"
#include "device/expert_routes.h"
#include "device/plan.h"
#include "ops/expert_parallel.h"
#include "tensor/arena.h"

namespace strata::device {
namespace {

using graph::kNone;
using graph::Node;
using graph::Phase;
using graph::ValueId;
using ops::ExpertBody;
using ops::ExpertParallelAttrs;

enum class Step : uint8_t { kForward, kGradInput, kGradWeight };

// A node of the body.
struct Call {
  BoundKernel kernel;
  std::vector<ValueId> operands;
  size_t instance = 0;  // among those of the plan
};

// Where a value of the body lies.
struct Where {
  int first_round = -1;   // operand of the node; -1: in scratch
  int later_rounds = -1;  // the same
  int64_t scratch = -1;
};

// A hop, and where in scratch its arrays lie.
struct HopPlan {
  Hop hop;
  int64_t entry_slots = 0;  // of an entry that departs, at most
  int64_t entries_at = 0, counts_at = 0, back_begin_at = 0, back_end_at = 0, back_at = 0;
  int64_t sent_at = 0, arrived_at = 0, arrived_counts_at = 0;  // records
  int64_t grads_at = 0, returned_grads_at = 0;                 // of weights: of what departed; of rows
};

struct RoundsPlan {
  Step step = Step::kForward;
  ExpertParallelAttrs attrs;
  std::vector<Call> forward, input_grad, weight_grad, more_weight_grad;  // the last adds to gradients
  size_t instances = 0;
  std::vector<Where> where;  // by value of the body
  // Operands of the node; -1: it has none such.
  int x = -1, ids = -1, weights = -1, dy = -1, end = -1;
  int y = -1, dx = -1, dweights = -1;
  int scratch_operand = 0;
  std::vector<HopPlan> hops;  // one, or to nodes and inside them
  int64_t own_records_at = 0, own_count_at = 0, places_at = 0, by_token_at = 0, ends_at = 0, room_at = 0;
  int64_t between_at = 0;    // rows between two hops
  int64_t row_grads_at = 0;  // of weights
  int64_t kernel_scratch_at = 0;
  int64_t row_bytes = 0;
};

// --- The plan

class Planner {
 public:
  Planner(const BindRequest& request, std::span<const Binding> table)
      : request_(request), table_(table), body_(*request.view.attrs<ExpertParallelAttrs>().body) {
    plan_.attrs = request.view.attrs<ExpertParallelAttrs>();
    const graph::OpDef* op = request.view.node.op;
    plan_.step = op == &ops::kExpertParallel            ? Step::kForward
                 : op == &ops::kExpertParallelGradInput ? Step::kGradInput
                                                        : Step::kGradWeight;
    const graph::Value& rows = body_.graph.value(body_.inputs.rows);
    plan_.row_bytes = rows.shape[1] * size_of(rows.dtype);
  }

  BoundKernel make(Kernel run, Instantiate instantiate) {
    plan_.where.resize(static_cast<size_t>(body_.graph.value_count()));
    place_operands();
    plan_.forward = bind(Phase::kForward, false);
    if (plan_.step != Step::kForward) plan_.input_grad = bind(Phase::kInputGrad, false);
    if (plan_.step == Step::kGradWeight) {
      plan_.weight_grad = bind(Phase::kWeightGrad, false);
      plan_.more_weight_grad = bind(Phase::kWeightGrad, true);
    }
    lay_out_scratch();
    BoundKernel kernel = bound(run, std::move(plan_), at_);
    kernel.instantiate = instantiate;
    return kernel;
  }

 private:
  void place_operands() {
    const auto inputs = static_cast<int>(request_.view.node.inputs.size());
    const auto outputs = static_cast<int>(request_.view.node.outputs.size());
    plan_.scratch_operand = inputs + outputs;
    const auto list = [&](const std::vector<ValueId>& values, int first) {
      for (const ValueId value : values) plan_.where[index(value)].first_round = first++;
      return first;
    };
    const auto always = [&](const std::vector<ValueId>& values, int first) {
      for (const ValueId value : values) {
        plan_.where[index(value)].first_round = plan_.where[index(value)].later_rounds = first++;
      }
      return first;
    };
    if (plan_.step == Step::kForward) {
      using Op = ops::ExpertParallel;
      plan_.x = Op::kX;
      plan_.ids = Op::kIds;
      plan_.weights = Op::kWeights;
      always(body_.inputs.parameters, Op::kParameters);
      plan_.y = inputs + Op::kY;
      if (request_.view.has_out(Op::kEnd)) plan_.end = inputs + Op::kEnd;
      for (size_t i = 0; i < body_.kept.size(); ++i) {
        // Who only evaluates what could be trained keeps nothing.
        if (request_.view.has_out(Op::kKept + static_cast<int>(i)))
          plan_.where[index(body_.kept[i])].first_round = inputs + Op::kKept + static_cast<int>(i);
      }
      return;
    }
    using Op = ops::ExpertParallelGrad;
    plan_.dy = Op::kDy;
    plan_.x = Op::kX;
    plan_.ids = Op::kIds;
    plan_.weights = Op::kWeights;
    plan_.end = Op::kEnd;
    int next = always(body_.inputs.parameters, Op::kParameters);
    if (plan_.step == Step::kGradInput) {
      list(body_.kept, next);
      plan_.dx = inputs + Op::kDx;
      plan_.dweights = inputs + Op::kDweights;
      list(body_.handed, inputs + Op::kHanded);
    } else {
      next = list(body_.kept_for_weights, next);
      list(body_.handed, next);
      always(body_.parameter_grads, inputs);
    }
  }

  std::vector<Call> bind(Phase phase, bool adds) {
    std::vector<Call> calls;
    std::vector<bool> written(static_cast<size_t>(body_.graph.value_count()), adds);
    for (const Node& node : body_.graph.nodes()) {
      if (node.phase != phase) continue;
      BindRequest inner{{body_.graph, node},
                        std::vector<bool>(node.outputs.size(), false),
                        request_.cache,
                        request_.device};
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        if (node.outputs[o] == kNone) continue;
        const auto gradient =
            std::find(body_.parameter_grads.begin(), body_.parameter_grads.end(), node.outputs[o]);
        if (gradient == body_.parameter_grads.end()) continue;
        const auto of = static_cast<size_t>(gradient - body_.parameter_grads.begin());
        inner.accumulate[o] = written[index(node.outputs[o])] || request_.accumulate[of];
        written[index(node.outputs[o])] = true;
      }
      Call call{find_binding(table_, *node.op).bind(inner), node.inputs, plan_.instances++};
      call.operands.insert(call.operands.end(), node.outputs.begin(), node.outputs.end());
      kernel_scratch_ = std::max(kernel_scratch_, call.kernel.scratch_bytes);
      calls.push_back(std::move(call));
    }
    return calls;
  }

  int64_t take(int64_t bytes) {
    const int64_t place = at_;
    at_ += align_up(bytes, kBufferAlignment);
    return place;
  }

  void lay_out_scratch() {
    const ExpertParallelAttrs& a = plan_.attrs;
    plan_.own_records_at = take(a.tokens * Hop::words_of(a.k) * 4);
    plan_.own_count_at = take(8);
    plan_.by_token_at = take((a.tokens + 1) * 4);
    plan_.places_at = take(a.rows() * 4);
    plan_.ends_at = take((a.ranks + 1) * 8);
    plan_.room_at = take(2 * a.ranks * 8);
    if (plan_.step == Step::kGradInput) plan_.row_grads_at = take(a.rows() * a.hits() * 4);
    add_hops();
    // What this step's nodes touch and the node has no operand for, in some round.
    const bool one_round = a.has_room_for_all();
    const bool differentiates = plan_.step != Step::kForward;
    for (ValueId value = 0; value < body_.graph.value_count(); ++value) {
      Where& where = plan_.where[index(value)];
      const bool is_backward = plan_.step == Step::kForward && !made_in_forward(value);
      const bool elsewhere = where.first_round >= 0 && (where.later_rounds >= 0 || one_round);
      if (is_backward || elsewhere) continue;
      if (differentiates && one_round && !touched_in_first_round(value)) continue;
      where.scratch = take(body_.graph.value(value).bytes());
    }
    plan_.kernel_scratch_at = take(kernel_scratch_);
  }

  void add_hops() {
    const ExpertParallelAttrs& a = plan_.attrs;
    const int64_t own = a.own_experts();
    int64_t entries = a.tokens, entry_slots = a.k;
    const auto add = [&](const Hop& hop) {
      HopPlan of{.hop = hop, .entry_slots = entry_slots};
      of.entries_at = take(hop.all_rows() * 4);
      of.counts_at = take(hop.peers * 8);
      of.back_begin_at = take(entries * 4);
      of.back_end_at = take(entries * 4);
      of.back_at = take(entries * std::min(entry_slots, hop.peers) * 4);
      of.sent_at = take(hop.all_rows() * hop.words() * 4);
      of.arrived_at = take(hop.all_rows() * hop.words() * 4);
      of.arrived_counts_at = take(hop.peers * 8);
      if (plan_.step == Step::kGradInput) {
        of.grads_at = take(entries * entry_slots * 4);
        of.returned_grads_at = take(hop.all_rows() * hop.hits * 4);
      }
      entries = hop.all_rows();
      entry_slots = hop.hits;
      plan_.hops.push_back(of);
    };
    if (!a.by_nodes()) return add({a.ranks, a.room.rows, own, a.hits()});
    const int64_t nodes = a.ranks / a.node_ranks, of_node = a.node_ranks * own;
    add({nodes, std::min(a.tokens, a.node_ranks * a.room.rows), of_node, std::min(a.k, of_node)});
    plan_.between_at = take(entries * plan_.row_bytes);
    add({a.node_ranks, nodes * a.room.rows, own, a.hits()});
  }

  bool made_in_forward(ValueId value) const {
    const ops::ExpertInputs& in = body_.inputs;
    if (value == in.rows || value == in.ids || value == in.offsets || value == in.weights) return true;
    return touched(value, Phase::kForward);
  }
  bool touched_in_first_round(ValueId value) const {
    return value == body_.result_grad ||
           touched(value, plan_.step == Step::kGradInput ? Phase::kInputGrad : Phase::kWeightGrad);
  }
  bool touched(ValueId value, Phase phase) const {
    return std::any_of(body_.graph.nodes().begin(), body_.graph.nodes().end(), [&](const Node& node) {
      const auto has = [&](const std::vector<ValueId>& list) {
        return std::find(list.begin(), list.end(), value) != list.end();
      };
      return node.phase == phase && (has(node.inputs) || has(node.outputs));
    });
  }

  static size_t index(ValueId value) { return static_cast<size_t>(value); }

  const BindRequest& request_;
  const std::span<const Binding> table_;
  const ExpertBody& body_;
  RoundsPlan plan_;
  int64_t at_ = 0, kernel_scratch_ = 0;
};

// --- Running it

// A plan with the instances of the body's kernels, and lists that a run fills.
struct Rounds {
  explicit Rounds(const RoundsPlan& of) : plan(of), states(of.instances) {
    size_t widest = 0;
    for (const auto* list : {&plan.forward, &plan.input_grad, &plan.weight_grad, &plan.more_weight_grad}) {
      for (const Call& call : *list) {
        const void* inner = call.kernel.plan.get();
        if (call.kernel.instantiate != nullptr) instances.push_back(call.kernel.instantiate(inner));
        states[call.instance] =
            call.kernel.instantiate != nullptr ? instances.back().get() : const_cast<void*>(inner);
        widest = std::max(widest, call.operands.size() + 1);
      }
    }
    pointers.resize(widest);
    sends.reserve(static_cast<size_t>(plan.attrs.ranks));
    receives.reserve(static_cast<size_t>(plan.attrs.ranks));
  }

  const RoundsPlan& plan;
  std::vector<std::shared_ptr<void>> instances;
  std::vector<void*> states;  // by call
  std::vector<std::byte*> pointers;
  std::vector<comm::RowSet> sends, receives;
};

class Run {
 public:
  Run(Launch& launch, Rounds& rounds, std::byte* const* operands)
      : launch_(launch),
        rounds_(rounds),
        plan_(rounds.plan),
        attrs_(plan_.attrs),
        body_(*attrs_.body),
        operands_(operands),
        scratch_(operands[plan_.scratch_operand]),
        ids_(at<int32_t>(plan_.ids)) {
    STRATA_CHECK(attrs_.ranks == 1 || (launch.ranks != nullptr && launch.ranks->size() == attrs_.ranks),
                 "experts of {} ranks run without them", attrs_.ranks);
  }

  void forward() {
    int64_t begin = 0, end = agreed_end(0);
    int32_t unused[2];
    int32_t* const out = plan_.end >= 0 ? at<int32_t>(plan_.end) : unused;
    out[0] = static_cast<int32_t>(end);
    out[1] = -1;
    do {
      ++out[1];
      bring_tokens(begin, end);
      run(plan_.forward);
      take_back(body_.result, plan_.y);
    } while (next_round(begin, end));
  }

  void grad_input() {
    int64_t begin = 0, end = *at<int32_t>(plan_.end);
    do {
      if (is_first_) {
        find_way(begin, end);
      } else {
        bring_tokens(begin, end);
        run(plan_.forward);
      }
      bring(plan_.dy, body_.result_grad);
      run(plan_.input_grad);
      take_back(body_.rows_grad, plan_.dx);
      take_back_weight_grads(begin, end);
    } while (next_round(begin, end));
  }

  // The first round's rows and gradients are there.
  void grad_weight() {
    int64_t begin = 0, end = *at<int32_t>(plan_.end);
    do {
      if (!is_first_) {
        bring_tokens(begin, end);
        run(plan_.forward);
        bring(plan_.dy, body_.result_grad);
        run(plan_.input_grad);
      }
      run(is_first_ ? plan_.weight_grad : plan_.more_weight_grad);
    } while (next_round(begin, end));
  }

 private:
  template <typename T>
  T* at(int operand) const {
    return reinterpret_cast<T*>(operands_[operand]);
  }
  template <typename T>
  T* scratch(int64_t offset) const {
    return reinterpret_cast<T*>(scratch_ + offset);
  }
  std::byte* address(ValueId value) const {
    if (value == kNone) return nullptr;
    const Where& where = plan_.where[static_cast<size_t>(value)];
    const int operand = is_first_ ? where.first_round : where.later_rounds;
    STRATA_CHECK(operand >= 0 || where.scratch >= 0, "[experts] {} lies nowhere",
                 body_.graph.value(value).name);
    return operand >= 0 ? operands_[operand] : scratch_ + where.scratch;
  }
  template <typename T>
  T* data(ValueId value) const {
    return reinterpret_cast<T*>(address(value));
  }

  void run(const std::vector<Call>& calls) {
    for (const Call& call : calls) {
      for (size_t i = 0; i < call.operands.size(); ++i) rounds_.pointers[i] = address(call.operands[i]);
      rounds_.pointers[call.operands.size()] = scratch_ + plan_.kernel_scratch_at;
      call.kernel.run(launch_, rounds_.states[call.instance], rounds_.pointers.data());
    }
  }

  bool next_round(int64_t& begin, int64_t& end) {
    if (end >= attrs_.tokens) return false;
    begin = end;
    end = agreed_end(begin);
    is_first_ = false;
    return true;
  }

  // Up to where a round that begins here can go on all ranks.
  int64_t agreed_end(int64_t begin) {
    if (attrs_.has_room_for_all()) return attrs_.tokens;
    auto* const rows = scratch<int64_t>(plan_.room_at);
    auto* const ends = scratch<int64_t>(plan_.ends_at);  // this rank's, then all
    ends[0] = first_overflow(attrs_, ids_, begin, rows, rows + attrs_.ranks);
    if (attrs_.ranks == 1) return ends[0];
    start(attrs_.ranks);
    for (size_t rank = 0; rank < sends().size(); ++rank) {
      sends()[rank] = {nullptr, 0, 1};
      receives()[rank] = {nullptr, static_cast<int64_t>(rank), 1};
    }
    exchange(launch_.ranks, ends, ends + 1, sizeof(int64_t));
    return *std::min_element(ends + 1, ends + 1 + attrs_.ranks);
  }

  // --- Exchanges

  std::vector<comm::RowSet>& sends() { return rounds_.sends; }
  std::vector<comm::RowSet>& receives() { return rounds_.receives; }
  void start(int64_t peers) {
    sends().resize(static_cast<size_t>(peers));
    receives().resize(static_cast<size_t>(peers));
  }
  comm::Communicator* group(const HopPlan& of) const {
    if (plan_.hops.size() == 1) return launch_.ranks;
    return &of == plan_.hops.data() ? launch_.across : launch_.within;
  }
  using Take = FunctionRef<void(std::span<const comm::RowSource>)>;
  void exchange(comm::Communicator* among, const void* send, void* receive, int64_t row_bytes,
                const Take* take = nullptr) {
    const comm::RowExchange rows{send, receive, row_bytes, sends(), receives(), take};
    if (sends().size() > 1) return among->exchange_rows(rows);
    comm::RowSet& to = receives()[0];
    STRATA_CHECK(sends()[0].count <= to.count, "[experts] no room for a rank's own rows");
    const comm::RowSource own{static_cast<const std::byte*>(send), sends()[0]};
    if (take != nullptr) return (*take)({&own, 1});
    comm::copy_rows(sends()[0], static_cast<const std::byte*>(send), to, static_cast<std::byte*>(receive),
                    row_bytes, [] { return false; });
    to.count = sends()[0].count;
  }

  const HopPlan& last() const { return plan_.hops.back(); }
  bool is_last(const HopPlan& of) const { return &of == &last(); }
  bool is_first_hop(const HopPlan& of) const { return &of == plan_.hops.data(); }

  Departures departures(const HopPlan& of) const {
    return {.entries = scratch<int32_t>(of.entries_at),
            .counts = scratch<int64_t>(of.counts_at),
            .back_begin = scratch<int32_t>(of.back_begin_at),
            .back_end = scratch<int32_t>(of.back_end_at),
            .back = scratch<int32_t>(of.back_at)};
  }
  // What departs on a hop: a rank's own tokens, or what the hop before has brought.
  Entries entries(const HopPlan& of) const {
    if (!is_first_hop(of)) return arrived(plan_.hops.front());
    return {.records = scratch<int32_t>(plan_.own_records_at),
            .words = Hop::words_of(attrs_.k),
            .block = attrs_.tokens,
            .counts = scratch<int64_t>(plan_.own_count_at),
            .first = begin_};
  }
  Entries arrived(const HopPlan& of) const {
    return {.records = scratch<int32_t>(of.arrived_at),
            .words = of.hop.words(),
            .blocks = of.hop.peers,
            .block = of.hop.rows,
            .counts = scratch<int64_t>(of.arrived_counts_at)};
  }
  // Rows of a hop's side that departs: those listed, or as they lie in blocks.
  comm::RowSet departing(const HopPlan& of, int64_t peer, bool listed) const {
    const Departures out = departures(of);
    const int64_t first = peer * of.hop.rows;
    return {listed ? out.entries + first : nullptr, listed ? 0 : first, out.counts[peer]};
  }
  // Of the side that arrives: at their places behind the last hop.
  comm::RowSet arriving(const HopPlan& of, int64_t peer) const {
    const int64_t first = peer * of.hop.rows;
    const int64_t count = scratch<int64_t>(of.arrived_counts_at)[peer];
    if (is_last(of)) return {scratch<int32_t>(plan_.places_at) + first, 0, count};
    return {nullptr, first, count};
  }

  // Where the tokens [begin, end) of all ranks go.
  void find_way(int64_t begin, int64_t end) {
    begin_ = begin;
    *scratch<int64_t>(plan_.own_count_at) = end - begin;
    const int32_t rank = launch_.ranks != nullptr ? launch_.ranks->rank() : 0;
    write_own_records(attrs_, rank, ids_, at<float>(plan_.weights), begin, end,
                      scratch<int32_t>(plan_.own_records_at));
    for (const HopPlan& of : plan_.hops) {
      auto* const sent = scratch<int32_t>(of.sent_at);
      depart(of.hop, entries(of), departures(of), sent);
      start(of.hop.peers);
      for (int64_t peer = 0; peer < of.hop.peers; ++peer) {
        sends()[static_cast<size_t>(peer)] = departing(of, peer, false);
        receives()[static_cast<size_t>(peer)] = {nullptr, peer * of.hop.rows, of.hop.rows};
      }
      exchange(group(of), sent, scratch<int32_t>(of.arrived_at), of.hop.words() * 4);
      for (int64_t peer = 0; peer < of.hop.peers; ++peer)
        scratch<int64_t>(of.arrived_counts_at)[peer] = receives()[static_cast<size_t>(peer)].count;
    }
    find_places(arrived(last()), attrs_.tokens, attrs_.by_nodes() ? attrs_.node_ranks : attrs_.ranks,
                scratch<int32_t>(plan_.by_token_at), scratch<int32_t>(plan_.places_at));
  }

  // Tokens [begin, end) to the ranks of their experts, with their slots.
  void bring_tokens(int64_t begin, int64_t end) {
    find_way(begin, end);
    const ops::ExpertInputs& inputs = body_.inputs;
    list_slots(attrs_, arrived(last()), scratch<int32_t>(plan_.places_at), data<int32_t>(inputs.offsets),
               data<int32_t>(inputs.ids), data<float>(inputs.weights));
    bring(plan_.x, inputs.rows);
  }

  // Rows of an operand with a row a token to their places. Rows of the body without a token are zeros.
  void bring(int operand, ValueId value) {
    std::byte* const rows = address(value);
    const std::byte* from = operands_[operand];
    int64_t used = 0;
    for (const HopPlan& of : plan_.hops) {
      std::byte* const to = is_last(of) ? rows : scratch<std::byte>(plan_.between_at);
      start(of.hop.peers);
      used = 0;
      for (int64_t peer = 0; peer < of.hop.peers; ++peer) {
        sends()[static_cast<size_t>(peer)] = departing(of, peer, true);
        receives()[static_cast<size_t>(peer)] = arriving(of, peer);
        used += receives()[static_cast<size_t>(peer)].count;
      }
      exchange(group(of), from, to, plan_.row_bytes);
      from = to;
    }
    std::memset(rows + used * plan_.row_bytes, 0,
                static_cast<size_t>((attrs_.rows() - used) * plan_.row_bytes));
  }

  // Rows of what has arrived on a hop to where they departed.
  void send_back(const HopPlan& of, const void* from, void* to, int64_t row_bytes,
                 const Take* take = nullptr) {
    start(of.hop.peers);
    for (int64_t peer = 0; peer < of.hop.peers; ++peer) {
      sends()[static_cast<size_t>(peer)] = arriving(of, peer);
      receives()[static_cast<size_t>(peer)] = departing(of, peer, false);
    }
    exchange(group(of), from, to, row_bytes, take);
  }

  void take_back(ValueId value, int operand) {
    const graph::Value& rows = body_.graph.value(value);
    const std::byte* from = address(value);
    for (size_t i = plan_.hops.size(); i-- > 0;) {
      const HopPlan& of = plan_.hops[i];
      std::byte* const to = i == 0 ? operands_[operand] : scratch<std::byte>(plan_.between_at);
      // Read where they lie: the sums are all that is written.
      const auto add = [&](std::span<const comm::RowSource> returned) {
        add_returns(of.hop, entries(of), departures(of), rows.shape[1], rows.dtype, returned, to);
      };
      const Take take = add;
      send_back(of, from, nullptr, plan_.row_bytes, &take);
      from = to;
    }
  }

  void take_back_weight_grads(int64_t begin, int64_t end) {
    auto* from = scratch<float>(plan_.row_grads_at);
    write_weight_grads(attrs_, data<int32_t>(body_.inputs.offsets), data<float>(body_.weights_grad), from);
    for (size_t i = plan_.hops.size(); i-- > 0;) {
      const HopPlan& of = plan_.hops[i];
      auto* const returned = scratch<float>(of.returned_grads_at);
      auto* const to = scratch<float>(of.grads_at);
      send_back(of, from, returned, of.hop.hits * 4);
      return_weight_grads(of.hop, entries(of), departures(of), returned, to, of.entry_slots);
      from = to;
    }
    place_weight_grads(attrs_, ids_, begin, end, from, at<float>(plan_.dweights));
  }

  Launch& launch_;
  Rounds& rounds_;
  const RoundsPlan& plan_;
  const ExpertParallelAttrs& attrs_;
  const ExpertBody& body_;
  std::byte* const* operands_;
  std::byte* scratch_;
  const int32_t* ids_;
  int64_t begin_ = 0;  // of the round's tokens
  bool is_first_ = true;
};

}  // namespace

BoundKernel bind_expert_rounds(const BindRequest& request, std::span<const Binding> table) {
  return Planner(request, table)
      .make(
          [](Launch& launch, void* held, std::byte* const* operands) {
            Run run(launch, instance_of<Rounds>(held), operands);
            switch (instance_of<Rounds>(held).plan.step) {
              case Step::kForward:
                return run.forward();
              case Step::kGradInput:
                return run.grad_input();
              case Step::kGradWeight:
                return run.grad_weight();
            }
          },
          instantiate<Rounds, RoundsPlan>);
}

}  // namespace strata::device
