#include "device/expert_dispatch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/plan.h"
#include "device/expert_routes.h"
#include "tensor/arena.h"

namespace strata::device {
namespace {

using ops::CombineRows;
using ops::CombineSlotGrads;
using ops::DispatchRows;
using ops::HopWay;
using ops::PlanDispatch;
using ops::Way;

// Places in a kernel's scratch.
class Scratch {
 public:
  int64_t take(int64_t bytes) { return std::exchange(bytes_, bytes_ + align_up(bytes, kBufferAlignment)); }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};
template <typename T>
T* in(std::byte* scratch, int64_t offset) {
  return reinterpret_cast<T*>(scratch + offset);
}

// State that all ops here share.
struct Routes {
  explicit Routes(const DispatchAttrs& of) : attrs(of), way(of) {}
  DispatchAttrs attrs;
  Way way;
};

// A way and the communicators along it. `Word`: const if it is only read.
template <typename Word>
class Path {
 public:
  Path(const Routes& routes, Word* words, Launch& launch)
      : attrs_(routes.attrs), way_(routes.way), words_(words), peers_(launch.peers) {
    STRATA_CHECK(attrs_.ranks == 1 || (peers_.ranks != nullptr && peers_.ranks->size() == attrs_.ranks),
                 "experts of {} ranks run without them", attrs_.ranks);
  }

  int64_t begin() const { return words_[Way::kBegin]; }
  int64_t end() const { return words_[Way::kEnd]; }
  int32_t rank() const { return attrs_.ranks == 1 ? 0 : peers_.ranks->rank(); }
  Word* at(int64_t word) const { return words_ + word; }
  const std::vector<HopWay>& hops() const { return way_.hops; }
  const HopWay& last() const { return way_.hops.back(); }
  bool is_last(const HopWay& of) const { return &of == &last(); }
  bool is_first(const HopWay& of) const { return &of == way_.hops.data(); }
  comm::Communicator* group(const HopWay& of) const {
    if (way_.hops.size() == 1) return peers_.ranks;
    return is_first(of) ? peers_.across : peers_.within;
  }
  Word* places() const { return at(way_.places); }

  SendListOf<Word> sends(const HopWay& of) const {
    return {at(of.entries), at(of.counts), at(of.back_begin), at(of.back_end), at(of.back)};
  }
  // Entries that are sent on a hop: a rank's own tokens, whose records may be absent, or arrivals of the
  // previous hop.
  Entries entries(const HopWay& of, const int32_t* own_records = nullptr) const {
    if (!is_first(of)) return arrived(way_.hops.front(), at(way_.hops.front().records));
    return {.records = own_records,
            .words = Hop::words_of(attrs_.k),
            .block = attrs_.tokens,
            .counts = at(Way::kTokens),
            .first = begin()};
  }
  Entries arrived(const HopWay& of, const int32_t* records) const {
    return {.records = records,
            .words = of.hop.words(),
            .blocks = of.hop.peers,
            .block = of.hop.rows,
            .counts = at(of.arrived_counts)};
  }
  // Rows on the sending side of a hop: those listed, or in the order of the blocks.
  comm::RowSet departing(const HopWay& of, int64_t peer, bool listed) const {
    const int64_t first = peer * of.hop.rows;
    return {listed ? at(of.entries) + first : nullptr, listed ? 0 : first, at(of.counts)[peer]};
  }
  // Rows on the receiving side: at their places after the last hop.
  comm::RowSet arriving(const HopWay& of, int64_t peer) const {
    const int64_t first = peer * of.hop.rows, count = at(of.arrived_counts)[peer];
    if (is_last(of)) return {places() + first, 0, count};
    return {nullptr, first, count};
  }

 private:
  const DispatchAttrs& attrs_;
  const Way& way_;
  Word* words_;
  Peers peers_;
};
using WayThere = Path<const int32_t>;

// What an exchange moves, by peer; kept, so that no call allocates.
class Rows {
 public:
  explicit Rows(const Routes& of) {
    sends.reserve(static_cast<size_t>(of.attrs.ranks));
    receives.reserve(static_cast<size_t>(of.attrs.ranks));
  }

