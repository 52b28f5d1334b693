#include "program/executor.h"

#include <algorithm>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"
#include "graph/reshard.h"
#include "program/collectives.h"

namespace strata::program {

Executor::Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device)
    : Executor(set, std::move(device), std::make_unique<const Ranks>(set->options)) {}

Executor::Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device,
                   std::unique_ptr<const Ranks> alone)
    : Executor(std::move(set), std::move(device), *alone) {
  alone_ = std::move(alone);
}

Executor::Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device,
                   const Ranks& ranks)
    : ranks_(ranks), set_(std::move(set)), device_(std::move(device)) {
  const hardware::DeviceSpec& planned = set_->options.target.spec;
  const hardware::DeviceSpec& here = device_->spec();
  STRATA_CHECK(planned.isa == here.isa && planned.library_bf16 == here.library_bf16 &&
                   planned.threads == here.threads &&
                   set_->options.target.bindings.data() == device_->target().bindings.data(),
               "the programs were compiled for {} with {} threads and cannot run on {} with {}",
               planned.isa.str(), planned.threads, here.isa.str(), here.threads);
  arena_ = device_->allocate(device::MemorySpace::kDevice, set_->arena_bytes);
  device_->begin_launches();
  instantiate();
  size_t widest = 0;
  for (const Program& program : set_->programs) {
    auto& by_chunk = timings_.emplace_back(program.segments.size());
    for (size_t c = 0; c < program.segments.size(); ++c) {
      for (size_t s = 0; s < kSegments; ++s) {
        for (size_t v = 0; v < kVariants; ++v) {
          by_chunk[c][s][v].resize(program.segments[c][s][v].size());
          for (const Instruction& i : program.segments[c][s][v])
            widest = std::max<size_t>(widest, i.operand_count);
        }
      }
    }
  }
  pointers_.resize(widest);
  buffers_.reserve(widest);
  running_.reserve(64);
  sailing_.reserve(64);
  for (const Program& program : set_->programs)
    early_.reserve(std::max(early_.capacity(), program.early.size()));
  for (size_t i = 0; i < set_->programs.size(); ++i) run(i, {Segment::kSetup});
}

void Executor::instantiate() {
  std::unordered_map<const void*, void*> made;  // of plans, which equal instructions share
  for (const Program& program : set_->programs) {
    auto& states = states_.emplace_back(program.segments.size());
    auto& groups = groups_.emplace_back(program.segments.size());
    const auto instantiate_list = [&](const std::vector<Instruction>& list, std::vector<void*>& of_list,
                                      std::vector<Groups>& groups_of_list) {
      for (size_t index = 0; index < list.size(); ++index) {
        const Instruction& i = list[index];
        groups_of_list.push_back(groups_of(program, i));
        if (i.queue == graph::Queue::kCommunication) {
          instances_.push_back(make_exchange(program, list, index));
          of_list.push_back(instances_.back().get());
          continue;
        }
        auto [state, is_new] = made.try_emplace(i.plan, const_cast<void*>(i.plan));
        if (is_new && i.instantiate != nullptr) {
          instances_.push_back(i.instantiate(i.plan));
          state->second = instances_.back().get();
        }
        of_list.push_back(state->second);
      }
    };
    for (size_t c = 0; c < program.segments.size(); ++c) {
      for (size_t s = 0; s < kSegments; ++s) {
        for (size_t v = 0; v < kVariants; ++v)
          instantiate_list(program.segments[c][s][v], states[c][s][v], groups[c][s][v]);
      }
    }
  }
}

