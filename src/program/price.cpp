#include "program/price.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "program/exchange.h"
#include "program/pipeline.h"
#include "program/predict.h"

namespace strata::program {
namespace {

using Queue = PriceObserver::Queue;

// What places of a pipeline know of each other.
class Meeting {
 public:
  explicit Meeting(size_t places) : arrivals_(places * places), places_(places) {}

  // Messages from one place to another, in the order in which they are sent and received.
  struct Arrival {
    double sent = 0, arrives = 0;
    size_t action = 0;  // of the sender
  };
  std::vector<Arrival>& messages(int32_t from, int32_t to) {
    return arrivals_[static_cast<size_t>(from) * places_ + static_cast<size_t>(to)];
  }

  // An exchange between places begins when all have come to it; nullopt: not yet. Each place calls with its number of
  // exchanges among the same ones so far.
  std::optional<double> begin_of(const std::vector<int32_t>& among, size_t number, int32_t place,
                                 double ready) {
    std::map<int32_t, double>& came = sums_[{among, number}];
    came.try_emplace(place, ready);
    if (came.size() < among.size()) return std::nullopt;
    double begin = 0;
    for (const auto& [who, when] : came) begin = std::max(begin, when);
    return begin;
  }

 private:
  std::vector<std::vector<Arrival>> arrivals_;
  std::map<std::pair<std::vector<int32_t>, size_t>, std::map<int32_t, double>> sums_;
  size_t places_;
};

// One place, which runs its actions in order.
class PlaceClock {
 public:
  PlaceClock(const ProgramSet& set, size_t index, int32_t place, const hardware::Machine& machine,
             Meeting& meeting, PriceObserver* observer)
      : program_(set.programs[index]),
        machine_(machine),
        meeting_(meeting),
        observer_(observer),
        starts_alone_(machine.device.launch_seconds > 0),
        costs_(program_, machine, set.options.reduce_dtype) {
    rank_.place = place;
    all_places_.resize(static_cast<size_t>(program_.graph.mesh().size(graph::Axis::kPipeline)));
    std::iota(all_places_.begin(), all_places_.end(), 0);
    rank_.actions.resize(program_.script.size());
    for (size_t i = 0; i < program_.script.size(); ++i) {
      if (is_of_micro_batch(program_.script[i].segment)) last_micro_batch_ = i;
    }
    std::map<int32_t, size_t> received;  // by peer: messages so far
    for (const Receive& receive : program_.receives) {
      const Message& message = program_.messages[static_cast<size_t>(receive.message)];
      order_of_[{receive.message, receive.micro_batch}] = received[message.peer]++;
    }
  }

  bool done() const { return action_ == program_.script.size(); }
  // Works until it must wait for another place; returns whether anything was done.
  bool advance() {
    const auto before = std::pair(action_, instruction_);
    const size_t resolved = resolved_;
    resolve();
    while (!done() && run_action()) {
      ++action_;
      instruction_ = 0;
      has_begun_ = false;
    }
    if (done()) rank_.end = std::max(compute_, messages_);
    return std::pair(action_, instruction_) != before || resolved_ != resolved;
  }
  PricedRank take() { return std::move(rank_); }

 private:
  static constexpr int32_t kExperts = static_cast<int32_t>(graph::kAxes);
  static constexpr size_t kNoExchange = static_cast<size_t>(-1);
  // When an instruction of the compute queue is done; or which exchange it has started.
  struct Done {
    double at = 0;
    size_t exchange = kNoExchange;
  };
  // Exchanges of one group of places, which are carried out in order; those of other groups do not wait for them.
  struct Line {
    double free = 0;
    std::vector<size_t> exchanges;
    size_t ended = 0;  // the first of them
  };
  struct Exchange {
    double ready = 0, seconds = 0;
    int32_t axis = 0;              // or kExperts
    size_t action = 0, index = 0;  // of its instruction
    double end = -1;               // below 0: not known yet
  };

  const Action& action() const { return program_.script[action_]; }
  const std::vector<Instruction>& list() const { return program_.list_of(action()); }
  const std::vector<Expected>& expected() const {
    return costs_.kinds()[costs_.kind_of(action_)].instructions;
  }

  void expose(int32_t axis, double seconds) {
    if (axis == kExperts) {
      rank_.exposed_experts += seconds;
    } else {
      rank_.exposed[static_cast<graph::Axis>(axis)] += seconds;
    }
  }

  // Whether all messages that the action reads have been sent; waits for them.
  bool receive_messages() {
    double arrives = 0, transfer = 0;
    PricedRank::Span& span = rank_.actions[action_];
    for (size_t i = 0; i < program_.messages.size(); ++i) {
      const Message& message = program_.messages[i];
      if (message.sends || message.at != SegmentAt{action().segment, action().chunk}) continue;
      const size_t number = order_of_.at({static_cast<int32_t>(i), action().micro_batch});
      const auto& sent = meeting_.messages(message.peer, rank_.place);
      if (number >= sent.size()) return false;
      if (sent[number].arrives <= arrives) continue;
      arrives = sent[number].arrives;
      span.sender = message.peer;
      span.sent_by = sent[number].action;
      transfer = arrives - sent[number].sent;
    }
    if (arrives <= compute_) {
      span.sender = -1;
      return true;
    }
    const double wait = arrives - compute_;
    const double exposed = std::min(wait, transfer);
    rank_.exposed[graph::Axis::kPipeline] += exposed;
    rank_.bubble += wait - exposed;
    compute_ = arrives;
    return true;
  }