  void start(int64_t peers) {
    sends.resize(static_cast<size_t>(peers));
    receives.resize(static_cast<size_t>(peers));
  }
  using Take = FunctionRef<void(std::span<const comm::RowSource>)>;
  void exchange(comm::Communicator* among, const void* send, void* receive, int64_t row_bytes,
                const Take* take = nullptr) {
    const comm::RowExchange rows{send, receive, row_bytes, sends, receives, take};
    if (sends.size() > 1) return among->exchange_rows(rows);
    comm::RowSet& to = receives[0];
    STRATA_CHECK(sends[0].count <= to.count, "[dispatch_rows] a rank's own rows exceed its capacity");
    const comm::RowSource own{static_cast<const std::byte*>(send), sends[0]};
    if (take != nullptr) return (*take)({&own, 1});
    comm::copy_rows(sends[0], static_cast<const std::byte*>(send), to, static_cast<std::byte*>(receive),
                    row_bytes, [] { return false; });
    to.count = sends[0].count;
  }
  // Returns the rows that arrived over a hop to their senders.
  void start_back(const WayThere& path, const HopWay& of) {
    start(of.hop.peers);
    for (int64_t peer = 0; peer < of.hop.peers; ++peer) {
      sends[static_cast<size_t>(peer)] = path.arriving(of, peer);
      receives[static_cast<size_t>(peer)] = path.departing(of, peer, false);
    }
  }

  std::vector<comm::RowSet> sends, receives;
};

// --- plan_dispatch

struct PlanOfDispatch : Routes {
  explicit PlanOfDispatch(const DispatchAttrs& of) : Routes(of) {
    own_records = scratch.take(attrs.tokens * Hop::words_of(attrs.k) * 4);
    by_token = scratch.take((attrs.tokens + 1) * 4);
    ends = scratch.take((attrs.ranks + 1) * 8);
    free_capacity = scratch.take(2 * attrs.ranks * 8);
    for (const HopWay& hop : way.hops) sent.push_back(scratch.take(hop.hop.all_rows() * hop.hop.words() * 4));
    last_records = scratch.take(way.hops.back().hop.all_rows() * way.hops.back().hop.words() * 4);
  }
  Scratch scratch;
  int64_t own_records, by_token, ends, free_capacity, last_records;
  std::vector<int64_t> sent;  // by hop
};

struct Planner {
  explicit Planner(const PlanOfDispatch& of) : plan(of), rows(of) {}

  // Up to where a pass that begins here can go on all ranks.
  int64_t agreed_end(const Operands<PlanDispatch>& at, int64_t begin) {
    const DispatchAttrs& attrs = plan.attrs;
    if (attrs.takes_any_routing()) return attrs.tokens;
    auto* const counts = in<int64_t>(at.scratch, plan.free_capacity);
    auto* const ends = in<int64_t>(at.scratch, plan.ends);  // this rank's, then all
    ends[0] = first_overflow(attrs, at.in.ids, begin, counts, counts + attrs.ranks);
    if (attrs.ranks == 1) return ends[0];
    rows.start(attrs.ranks);
    for (int64_t rank = 0; rank < attrs.ranks; ++rank) {
      rows.sends[static_cast<size_t>(rank)] = {nullptr, 0, 1};
      rows.receives[static_cast<size_t>(rank)] = {nullptr, rank, 1};
    }
    rows.exchange(at.launch.peers.ranks, ends, ends + 1, sizeof(int64_t));
    return *std::min_element(ends + 1, ends + 1 + attrs.ranks);
  }