namespace {

struct Touched {
  Operand at;
  int64_t bytes;
  bool writes;
};

std::vector<Touched> touched_by(const Program& program, const Instruction& instruction) {
  const graph::Node& node = program.node_of(instruction);
  std::vector<Touched> out;
  const Operand* operand = program.operands.data() + instruction.first_operand;
  for (const bool writes : {false, true}) {
    for (const graph::ValueId id : writes ? node.outputs : node.inputs) {
      if (id != graph::kNone) out.push_back({*operand, program.graph.value(id).bytes(), writes});
      ++operand;
    }
  }
  return out;
}

bool conflict(const std::vector<Touched>& a, const std::vector<Touched>& b) {
  for (const Touched& x : a) {
    for (const Touched& y : b) {
      if ((x.writes || y.writes) && x.at.base == y.at.base && x.at.offset < y.at.offset + y.bytes &&
          y.at.offset < x.at.offset + x.bytes)
        return true;
    }
  }
  return false;
}

}  // namespace

Executor::Groups Executor::groups_of(const Program& program, const Instruction& instruction) const {
  const graph::Node& node = program.node_of(instruction);
  if (node.op->ranks == nullptr) return {};
  const graph::OpRanks ranks = node.op->ranks({program.graph, node});
  if (ranks.axes.empty()) return {};
  Groups groups{.ranks = &ranks_.over(ranks.axes)};
  if (ranks.node_ranks > 0) {
    groups.across = &ranks_.across(ranks.axes, ranks.node_ranks);
    groups.within = &ranks_.within(ranks.axes, ranks.node_ranks);
  }
  for (comm::Communicator* group : {groups.ranks, groups.across, groups.within})
    if (group != nullptr) group->reserve_rows(ranks.most_bytes, ranks.most_bytes);
  return groups;
}

std::shared_ptr<void> Executor::make_exchange(const Program& program, const std::vector<Instruction>& list,
                                              size_t index) const {
  auto exchange = std::make_shared<Exchange>();
  const graph::Node& node = program.node_of(list[index]);
  const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
  exchange->group = attrs.among.empty() ? &ranks_.along(attrs.axis) : &ranks_.among(attrs.among);
  exchange->transfers = node.inputs.size();
  exchange->prepared = exchange->group->prepare(
      operation_of(program.graph, node, exchange->group->rank(), set_->options.reduce_dtype));
  // The queue's order keeps what is behind one another on one device apart; groups of ranks are queues of
  // their own. Whoever waits for the last of them waits for all before it.
  const auto mine = touched_by(program, list[index]);
  for (size_t i = index; i-- > 0 && exchange->behind.empty();) {
    if (list[i].queue == graph::Queue::kCommunication && conflict(mine, touched_by(program, list[i])))
      exchange->behind.push_back(i);
  }
  return exchange;
}

void Executor::start(const Program& program, const Instruction& instruction, size_t index,
                     const Exchange& exchange, std::vector<Timing>& timings) {
  for (const size_t other : exchange.behind) wait_for(other, timings);
  for (const int32_t other : program.waits_of(instruction)) wait_for(static_cast<size_t>(other), timings);
  running_.push_back({index, exchange.group, start_on_group(instruction, exchange)});
}

comm::Ticket Executor::start_on_group(const Instruction& instruction, const Exchange& exchange) {
  buffers_.clear();
  for (size_t i = 0; i < exchange.transfers; ++i)
    buffers_.push_back({pointers_[i], pointers_[exchange.transfers + i], (instruction.adds & 1U) != 0});
  return exchange.group->start(*exchange.prepared, buffers_);
}

void Executor::start_in_turn(const Program& program, const Instruction& instruction, size_t index,
                             const Exchange& exchange, std::vector<Timing>& timings) {
  const auto started = std::find_if(early_.begin(), early_.end(),
                                    [&](const Running& one) { return one.instruction == index; });
  if (started == early_.end()) return start(program, instruction, index, exchange, timings);
  running_.push_back(*started);
  early_.erase(started);
}