  void send_messages() {
    for (size_t i = 0; i < program_.messages.size(); ++i) {
      const Message& message = program_.messages[i];
      if (!message.sends || message.at != SegmentAt{action().segment, action().chunk}) continue;
      hardware::Group way = group_along(program_.graph.mesh(), graph::Axis::kPipeline);
      way = {2, way.stride * std::abs(message.peer - rank_.place)};
      const auto seconds_of = [&](double bytes) {
        return hardware::exchange_seconds(machine_.links, hardware::Exchange::kSend, way, bytes);
      };
      double transfer = 0;
      for (const graph::ValueId value : message.values)
        transfer += seconds_of(static_cast<double>(program_.graph.value(value).bytes())) - seconds_of(1);
      const double begin = std::max(compute_, messages_), arrives = begin + seconds_of(1) + transfer;
      messages_ = begin + transfer;  // the next one need not wait until this one has arrived
      note(Queue::kMessages, i, begin, arrives);
      meeting_.messages(rank_.place, message.peer).push_back({begin, arrives, action_});
      slow(way, arrives - begin, static_cast<int32_t>(graph::Axis::kPipeline));
    }
  }

  // What an exchange takes from the device's compute.
  void slow(const hardware::Group& group, double seconds, int32_t axis) {
    rank_.communicating += seconds;
    const hardware::LinkLevel* const level = hardware::outermost(machine_.links, group);
    if (level == nullptr) return;
    const double lost = seconds * level->compute_share.value;
    compute_ += lost;
    expose(axis, lost);
  }

  void note(Queue queue, size_t index, double begin, double end) {
    if (observer_ != nullptr && end > begin) observer_->work(rank_.place, queue, action_, index, begin, end);
  }

  // Determines the ends of exchanges if those before them have one and all places have come to them.
  void resolve() {
    for (auto& [among, line] : lines_) {
      for (; line.ended < line.exchanges.size(); ++line.ended) {
        Exchange& next = exchanges_[line.exchanges[line.ended]];
        double begin = std::max(next.ready, line.free);
        if (!among.empty()) {
          const auto met = meeting_.begin_of(among, line.ended, rank_.place, begin);
          if (!met) break;
          begin = *met;
        }
        next.end = line.free = begin + next.seconds;
        ++resolved_;
        if (observer_ != nullptr && next.seconds > 0)
          observer_->work(rank_.place, Queue::kCommunication, next.action, next.index, begin, next.end);
      }
    }
  }

  // Compute waits for an exchange; false: it has no end yet.
  bool wait_for(const Done& done) {
    if (done.exchange == kNoExchange) return true;
    const Exchange& exchange = exchanges_[done.exchange];
    if (exchange.end < 0) resolve();
    if (exchange.end < 0) return false;
    if (exchange.end <= compute_) return true;
    // Places may come late; ranks of a place do not.
    const double wait = exchange.end - compute_;
    const bool is_of_places = exchange.axis == static_cast<int32_t>(graph::Axis::kPipeline);
    const double exposed = is_of_places ? std::min(wait, exchange.seconds) : wait;
    expose(exchange.axis, exposed);
    rank_.bubble += wait - exposed;
    compute_ = exchange.end;
    return true;
  }

  // Host threads start exchanges when they come to them; a device does as soon as their inputs are there.
  double ready_for(const Instruction& instruction) const {
    if (!starts_alone_) return compute_;
    double ready = compute_at_start_;
    for (const int32_t other : program_.waits_of(instruction))
      ready = std::max(ready, done_[static_cast<size_t>(other)].at);
    return ready;
  }

  // Puts an instruction into the communication queue; its inputs are there at `ready`.
  Done start_exchange(size_t action, size_t index, const Instruction& instruction, const Expected& expected,
                      double ready) {
    const graph::Node& node = program_.node_of(instruction);
    Exchange exchange{
        .ready = ready, .seconds = expected.seconds, .axis = kExperts, .action = action, .index = index};
    std::vector<int32_t> among;  // empty: ranks that are alike
    hardware::Group group;
    if (node.op->has_kernel()) {
      group = group_over(program_.graph.mesh(), node.op->ranks({program_.graph, node}).axes);
    } else {
      const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
      group = group_along(program_.graph.mesh(), attrs.axis);
      exchange.axis = static_cast<int32_t>(attrs.axis);
      among = attrs.axis == graph::Axis::kPipeline && attrs.among.empty() ? all_places_ : attrs.among;
    }
    lines_[among].exchanges.push_back(exchanges_.size());
    exchanges_.push_back(exchange);
    slow(group, expected.seconds, exchange.axis);
    return {.exchange = exchanges_.size() - 1};
  }