  void run(const Operands<PlanDispatch>& at) {
    const DispatchAttrs& attrs = plan.attrs;
    const int64_t begin = at.in.begin != nullptr ? *at.in.begin : 0, end = agreed_end(at, begin);
    at.out.way[Way::kBegin] = static_cast<int32_t>(begin);
    at.out.way[Way::kEnd] = static_cast<int32_t>(end);
    at.out.way[Way::kTokens] = static_cast<int32_t>(end - begin);
    if (at.out.next != nullptr) *at.out.next = static_cast<int32_t>(end < attrs.tokens ? end : 0);
    const Path<int32_t> path(plan, at.out.way, at.launch);
    auto* const own = in<int32_t>(at.scratch, plan.own_records);
    write_own_records(attrs, path.rank(), at.in.ids, at.in.weights, begin, end, own);
    auto* const last_records = in<int32_t>(at.scratch, plan.last_records);
    for (size_t i = 0; i < path.hops().size(); ++i) {
      const HopWay& of = path.hops()[i];
      auto* const sent = in<int32_t>(at.scratch, plan.sent[i]);
      depart(of.hop, path.entries(of, own), path.sends(of), sent);
      rows.start(of.hop.peers);
      for (int64_t peer = 0; peer < of.hop.peers; ++peer) {
        rows.sends[static_cast<size_t>(peer)] = path.departing(of, peer, false);
        rows.receives[static_cast<size_t>(peer)] = {nullptr, peer * of.hop.rows, of.hop.rows};
      }
      rows.exchange(path.group(of), sent, path.is_last(of) ? last_records : path.at(of.records),
                    of.hop.words() * 4);
      for (int64_t peer = 0; peer < of.hop.peers; ++peer)
        path.at(of.arrived_counts)[peer] =
            static_cast<int32_t>(rows.receives[static_cast<size_t>(peer)].count);
    }
    const Entries arrived = path.arrived(path.last(), last_records);
    find_places(arrived, attrs.tokens, attrs.by_nodes() ? attrs.node_ranks : attrs.ranks,
                in<int32_t>(at.scratch, plan.by_token), path.places());
    list_slots(attrs, arrived, path.places(), at.out.offsets, at.out.ids, at.out.weights);
  }

  const PlanOfDispatch& plan;
  Rows rows;
};

// --- Rows there and back

struct PlanOfRows : Routes {
  PlanOfRows(const DispatchAttrs& of, const graph::Value& rows, const graph::Value* scales = nullptr)
      : Routes(of),
        width(rows.shape[1]),
        dtype(rows.dtype),
        code_bytes(width * size_of(dtype)),
        scale_bytes(scales == nullptr ? 0 : scales->shape[1] * size_of(scales->dtype)),
        row_bytes(code_bytes + scale_bytes) {
    if (way.hops.size() > 1) between = scratch.take(way.hops.front().hop.all_rows() * row_bytes);
    if (!has_records()) return;
    sent = scratch.take(attrs.tokens * row_bytes);
    arrived = scratch.take(attrs.rows() * row_bytes);
  }
  bool has_records() const { return scale_bytes > 0; }
  int64_t width;
  DType dtype;
  int64_t code_bytes, scale_bytes, row_bytes;  // a row without its scales, these, and both
  Scratch scratch;
  int64_t between = 0;            // two hops
  int64_t sent = 0, arrived = 0;  // records: a row's codes, then its scales
};

// Memory of codes and scales, row by row.
template <typename Byte>
struct CodedRows {
  Byte *codes, *scales;
};
void write_records(const PlanOfRows& plan, const CodedRows<const std::byte>& from, int64_t begin, int64_t end,
                   std::byte* records) {
  for (int64_t row = begin; row < end; ++row) {
    std::byte* const record = records + row * plan.row_bytes;
    std::memcpy(record, from.codes + row * plan.code_bytes, static_cast<size_t>(plan.code_bytes));
    std::memcpy(record + plan.code_bytes, from.scales + row * plan.scale_bytes,
                static_cast<size_t>(plan.scale_bytes));
  }
}
void read_records(const PlanOfRows& plan, const std::byte* records, int64_t rows,
                  const CodedRows<std::byte>& to) {
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* const record = records + row * plan.row_bytes;
    std::memcpy(to.codes + row * plan.code_bytes, record, static_cast<size_t>(plan.code_bytes));
    std::memcpy(to.scales + row * plan.scale_bytes, record + plan.code_bytes,
                static_cast<size_t>(plan.scale_bytes));
  }
}

// A single hop is only started, and ends with finish(); with two, each is carried out immediately.
class Mover {
 public:
  explicit Mover(const PlanOfRows& of) : plan_(of), rows_(of) {}

