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

struct RoundsPlan {
  Step step = Step::kForward;
  ExpertParallelAttrs attrs;
  std::vector<Call> forward, input_grad, weight_grad, more_weight_grad;  // the last adds to gradients
  size_t instances = 0;
  std::vector<Where> where;  // by value of the body
  // Operands of the node; -1: it has none such.
  int x = -1, ids = -1, weights = -1, dy = -1, end = -1, source = -1;
  int y = -1, dx = -1, dweights = -1;
  int scratch_operand = 0;
  // In scratch: of the routes; of the further rounds; of the body's kernels.
  int64_t tokens_at = 0, back_begin_at = 0, back_at = 0, slot_counts_at = 0, counts_at = 0;
  int64_t places_at = 0, by_token_at = 0, source_at = 0;
  int64_t records_out_at = 0, records_in_at = 0, returned_at = 0, weight_grads_at = 0, returned_grads_at = 0;
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
      if (request_.view.has_out(Op::kSource)) plan_.source = inputs + Op::kSource;
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
    plan_.source = Op::kSource;
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
    const int64_t rows = a.rows();
    plan_.tokens_at = take(rows * 4);
    plan_.back_begin_at = take((a.tokens + 1) * 4);
    plan_.back_at = take(a.tokens * std::min(a.k, a.ranks) * 4);
    plan_.slot_counts_at = take(a.ranks * 4);
    plan_.counts_at = take(4 * a.ranks * 8);
    plan_.places_at = take(rows * 4);
    plan_.by_token_at = take((a.tokens + 1) * 4);
    plan_.source_at = take(rows * 4);
    plan_.records_out_at = take(rows * ops_words() * 4);
    plan_.records_in_at = take(rows * ops_words() * 4);
    if (plan_.step != Step::kGradWeight) plan_.returned_at = take(rows * plan_.row_bytes);
    if (plan_.step == Step::kGradInput) {
      plan_.weight_grads_at = take(rows * a.hits() * 4);
      plan_.returned_grads_at = take(rows * a.hits() * 4);
    }
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
  int64_t ops_words() const { return words_of_record(plan_.attrs); }

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
    sends.resize(static_cast<size_t>(plan.attrs.ranks));
    receives.resize(static_cast<size_t>(plan.attrs.ranks));
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
    departures_ = {.tokens = scratch<int32_t>(plan_.tokens_at),
                   .counts = counts(0),
                   .slot_counts = scratch<int32_t>(plan_.slot_counts_at),
                   .back_begin = scratch<int32_t>(plan_.back_begin_at),
                   .back = scratch<int32_t>(plan_.back_at)};
    arrivals_ = {.places = scratch<int32_t>(plan_.places_at),
                 .counts = counts(1),
                 .by_token = scratch<int32_t>(plan_.by_token_at)};
    STRATA_CHECK(attrs_.ranks == 1 || (launch.ranks != nullptr && launch.ranks->size() == attrs_.ranks),
                 "experts of {} ranks run without them", attrs_.ranks);
  }

  void forward() {
    int64_t end = agreed_end(0);
    if (plan_.end >= 0) *at<int32_t>(plan_.end) = static_cast<int32_t>(end);
    for (int64_t begin = 0; begin < attrs_.tokens || begin == 0;) {
      bring_tokens(begin, end);
      run(plan_.forward);
      take_back(body_.result, plan_.y, begin, end);
      if (!next_round(begin, end)) break;
    }
  }

  void grad_input() {
    int64_t end = *at<int32_t>(plan_.end);
    for (int64_t begin = 0;;) {
      if (is_first_) {
        find_departures(attrs_, ids_, begin, end, departures_);
        find_arrivals(attrs_, source(), arrivals_);
      } else {
        bring_tokens(begin, end);
        run(plan_.forward);
      }
      bring(plan_.dy, body_.result_grad);
      run(plan_.input_grad);
      take_back(body_.rows_grad, plan_.dx, begin, end);
      take_back_weight_grads(begin, end);
      if (!next_round(begin, end)) return;
    }
  }

  // The first round's rows and gradients are there.
  void grad_weight() {
    int64_t end = *at<int32_t>(plan_.end);
    for (int64_t begin = 0;;) {
      if (!is_first_) {
        bring_tokens(begin, end);
        run(plan_.forward);
        bring(plan_.dy, body_.result_grad);
        run(plan_.input_grad);
      }
      run(is_first_ ? plan_.weight_grad : plan_.more_weight_grad);
      if (!next_round(begin, end)) return;
    }
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
  int64_t* counts(int64_t which) const { return scratch<int64_t>(plan_.counts_at) + which * attrs_.ranks; }
  int32_t* source() const {
    return is_first_ && plan_.source >= 0 ? at<int32_t>(plan_.source) : scratch<int32_t>(plan_.source_at);
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
    int64_t* const mine = counts(2);
    *mine = first_overflow(attrs_, ids_, begin, counts(0), counts(1));
    if (attrs_.ranks == 1) return *mine;
    int64_t* const all = counts(3);
    for (size_t rank = 0; rank < rounds_.sends.size(); ++rank) {
      rounds_.sends[rank] = {nullptr, 0, 1};
      rounds_.receives[rank] = {nullptr, static_cast<int64_t>(rank), 1};
    }
    exchange(mine, all, sizeof(int64_t));
    return *std::min_element(all, all + attrs_.ranks);
  }

  void exchange(const void* send, void* receive, int64_t row_bytes) {
    const comm::RowExchange rows{send, receive, row_bytes, rounds_.sends, rounds_.receives};
    if (attrs_.ranks > 1) return launch_.ranks->exchange_rows(rows);
    comm::RowSet& to = rounds_.receives[0];
    comm::copy_rows(rounds_.sends[0], static_cast<const std::byte*>(send), to,
                    static_cast<std::byte*>(receive), row_bytes, [] { return false; });
    to.count = rounds_.sends[0].count;
  }

  comm::RowSet departing(size_t rank, bool listed) const {
    const int64_t first = static_cast<int64_t>(rank) * attrs_.room.rows;
    return {listed ? departures_.tokens + first : nullptr, listed ? 0 : first, departures_.counts[rank]};
  }
  comm::RowSet arriving(size_t rank) const {
    return {arrivals_.places + static_cast<int64_t>(rank) * attrs_.room.rows, 0, arrivals_.counts[rank]};
  }

  // Tokens [begin, end) to the ranks of their experts, with what these need to know of them.
  void bring_tokens(int64_t begin, int64_t end) {
    find_departures(attrs_, ids_, begin, end, departures_);
    auto* const out = scratch<int32_t>(plan_.records_out_at);
    auto* const in = scratch<int32_t>(plan_.records_in_at);
    write_records(attrs_, ids_, at<float>(plan_.weights), departures_, out);
    for (size_t rank = 0; rank < rounds_.sends.size(); ++rank) {
      rounds_.sends[rank] = departing(rank, false);
      rounds_.receives[rank] = {nullptr, static_cast<int64_t>(rank) * attrs_.room.rows, attrs_.room.rows};
    }
    exchange(out, in, words_of_record(attrs_) * 4);
    for (size_t rank = 0; rank < rounds_.sends.size(); ++rank)
      arrivals_.counts[rank] = rounds_.receives[rank].count;
    const ops::ExpertInputs& inputs = body_.inputs;
    order_arrivals(attrs_, in, arrivals_, source(), data<int32_t>(inputs.offsets), data<int32_t>(inputs.ids),
                   data<float>(inputs.weights));
    bring(plan_.x, inputs.rows);
  }

  // Rows of an operand with a row a token to where they are wanted. Rows of the body without a token are
  // zeros.
  void bring(int operand, ValueId value) {
    int64_t used = 0;
    for (size_t rank = 0; rank < rounds_.sends.size(); ++rank) {
      rounds_.sends[rank] = departing(rank, true);
      rounds_.receives[rank] = arriving(rank);
      used += arrivals_.counts[rank];
    }
    std::byte* const rows = address(value);
    exchange(operands_[operand], rows, plan_.row_bytes);
    std::memset(rows + used * plan_.row_bytes, 0,
                static_cast<size_t>((attrs_.rows() - used) * plan_.row_bytes));
  }

  // Rows back to where they came from.
  void send_back(const void* from, void* to, int64_t row_bytes) {
    for (size_t rank = 0; rank < rounds_.sends.size(); ++rank) {
      rounds_.sends[rank] = arriving(rank);
      rounds_.receives[rank] = departing(rank, false);
    }
    exchange(from, to, row_bytes);
  }

  void take_back(ValueId value, int operand, int64_t begin, int64_t end) {
    auto* const returned = scratch<std::byte>(plan_.returned_at);
    send_back(address(value), returned, plan_.row_bytes);
    const graph::Value& rows = body_.graph.value(value);
    add_returns(departures_, begin, end, rows.shape[1], rows.dtype, returned, operands_[operand]);
  }

  void take_back_weight_grads(int64_t begin, int64_t end) {
    auto* const out = scratch<float>(plan_.weight_grads_at);
    auto* const back = scratch<float>(plan_.returned_grads_at);
    write_weight_grads(attrs_, data<int32_t>(body_.inputs.offsets), data<float>(body_.weights_grad), out);
    send_back(out, back, attrs_.hits() * 4);
    read_weight_grads(attrs_, ids_, begin, end, departures_, back, at<float>(plan_.dweights));
  }

  Launch& launch_;
  Rounds& rounds_;
  const RoundsPlan& plan_;
  const ExpertParallelAttrs& attrs_;
  const ExpertBody& body_;
  std::byte* const* operands_;
  std::byte* scratch_;
  const int32_t* ids_;
  Departures departures_;
  Arrivals arrivals_;
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