  // The update's exchanges that start before an instruction of the last micro-batch.
  void start_early(size_t before) {
    const size_t update = action_ + 1;
    const std::vector<Instruction>& list = program_.list_of(program_.script[update]);
    const auto& costs = costs_.kinds()[costs_.kind_of(update)].instructions;
    for (; early_ < program_.early.size(); ++early_) {
      const Early& early = program_.early[early_];
      if (static_cast<size_t>(early.before) > before) break;
      const auto at = static_cast<size_t>(early.instruction);
      // Its inputs come from the instructions before it.
      early_done_[at] = start_exchange(update, at, list[at], costs[at], compute_);
    }
  }

  // Whether it is done; false: it must wait for another place.
  bool run_action() {
    const std::vector<Instruction>& instructions = list();
    const std::vector<Expected>& costs = expected();
    if (!has_begun_) {
      if (is_of_micro_batch(action().segment)) {
        if (!receive_messages()) return false;
      }
      has_begun_ = true;
      rank_.actions[action_].begin = compute_at_start_ = compute_;
      done_.assign(instructions.size(), {});
    }
    const bool precedes_update = program_.before_update() == &action();
    for (; instruction_ < instructions.size(); ++instruction_) {
      const size_t i = instruction_;
      const Instruction& instruction = instructions[i];
      if (precedes_update) start_early(i);
      if (!program_.is_expected(instruction)) {
        done_[i].at = compute_;
        continue;
      }
      if (instruction.queue == graph::Queue::kCommunication) {
        const auto early = action().segment == Segment::kUpdate ? early_done_.find(i) : early_done_.end();
        done_[i] = early != early_done_.end()
                       ? early->second
                       : start_exchange(action_, i, instruction, costs[i], ready_for(instruction));
        continue;
      }
      for (const int32_t other : program_.waits_of(instruction))
        if (!wait_for(done_[static_cast<size_t>(other)])) return false;
      const double begin = compute_;
      compute_ += costs[i].seconds;
      done_[i].at = compute_;
      rank_.computing += costs[i].seconds;
      note(Queue::kCompute, i, begin, compute_);
    }
    // A segment ends with its exchanges done.
    for (const Done& one : done_)
      if (!wait_for(one)) return false;
    rank_.actions[action_].end = compute_;
    if (is_of_micro_batch(action().segment)) send_messages();
    if (action_ == last_micro_batch_ && !program_.messages.empty()) compute_ = std::max(compute_, messages_);
    return true;
  }

  const Program& program_;
  const hardware::Machine& machine_;
  Meeting& meeting_;
  PriceObserver* observer_;
  bool starts_alone_;  // exchanges do not wait for the host
  ActionCosts costs_;
  size_t last_micro_batch_ = 0;
  std::map<std::pair<int32_t, int32_t>, size_t>
      order_of_;  // of receives from a peer, by message and micro-batch
  std::vector<int32_t> all_places_;
  std::map<std::vector<int32_t>, Line> lines_;  // by places
  PricedRank rank_;

  double compute_ = 0, messages_ = 0;  // when they are free
  double compute_at_start_ = 0;        // of the action
  size_t action_ = 0, instruction_ = 0, early_ = 0;
  bool has_begun_ = false;
  std::vector<Exchange> exchanges_;    // of the step
  size_t resolved_ = 0;                // how many have an end
  std::vector<Done> done_;             // by instruction of the action
  std::map<size_t, Done> early_done_;  // by instruction of the update
};

}  // namespace

double StepPrice::bubble_share() const {
  double idle = 0;
  for (const PricedRank& rank : ranks) idle += rank.bubble + seconds - rank.end;
  return seconds > 0 ? idle / (seconds * static_cast<double>(ranks.size())) : 0;
}

StepPrice price_step(std::span<const std::shared_ptr<const ProgramSet>> places, size_t index,
                     const hardware::Machine& machine, PriceObserver* observer) {
  Meeting meeting(places.size());
  std::vector<PlaceClock> clocks;
  clocks.reserve(places.size());
  for (size_t i = 0; i < places.size(); ++i)
    clocks.emplace_back(*places[i], index, static_cast<int32_t>(i), machine, meeting, observer);
  for (bool waits = true; waits;) {
    waits = false;
    bool moved = false;
    for (PlaceClock& clock : clocks) {
      moved = clock.advance() || moved;
      waits = waits || !clock.done();
    }
    STRATA_CHECK(moved || !waits, "the places of a pipeline wait for each other");
  }
  StepPrice price;
  for (PlaceClock& clock : clocks) {
    price.ranks.push_back(clock.take());
    price.seconds = std::max(price.seconds, price.ranks.back().end);
  }
  return price;
}

}  // namespace strata::program