  void dispatch(const Operands<DispatchRows>& at) {
    const WayThere path(plan_, at.in.way, at.launch);
    int64_t used = 0;
    for (int64_t peer = 0; peer < path.last().hop.peers; ++peer)
      used += path.arriving(path.last(), peer).count;
    const auto clear = [&](std::byte* rows, int64_t bytes) {
      std::memset(rows + used * bytes, 0, static_cast<size_t>((plan_.attrs.rows() - used) * bytes));
    };
    clear(at.out.rows, plan_.code_bytes);
    const std::byte* from = at.in.x;
    std::byte* arrived = at.out.rows;
    if (plan_.has_records()) {
      clear(at.out.row_scales, plan_.scale_bytes);
      auto* const sent = in<std::byte>(at.scratch, plan_.sent);
      write_records(plan_, {at.in.x, at.in.scales}, path.begin(), path.end(), sent);
      from = sent;
      arrived = in<std::byte>(at.scratch, plan_.arrived);
      unread_ = {arrived, used, {at.out.rows, at.out.row_scales}};
    }
    for (const HopWay& of : path.hops()) {
      std::byte* const to = path.is_last(of) ? arrived : in<std::byte>(at.scratch, plan_.between);
      rows_.start(of.hop.peers);
      for (int64_t peer = 0; peer < of.hop.peers; ++peer) {
        rows_.sends[static_cast<size_t>(peer)] = path.departing(of, peer, true);
        rows_.receives[static_cast<size_t>(peer)] = path.arriving(of, peer);
      }
      move(path.group(of), from, to, nullptr);
      from = to;
    }
  }

  void combine(const Operands<CombineRows>& at) {
    STRATA_CHECK(at.in.others == nullptr || at.in.others == at.out.y,
                 "[combine_rows] the result does not replace the tokens of other passes");
    const WayThere path(plan_, at.in.way, at.launch);
    const std::byte* from = at.in.rows;
    for (size_t i = path.hops().size(); i-- > 0;) {
      const HopWay& of = path.hops()[i];
      std::byte* const to = i == 0 ? at.out.y : in<std::byte>(at.scratch, plan_.between);
      rows_.start_back(path, of);
      // Rows are read in place: only the sums are written.
      sum_.emplace(Sum{plan_, path, of, to});
      take_.emplace(*sum_);
      move(path.group(of), from, nullptr, &*take_);
      from = to;
    }
  }

  void finish() {
    if (group_ != nullptr) std::exchange(group_, nullptr)->finish_rows(ticket_);
    const Records records = std::exchange(unread_, {});
    if (records.rows > 0) read_records(plan_, records.from, records.rows, records.to);
  }

 private:
  // Adds up what has come back for each entry.
  struct Sum {
    const PlanOfRows& plan;
    WayThere path;
    const HopWay& of;
    std::byte* to;
    void operator()(std::span<const comm::RowSource> returned) const {
      add_returns(of.hop, path.entries(of), path.sends(of), plan.width, plan.dtype, returned, to);
    }
  };

  void move(comm::Communicator* among, const std::byte* from, std::byte* to, const Rows::Take* take) {
    if (rows_.sends.size() == 1 || plan_.way.hops.size() > 1)
      return rows_.exchange(among, from, to, plan_.row_bytes, take);
    exchange_.emplace(comm::RowExchange{from, to, plan_.row_bytes, rows_.sends, rows_.receives, take});
    ticket_ = among->start_rows(*exchange_);
    group_ = among;
  }

  // Records that arrive, to be taken apart when all have.
  struct Records {
    const std::byte* from = nullptr;
    int64_t rows = 0;
    CodedRows<std::byte> to = {};
  };