void Executor::start_early(size_t index, const Early& early,
                           const std::array<std::byte*, std::tuple_size_v<Bases>>& bases,
                           std::vector<Timing>& timings) {
  if (early.behind >= 0) wait_for(static_cast<size_t>(early.behind), timings);
  const Program& program = set_->programs[index];
  const auto update = static_cast<size_t>(Segment::kUpdate), at = static_cast<size_t>(early.instruction);
  const Instruction& instruction = program.segments[0][update][0][at];
  set_pointers(program, instruction, bases);
  const auto& exchange = *static_cast<const Exchange*>(states_[index][0][update][0][at]);
  early_.push_back({at, exchange.group, start_on_group(instruction, exchange)});
}

void Executor::wait_for(size_t instruction, std::vector<Timing>& timings) {
  // The plan counts on the queue's order: whoever waits for one waits for all that were started before it, on
  // whatever group of ranks.
  const auto end = std::find_if(running_.begin(), running_.end(),
                                [&](const Running& one) { return one.instruction > instruction; });
  for (auto one = running_.begin(); one != end; ++one) {
    const double begin = monotonic_seconds();
    one->group->wait(one->ticket);
    const double seconds = monotonic_seconds() - begin;
    timings[one->instruction].seconds += seconds;
    seconds_waited_ += seconds;
  }
  running_.erase(running_.begin(), end);
}

void Executor::wait_for_all(std::vector<Timing>& timings) {
  if (!running_.empty()) wait_for(running_.back().instruction, timings);
}

void Executor::set_pointers(const Program& program, const Instruction& instruction,
                            const std::array<std::byte*, std::tuple_size_v<Bases>>& bases) {
  const Operand* operand = program.operands.data() + instruction.first_operand;
  for (uint32_t o = 0; o < instruction.operand_count; ++o) {
    std::byte* const base = bases[static_cast<size_t>(operand[o].base)];
    pointers_[o] = base == nullptr ? nullptr : base + operand[o].offset;
  }
}

Executor::Bases Executor::bases_of(size_t index, const Action& action) const {
  const Program& program = set_->programs[index];
  Bases bases{};
  bases[static_cast<size_t>(Base::kBatch)] = set_->batch_offset + action.micro_batch * program.batch_bytes;
  for (size_t i = 0; i < program.pools.size(); ++i)
    bases[static_cast<size_t>(base_of_pool(i))] = program.pools[i].offset_for(action);
  return bases;
}

void Executor::run(size_t index, const Action& action, bool update_follows) {
  device::Launch launch = device_->begin_launches();
  const Program& program = set_->programs[index];
  STRATA_CHECK(action.micro_batch < program.request.micro_batches, "{} of {} micro-batches", str(action),
               program.request.micro_batches);
  STRATA_CHECK(action.chunk < program.chunks(), "{} of {} chunks", str(action), program.chunks());
  const auto chunk = static_cast<size_t>(action.chunk), segment = static_cast<size_t>(action.segment),
             variant = static_cast<size_t>(action.accumulates);
  const auto& instructions = program.segments[chunk][segment][variant];
  const auto& states = states_[index][chunk][segment][variant];
  const auto& groups = groups_[index][chunk][segment][variant];
  auto& timings = timings_[index][chunk][segment][variant];
  STRATA_CHECK(early_.empty() || action.segment == Segment::kUpdate, "{} runs where the update must",
               str(action));
  const bool is_last =
      update_follows && program.before_update() != nullptr && action == *program.before_update();
  auto early = is_last ? program.early.begin() : program.early.end();
  std::array<std::byte*, std::tuple_size_v<Bases>> bases{};  // kAbsent keeps nullptr
  const Bases offsets = bases_of(index, action);
  for (size_t i = static_cast<size_t>(Base::kArena); i < bases.size(); ++i)
    bases[i] = arena_->address() + offsets[i];
  double begin = monotonic_seconds();
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    const bool communicates = instruction.queue == graph::Queue::kCommunication;
    for (; early != program.early.end() && static_cast<size_t>(early->before) <= i; ++early)
      start_early(index, *early, bases, timings);
    if (!running_.empty() && !communicates) {
      for (const int32_t other : program.waits_of(instruction)) wait_for(static_cast<size_t>(other), timings);
      begin = monotonic_seconds();
    }
    set_pointers(program, instruction, bases);
    if (communicates) {
      const auto& exchange = *static_cast<const Exchange*>(states[i]);
      if (action.segment == Segment::kUpdate) {
        start_in_turn(program, instruction, i, exchange, timings);
      } else {
        start(program, instruction, i, exchange, timings);
      }
      if (observer_ != nullptr && observer_->wants_results()) [[unlikely]]
        wait_for_all(timings);
    } else {
      launch.ranks = groups[i].ranks;
      launch.across = groups[i].across;
      launch.within = groups[i].within;
      instruction.run(launch, states[i], pointers_.data());
    }
    const double end = monotonic_seconds();
    ++timings[i].calls;
    timings[i].seconds += end - begin;
    if (observer_ != nullptr) [[unlikely]]
      observer_->instruction(index, action, i, begin, end);
    begin = end;
  }
  wait_for_all(timings);
}

