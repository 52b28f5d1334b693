#include "device/expert_rounds.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/plan.h"
#include "device/expert_rounds_plan.h"
#include "device/plan.h"

namespace strata::device {
namespace {

using graph::kNone;
using graph::ValueId;
using ops::ExpertBody;
using ops::ExpertParallelAttrs;

// A plan with the instances of the body's kernels, and lists that a run fills.
struct Rounds {
  explicit Rounds(const RoundsPlan& of) : plan(of), addresses(of.where.size() + 2) {
    const auto add_all = [&](const std::vector<BodyCall>& from, CallList& to) {
      for (const BodyCall& call : from)
        to.add(call.kernel.run, instances.of(call.kernel.plan.get(), call.kernel.instantiate), call.operands);
    };
    add_all(plan.forward, forward);
    add_all(plan.input_grad, input_grad);
    add_all(plan.weight_grad, weight_grad);
    add_all(plan.more_weight_grad, more_weight_grad);
    sends.reserve(static_cast<size_t>(plan.attrs.ranks));
    receives.reserve(static_cast<size_t>(plan.attrs.ranks));
  }

  const RoundsPlan& plan;
  Instances instances;
  CallList forward, input_grad, weight_grad, more_weight_grad;
  std::vector<std::byte*> addresses;  // of a round
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
    STRATA_CHECK(
        attrs_.ranks == 1 || (launch.peers.ranks != nullptr && launch.peers.ranks->size() == attrs_.ranks),
        "experts of {} ranks run without them", attrs_.ranks);
    find_addresses();
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
      run(rounds_.forward);
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
        run(rounds_.forward);
      }
      bring(plan_.dy, body_.result_grad);
      run(rounds_.input_grad);
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
        run(rounds_.forward);
        bring(plan_.dy, body_.result_grad);
        run(rounds_.input_grad);
      }
      run(is_first_ ? rounds_.weight_grad : rounds_.more_weight_grad);
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
    std::byte* const there = rounds_.addresses[static_cast<size_t>(base_of(value))];
    STRATA_CHECK(there != nullptr, "[experts] {} lies nowhere", body_.graph.value(value).name);
    return there;
  }
  template <typename T>
  T* data(ValueId value) const {
    return reinterpret_cast<T*>(address(value));
  }

  // Where the values of the body lie in the first round, or in all others.
  void find_addresses() {
    rounds_.addresses[static_cast<size_t>(kBodyScratch)] = scratch_;
    for (size_t value = 0; value < plan_.where.size(); ++value) {
      const BodyValue& where = plan_.where[value];
      const int operand = is_first_ ? where.first_round : where.later_rounds;
      rounds_.addresses[static_cast<size_t>(base_of(static_cast<ValueId>(value)))] =
          operand >= 0         ? operands_[operand]
          : where.scratch >= 0 ? scratch_ + where.scratch
                               : nullptr;
    }
  }
  void run(CallList& calls) { calls.run_all(launch_, rounds_.addresses); }

  bool next_round(int64_t& begin, int64_t& end) {
    if (end >= attrs_.tokens) return false;
    begin = end;
    end = agreed_end(begin);
    is_first_ = false;
    find_addresses();
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
    exchange(launch_.peers.ranks, ends, ends + 1, sizeof(int64_t));
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
    if (plan_.hops.size() == 1) return launch_.peers.ranks;
    return &of == plan_.hops.data() ? launch_.peers.across : launch_.peers.within;
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

  // BodyValue the tokens [begin, end) of all ranks go.
  void find_way(int64_t begin, int64_t end) {
    begin_ = begin;
    *scratch<int64_t>(plan_.own_count_at) = end - begin;
    const int32_t rank = attrs_.ranks == 1 ? 0 : launch_.peers.ranks->rank();
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
  RoundsPlan plan = plan_rounds(request, table);
  const int64_t scratch = plan.scratch_bytes;
  BoundKernel kernel = bound(
      [](Launch& launch, void* held, std::byte* const* operands) {
        Run run(launch, instance_of<Rounds>(held), operands);
        switch (instance_of<Rounds>(held).plan.step) {
          case RoundsStep::kForward:
            return run.forward();
          case RoundsStep::kGradInput:
            return run.grad_input();
          case RoundsStep::kGradWeight:
            return run.grad_weight();
        }
      },
      std::move(plan), scratch);
  kernel.instantiate = instantiate<Rounds, RoundsPlan>;
  return kernel;
}

}  // namespace strata::device