  const PlanOfRows& plan_;
  Rows rows_;
  Records unread_;
  // The exchange in flight.
  comm::Communicator* group_ = nullptr;
  comm::Ticket ticket_ = {};
  std::optional<comm::RowExchange> exchange_;
  std::optional<const Sum> sum_;
  std::optional<Rows::Take> take_;
};

// --- combine_slot_grads

struct PlanOfSlotGrads : Routes {
  explicit PlanOfSlotGrads(const DispatchAttrs& of) : Routes(of) {
    own_records = scratch.take(attrs.tokens * Hop::words_of(attrs.k) * 4);
    of_rows = scratch.take(attrs.rows() * attrs.hits() * 4);
    for (const HopWay& hop : way.hops) {
      returned.push_back(scratch.take(hop.hop.all_rows() * hop.hop.hits * 4));
      of_entries.push_back(scratch.take(hop.all_entries * hop.entry_slots * 4));
    }
  }
  Scratch scratch;
  int64_t own_records, of_rows;
  std::vector<int64_t> returned, of_entries;  // by hop
};

struct SlotGrads {
  explicit SlotGrads(const PlanOfSlotGrads& of) : plan(of), rows(of) {}

  void run(const Operands<CombineSlotGrads>& at) {
    STRATA_CHECK(at.in.others == nullptr || at.in.others == at.out.dweights,
                 "[combine_slot_grads] the result does not replace the tokens of other passes");
    const WayThere path(plan, at.in.way, at.launch);
    auto* const own = in<int32_t>(at.scratch, plan.own_records);
    write_own_records(plan.attrs, path.rank(), at.in.ids, nullptr, path.begin(), path.end(), own);
    auto* from = in<float>(at.scratch, plan.of_rows);
    write_weight_grads(plan.attrs, at.in.offsets, at.in.grads, from);
    for (size_t i = path.hops().size(); i-- > 0;) {
      const HopWay& of = path.hops()[i];
      auto* const returned = in<float>(at.scratch, plan.returned[i]);
      auto* const to = in<float>(at.scratch, plan.of_entries[i]);
      rows.start_back(path, of);
      rows.exchange(path.group(of), from, returned, of.hop.hits * 4);
      return_weight_grads(of.hop, path.entries(of, own), path.sends(of), returned, to, of.entry_slots);
      from = to;
    }
    place_weight_grads(plan.attrs, at.in.ids, path.begin(), path.end(), from, at.out.dweights);
  }

  const PlanOfSlotGrads& plan;
  Rows rows;
};

template <typename State, typename Op, typename Plan, typename Run>
BoundKernel with_state(const Bind<Op>& node, Plan plan, Run run) {
  const int64_t scratch = plan.scratch.bytes();
  return node.template kernel_with<State>(std::make_shared<const Plan>(std::move(plan)), run, scratch);
}

}  // namespace

BoundKernel bind_on_host(const Bind<PlanDispatch>& node) {
  return with_state<Planner>(node, PlanOfDispatch(node.attrs),
                             [](Planner& state, const Operands<PlanDispatch>& at) { state.run(at); });
}

BoundKernel bind_on_host(const Bind<DispatchRows>& node) {
  BoundKernel kernel =
      with_state<Mover>(node, PlanOfRows(node.attrs, *node.out.rows, node.in.scales.value),
                        [](Mover& state, const Operands<DispatchRows>& at) { state.dispatch(at); });
  kernel.finish = [](void* state) { static_cast<Mover*>(state)->finish(); };
  return kernel;
}

BoundKernel bind_on_host(const Bind<CombineRows>& node) {
  BoundKernel kernel =
      with_state<Mover>(node, PlanOfRows(node.attrs, *node.in.rows),
                        [](Mover& state, const Operands<CombineRows>& at) { state.combine(at); });
  kernel.finish = [](void* state) { static_cast<Mover*>(state)->finish(); };
  return kernel;
}

BoundKernel bind_on_host(const Bind<CombineSlotGrads>& node) {
  return with_state<SlotGrads>(node, PlanOfSlotGrads(node.attrs),
                               [](SlotGrads& state, const Operands<CombineSlotGrads>& at) { state.run(at); });
}

}  // namespace strata::device