void Executor::run_script(size_t index) {
  for (size_t i = 0; i < program(index).script.size(); ++i) run_in_script(index, i, true);
}

void Executor::run_micro_batches(size_t index) {
  for (size_t i = 0; i < program(index).script.size(); ++i) {
    if (is_of_micro_batch(program(index).script[i].segment)) run_in_script(index, i);
  }
  finish_messages();
}

void Executor::run_in_script(size_t index, size_t at, bool update_follows, bool adds) {
  const Program& program = set_->programs[index];
  Action action = program.script[at];
  action.accumulates = action.accumulates || adds;
  if (program.messages.empty()) return run(index, action, update_follows);
  if (!is_of_micro_batch(action.segment)) {
    finish_messages();
    return run(index, action, update_follows);
  }
  const auto first = std::lower_bound(
      program.receives.begin(), program.receives.end(), at,
      [](const Receive& receive, size_t place) { return static_cast<size_t>(receive.before) < place; });
  for (auto receive = first; receive != program.receives.end() && static_cast<size_t>(receive->before) == at;
       ++receive) {
    const auto message = static_cast<size_t>(receive->message);
    const SegmentAt& reader = program.messages[message].at;
    start_message(index, message, {reader.segment, receive->micro_batch, false, reader.chunk});
  }
  const SegmentAt here{action.segment, action.chunk};
  wait_for_messages([&](const Sailing& one) {
    const Message& message = program.messages[one.message];
    if (one.program != index) return true;
    if (!message.sends) return message.at == here && one.micro_batch == action.micro_batch;
    // What this action makes lies where that does.
    return std::any_of(program.messages.begin(), program.messages.end(), [&](const Message& next) {
      return next.sends && next.at == here && next.pool == message.pool &&
             program.pools[next.pool].slot(action) == one.slot;
    });
  });
  run(index, action, update_follows);
  for (size_t i = 0; i < program.messages.size(); ++i) {
    if (program.messages[i].sends && program.messages[i].at == here) start_message(index, i, action);
  }
}

void Executor::start_message(size_t index, size_t number, const Action& action) {
  const Program& program = set_->programs[index];
  const Message& message = program.messages[number];
  const Bases offsets = bases_of(index, action);
  comm::Communicator& group = ranks_.pipeline();
  for (const graph::ValueId value : message.values) {
    const Place& place = program.places[static_cast<size_t>(value)];
    std::byte* const at = arena_->address() + offsets[static_cast<size_t>(place.at.base)] + place.at.offset;
    sailing_.push_back({index, number, action.micro_batch, program.pools[message.pool].slot(action),
                        message.sends ? group.send(message.peer, at, place.bytes)
                                      : group.receive(message.peer, at, place.bytes)});
  }
}

void Executor::wait_for_messages(FunctionRef<bool(const Sailing&)> wanted) {
  const double begin = monotonic_seconds();
  std::erase_if(sailing_, [&](const Sailing& one) {
    if (!wanted(one)) return false;
    ranks_.pipeline().wait(one.ticket);
    return true;
  });
  seconds_waited_ += monotonic_seconds() - begin;
}

void Executor::finish_messages() {
  if (!sailing_.empty()) wait_for_messages([](const Sailing&) { return true; });
}

int64_t Executor::offset_of(size_t index, const Action& action, const Instruction& instruction,
                            size_t operand, int64_t bytes) const {
  const graph::Graph& graph = program(index).graph;
  const graph::Node& node = program(index).node_of(instruction);
  const size_t inputs = node.inputs.size();
  STRATA_CHECK(operand < inputs + node.outputs.size(), "operand {} of {}", operand, node.op->name);
  const graph::ValueId id = operand < inputs ? node.inputs[operand] : node.outputs[operand - inputs];
  STRATA_CHECK(id != graph::kNone && bytes <= graph.value(id).bytes(), "{} bytes of operand {} of {}", bytes,
               operand, node.op->name);
  const Operand& at = program(index).operands[instruction.first_operand + operand];
  return bases_of(index, action)[static_cast<size_t>(at.base)] + at.offset;
}

void Executor::download_operand(size_t index, const Action& action, const Instruction& instruction,
                                size_t operand, void* to, int64_t bytes) const {
  device_->download(*arena_, offset_of(index, action, instruction, operand, bytes), to, bytes);
}

void Executor::upload(const Persistent& value, const void* from, int64_t bytes, int64_t offset) const {
  STRATA_CHECK(offset + bytes <= value.bytes, "bytes {} to {} of {}, which has {}", offset, offset + bytes,
               value.name, value.bytes);
  device_->upload(*arena_, value.offset + offset, from, bytes);
}

void Executor::download(const Persistent& value, void* to, int64_t bytes, int64_t offset) const {
  STRATA_CHECK(offset + bytes <= value.bytes, "bytes {} to {} of {}, which has {}", offset, offset + bytes,
               value.name, value.bytes);
  device_->download(*arena_, value.offset + offset, to, bytes);
}

void Executor::upload(const std::string& name, const void* from, int64_t bytes, int64_t offset) const {
  upload(set_->at(name), from, bytes, offset);
}

void Executor::download(const std::string& name, void* to, int64_t bytes, int64_t offset) const {
  download(set_->at(name), to, bytes, offset);
}

bool Executor::has_batch_input(size_t index, const std::string& name) const {
  const graph::ValueId id = program(index).graph.find_value(name);
  return id != graph::kNone && program(index).graph.value(id).role == graph::Role::kInput;
}

void Executor::upload_batch(size_t index, const std::string& name, int64_t micro_batch, const void* from,
                            int64_t bytes) {
  if (!has_batch_input(index, name)) return;
  const Program& program = set_->programs[index];
  const Place& place = program.places[static_cast<size_t>(program.graph.find_value(name))];
  STRATA_CHECK(micro_batch < program.request.micro_batches && bytes <= place.bytes,
               "{} bytes of {} for micro-batch {} of {}", bytes, name, micro_batch,
               program.request.micro_batches);
  device_->upload(*arena_, set_->batch_offset + micro_batch * program.batch_bytes + place.at.offset, from,
                  bytes);
}

const std::vector<Timing>& Executor::timings(size_t program, const SegmentAt& segment,
                                             bool accumulates) const {
  return timings_[program][static_cast<size_t>(segment.chunk)][static_cast<size_t>(segment.segment)]
                 [accumulates ? 1 : 0];
}

void Executor::reset_timings() {
  for (auto& by_chunk : timings_) {
    for (auto& by_segment : by_chunk) {
      for (auto& variants : by_segment) {
        for (auto& timings : variants) std::fill(timings.begin(), timings.end(), Timing{});
      }
    }
  }
}

}  // namespace strata::program
