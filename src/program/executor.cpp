#include "program/executor.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "graph/reshard.h"
#include "program/collectives.h"

namespace strata::program {

Executor::Executor(const std::shared_ptr<const ProgramSet>& set, std::shared_ptr<device::Device> device)
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
  arena_ = device_->allocate(set_->arena_bytes);
  device_->begin_launches();
  size_t longest = 0, widest = 0;
  for (const Program& program : set_->programs) {
    row_copies_.emplace_back(program, ranks_);
    auto& lists = lists_.emplace_back(program.segments.size());
    for (size_t c = 0; c < program.segments.size(); ++c) {
      for (size_t s = 0; s < kSegments; ++s) {
        for (size_t v = 0; v < kVariants; ++v) {
          const std::vector<Instruction>& instructions = program.segments[c][s][v];
          make_list(program, instructions, lists[c][s][v]);
          longest = std::max(longest, instructions.size());
          for (const Instruction& i : instructions) widest = std::max<size_t>(widest, i.operand_count);
        }
      }
    }
  }
  stopwatch_ = device_->stopwatch(2 * longest + 1);
  timed_ = !device_->is_asynchronous();
  updated_ = device_->make_point();
  updated_->mark();
  find_captured();
  begins_.resize(longest);
  buffers_.reserve(widest);
  for (size_t i = 0; i < set_->programs.size(); ++i) run(i, {Segment::kSetup});
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

// The last earlier instruction on the communication queue that must be done when this one of it starts; -1:
// none. The queue's order separates consecutive instructions of one device; groups of ranks are separate
// queues. A wait for the last of them waits for all before it.
int32_t last_before(const Program& program, const std::vector<Instruction>& list, size_t index) {
  if (list[index].queue != graph::Queue::kCommunication) return -1;
  const auto mine = touched_by(program, list[index]);
  for (size_t i = index; i-- > 0;) {
    if (list[i].queue == graph::Queue::kCommunication && conflict(mine, touched_by(program, list[i])))
      return static_cast<int32_t>(i);
  }
  return -1;
}

}  // namespace

namespace {

// As users know it: the op, and the first value that it computes.
std::string name_in_errors(const Program& program, const Instruction& instruction) {
  const graph::Node& node = program.node_of(instruction);
  std::string name(node.op->name);
  for (const graph::ValueId output : node.outputs)
    if (output != graph::kNone) return name + " of " + program.graph.value(output).name;
  return name;
}

}  // namespace

void Executor::make_list(const Program& program, const std::vector<Instruction>& instructions, List& list) {
  list.timings.resize(instructions.size());
  list.exchanges.resize(instructions.size());
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
    list.peers.push_back(peers_of(program, instruction));
    if (device_->is_asynchronous()) list.names.push_back(name_in_errors(program, instruction));
    const bool has_kernel = instruction.run != nullptr;
    if (!has_kernel) list.exchanges[i] = make_exchange(program, instruction);
    list.after.push_back(last_before(program, instructions, i));
    list.calls.add(instruction.run,
                   has_kernel ? instances_.of(instruction.plan, instruction.instantiate) : nullptr,
                   program.operands_of(instruction), instruction.finish);
    const int32_t loop = program.node_of(instruction).loop;
    if (loop == graph::kNone) continue;
    const bool begins = i == 0 || program.node_of(instructions[i - 1]).loop != loop;
    if (begins) {
      const graph::ValueId condition = program.graph.condition_of(loop);
      list.loops.push_back({i, i, program.places[static_cast<size_t>(condition)].at});
    }
    list.loops.back().end = i + 1;
  }
}

device::Peers Executor::peers_of(const Program& program, const Instruction& instruction) const {
  const graph::Node& node = program.node_of(instruction);
  if (node.op->ranks == nullptr) return {};
  const graph::OpRanks ranks = node.op->ranks({program.graph, node});
  if (ranks.axes.empty()) return {};
  device::Peers peers{.ranks = &ranks_.over(ranks.axes)};
  if (ranks.node_ranks > 0) {
    peers.across = &ranks_.across(ranks.axes, ranks.node_ranks);
    peers.within = &ranks_.within(ranks.axes, ranks.node_ranks);
  }
  for (comm::Communicator* group : {peers.ranks, peers.across, peers.within})
    if (group != nullptr) group->reserve_rows(ranks.most_bytes, ranks.most_bytes);
  return peers;
}

Executor::Exchange Executor::make_exchange(const Program& program, const Instruction& instruction) const {
  Exchange exchange;
  const graph::Node& node = program.node_of(instruction);
  const auto& attrs = node.attrs.as<graph::ReshardAttrs>();
  exchange.group = attrs.among.empty() ? &ranks_.along(attrs.axis) : &ranks_.among(attrs.among);
  exchange.adds = (instruction.adds & 1U) != 0;
  exchange.transfers = node.inputs.size();
  exchange.prepared = exchange.group->prepare(
      operation_of(program.graph, node, exchange.group->rank(), set_->options.reduce_dtype));
  return exchange;
}

void Executor::start(Running& running, size_t index) {
  List& list = running.list;
  const Program& program = set_->programs[running.program];
  if (list.after[index] >= 0) underway_.wait_through(static_cast<size_t>(list.after[index]));
  for (const int32_t other : program.waits_of(running.instructions[index]))
    underway_.wait_through(static_cast<size_t>(other));
  if (list.exchanges[index])
    return start_on_group(list, index, Started::What::kInstruction, running.addresses);
  underway_.wait_for_instance(list.calls.state(index));
  running.launch.peers = list.peers[index];
  list.calls.start(index, running.launch, running.addresses);
  underway_.add({.kernels = &list.calls, .timing = &list.timings[index], .index = index});
}

void Executor::start_early(size_t index, const Early& early, const Addresses& addresses) {
  if (early.after >= 0) underway_.wait_through(static_cast<size_t>(early.after));
  start_on_group(list_of(index, {Segment::kUpdate}), static_cast<size_t>(early.instruction),
                 Started::What::kEarly, addresses);
}

void Executor::start_on_group(List& list, size_t index, Started::What what, const Addresses& addresses) {
  const Exchange& exchange = *list.exchanges[index];
  std::byte* const* const at = list.calls.pointers(index, addresses);
  buffers_.clear();
  for (size_t i = 0; i < exchange.transfers; ++i)
    buffers_.push_back({at[i], at[exchange.transfers + i], exchange.adds});
  underway_.add({.what = what,
                 .group = exchange.group,
                 .ticket = exchange.group->start(*exchange.prepared, buffers_),
                 .timing = &list.timings[index],
                 .index = index});
}

Executor::Offsets Executor::offsets_of(size_t index, const Action& action) const {
  const Program& program = set_->programs[index];
  Offsets offsets{};
  offsets[static_cast<size_t>(kInBatch)] = set_->batch_offset + action.micro_batch * program.batch_bytes;
  for (size_t i = 0; i < program.pools.size(); ++i)
    offsets[static_cast<size_t>(base_of_pool(i))] = program.pools[i].offset_for(action);
  return offsets;
}

Executor::Addresses Executor::addresses_of(size_t index, const Action& action) const {
  const Offsets offsets = offsets_of(index, action);
  Addresses addresses{};  // Base::kAbsent keeps nullptr
  for (auto base = static_cast<size_t>(kInArena); base < kBases; ++base)
    addresses[base] = arena_->address() + offsets[base];
  return addresses;
}

Executor::List& Executor::list_of(size_t index, const Action& action) {
  return Program::list_at(lists_[index], {action.segment, action.chunk}, action.accumulates);
}

void Executor::run(size_t index, const Action& action, bool update_follows) {
  using enum Started::What;
  device::Launch launch = device_->begin_launches();
  const Program& program = set_->programs[index];
  STRATA_CHECK(action.micro_batch < program.request.micro_batches, "{} of {} micro-batches", str(action),
               program.request.micro_batches);
  STRATA_CHECK(action.chunk < program.chunks(), "{} of {} chunks", str(action), program.chunks());
  STRATA_CHECK(action.segment == Segment::kUpdate || !underway_.has(kEarly), "{} runs where the update must",
               str(action));
  const std::vector<Instruction>& instructions = program.list_of(action);
  List& list = list_of(index, action);
  const bool is_last =
      update_follows && program.before_update() != nullptr && action == *program.before_update();
  const Addresses addresses = addresses_of(index, action);
  Running running{index,
                  action,
                  instructions,
                  list,
                  addresses,
                  launch,
                  is_last ? program.early.begin() : program.early.end(),
                  program.early.end()};
  if (!keeps_capture_) has_capture_ = false;
  size_t at = 0;
  for (const Loop& loop : list.loops) {
    run_range(running, at, loop.begin);
    run_loop(running, loop);
    at = loop.end;
  }
  run_range(running, at, instructions.size());
  underway_.wait_for(kInstruction);
  if (action.segment == Segment::kUpdate) updated_->mark();
}

bool Executor::goes_on(const Running& running, const Loop& loop) const {
  const std::byte* const base = running.addresses[static_cast<size_t>(loop.condition.base)];
  int32_t condition = 0;
  device_->download(*arena_, base - arena_->address() + loop.condition.offset, &condition, sizeof condition);
  return condition != 0;
}

void Executor::run_loop(Running& running, const Loop& loop) {
  while (goes_on(running, loop)) {
    // Work that overlaps a pass belongs to it (find_waits).
    underway_.wait_for(Started::What::kInstruction);
    run_range(running, loop.begin, loop.end);
    underway_.wait_for(Started::What::kInstruction);
  }
}

void Executor::run_range(Running& running, size_t begin, size_t end) {
  using enum Started::What;
  if (begin == end) return;
  const auto& [index, action, instructions, list, addresses, launch, early, early_end] = running;
  const Program& program = set_->programs[index];
  // Mark i is the end of the instruction before i; mark n + 1 + i where i has waited before it began.
  const size_t after_waits = instructions.size() + 1;
  const bool timed = timed_ || observer_ != nullptr;
  if (timed) stopwatch_->mark(begin);
  for (size_t i = begin; i < end; ++i) {
    const Instruction& instruction = instructions[i];
    begins_[i] = i;
    for (; running.early != early_end && static_cast<size_t>(running.early->before) <= i; ++running.early)
      start_early(index, *running.early, addresses);
    if (instruction.queue == graph::Queue::kCommunication) {
      const bool has_started = action.segment == Segment::kUpdate && underway_.take_early(i);
      if (!has_started) start(running, i);
      if (observer_ != nullptr && observer_->wants_results()) [[unlikely]]
        underway_.wait_for(kInstruction);
    } else {
      if (instruction.wait_count > 0 && !underway_.empty()) {
        for (const int32_t other : program.waits_of(instruction))
          underway_.wait_through(static_cast<size_t>(other));
        begins_[i] = after_waits + i;
        if (timed) stopwatch_->mark(begins_[i]);
      }
      running.launch.peers = list.peers[i];
      if (!list.names.empty()) running.launch.instruction = list.names[i].c_str();
      list.calls.run(i, running.launch, addresses);
    }
    if (timed) stopwatch_->mark(i + 1);
    if (observer_ != nullptr) [[unlikely]]
      observer_->instruction(index, action, i, stopwatch_->at(begins_[i]), stopwatch_->at(i + 1));
  }
  if (!timed_) return;
  for (size_t i = begin; i < end; ++i) {
    ++list.timings[i].calls;
    list.timings[i].seconds += stopwatch_->at(i + 1) - stopwatch_->at(begins_[i]);
  }
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
  underway_.wait_for([&](const Started& one) {
    if (one.what != Started::What::kMessage) return false;
    if (one.program != index) return true;
    const Message& message = program.messages[one.index];
    if (!message.sends) return message.at == here && one.micro_batch == action.micro_batch;
    // An action's results share its position in the pools.
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
  const Addresses addresses = addresses_of(index, action);
  comm::Communicator& group = ranks_.pipeline();
  for (const graph::ValueId value : message.values) {
    const Place& place = program.places[static_cast<size_t>(value)];
    std::byte* const at = addresses[static_cast<size_t>(place.at.base)] + place.at.offset;
    underway_.add({.what = Started::What::kMessage,
                   .group = &group,
                   .ticket = message.sends ? group.send(message.peer, at, place.bytes)
                                           : group.receive(message.peer, at, place.bytes),
                   .index = number,
                   .program = index,
                   .micro_batch = action.micro_batch,
                   .slot = program.pools[message.pool].slot(action)});
  }
}

void Executor::finish_messages() {
  underway_.wait_for(Started::What::kMessage);
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
  return offsets_of(index, action)[static_cast<size_t>(at.base)] + at.offset;
}

void Executor::download_operand(size_t index, const Action& action, const Instruction& instruction,
                                size_t operand, void* to, int64_t bytes, int64_t offset) const {
  const int64_t at = offset_of(index, action, instruction, operand, offset + bytes) + offset;
  device_->download(*arena_, at, to, bytes);
}

void Executor::upload_operand(size_t index, const Action& action, const Instruction& instruction,
                              size_t operand, const void* from, int64_t bytes, int64_t offset) const {
  const int64_t at = offset_of(index, action, instruction, operand, offset + bytes) + offset;
  device_->upload(*arena_, at, from, bytes);
}

namespace {

// Whether only updates and the host change values of a role, so that they may be read while micro-batches run.
bool changes_in_updates(graph::Role role) {
  return role == graph::Role::kParameter || role == graph::Role::kState;
}

}  // namespace

void Executor::find_captured() {
  if (!device_->is_asynchronous()) return;
  // Values of a role are next to each other.
  for (const graph::Role role : {graph::Role::kMetric, graph::Role::kStep}) {
    int64_t begin = set_->arena_bytes, end = 0;
    for (const Persistent& value : set_->persistent) {
      if (value.role != role) continue;
      begin = std::min(begin, value.offset);
      end = std::max(end, value.offset + value.bytes);
    }
    if (begin < end) captures_.push_back({begin, end, device_->make_capture(*arena_, begin, end - begin)});
  }
}

void Executor::capture() {
  for (const Captured& one : captures_) one.copy->take();
  has_capture_ = !captures_.empty();
}

void Executor::read(graph::Role role, int64_t offset, void* to, int64_t bytes) const {
  if (has_capture_) {
    for (const Captured& one : captures_) {
      if (offset < one.begin || offset + bytes > one.end) continue;
      std::memcpy(to, one.copy->content() + (offset - one.begin), static_cast<size_t>(bytes));
      return;
    }
  }
  if (changes_in_updates(role)) {
    device_->download_after(*updated_, *arena_, offset, to, bytes);
  } else {
    device_->download(*arena_, offset, to, bytes);
  }
}

void Executor::write(graph::Role role, int64_t offset, const void* from, int64_t bytes) const {
  if (!keeps_capture_) has_capture_ = false;
  device_->upload(*arena_, offset, from, bytes);
  if (changes_in_updates(role)) updated_->mark();
}

void Executor::upload(const Persistent& value, const void* from, int64_t bytes, int64_t offset) const {
  STRATA_CHECK(offset + bytes <= value.bytes, "bytes {} to {} of {}, which has {}", offset, offset + bytes,
               value.name, value.bytes);
  write(value.role, value.offset + offset, from, bytes);
}

void Executor::download(const Persistent& value, void* to, int64_t bytes, int64_t offset) const {
  STRATA_CHECK(offset + bytes <= value.bytes, "bytes {} to {} of {}, which has {}", offset, offset + bytes,
               value.name, value.bytes);
  read(value.role, value.offset + offset, to, bytes);
}

namespace {

// Offset of a value in the arena.
int64_t offset_of_persistent(const Program& program, graph::ValueId value, int64_t bytes) {
  STRATA_CHECK(value != graph::kNone, "the program has no such value");
  const Place& place = program.places[static_cast<size_t>(value)];
  STRATA_CHECK(place.at.base == kInArena && !graph::is_temporary(program.graph.value(value).role) &&
                   bytes <= place.bytes,
               "{} bytes of {}", bytes, program.graph.value(value).name);
  return place.at.offset;
}

}  // namespace

void Executor::upload(size_t index, graph::ValueId value, const void* from, int64_t bytes) const {
  write(program(index).graph.value(value).role, offset_of_persistent(program(index), value, bytes), from,
        bytes);
}

void Executor::download(size_t index, graph::ValueId value, void* to, int64_t bytes) const {
  read(program(index).graph.value(value).role, offset_of_persistent(program(index), value, bytes), to, bytes);
}

void Executor::upload(const std::string& name, const void* from, int64_t bytes, int64_t offset) const {
  upload(set_->at(name), from, bytes, offset);
}

void Executor::download(const std::string& name, void* to, int64_t bytes, int64_t offset) const {
  download(set_->at(name), to, bytes, offset);
}

std::vector<float> Executor::read_floats(const std::string& name) const {
  const Persistent& value = set_->at(name);
  std::vector<float> numbers(static_cast<size_t>(value.shape.elements()));
  if (value.dtype == DType::kF32) {
    download(value, numbers.data(), value.bytes, 0);
    return numbers;
  }
  std::vector<std::byte> stored(static_cast<size_t>(value.bytes));
  download(value, stored.data(), value.bytes, 0);
  convert(numbers.data(), DType::kF32, stored.data(), value.dtype, std::ssize(numbers));
  return numbers;
}

void Executor::write_floats(const std::string& name, std::span<const float> values, int64_t first) const {
  const Persistent& value = set_->at(name);
  const int64_t count = std::ssize(values), size = size_of(value.dtype);
  if (value.dtype == DType::kF32) return upload(value, values.data(), count * size, first * size);
  std::vector<std::byte> stored(static_cast<size_t>(count * size));
  convert(stored.data(), value.dtype, values.data(), DType::kF32, count);
  upload(value, stored.data(), count * size, first * size);
}

void Executor::upload_rows(size_t index, const BatchRows& batch, int64_t first, int64_t micro_batch) {
  row_copies_[index].copy(batch, first, [&](Column column, const int32_t* values, int64_t count) {
    upload_column(index, column, micro_batch, {values, static_cast<size_t>(count)});
  });
}

void Executor::upload_column(size_t index, Column column, int64_t micro_batch,
                             std::span<const int32_t> values) {
  if (!reads(index, column)) return;
  const Program& program = set_->programs[index];
  const Place& place = program.places[static_cast<size_t>(program.graph.column(column))];
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  STRATA_CHECK(micro_batch < program.request.micro_batches && bytes <= place.bytes,
               "{} bytes of {} for micro-batch {} of {}", bytes, info(column).name, micro_batch,
               program.request.micro_batches);
  device_->upload(*arena_, set_->batch_offset + micro_batch * program.batch_bytes + place.at.offset,
                  values.data(), bytes);
}

const std::vector<Timing>& Executor::timings(size_t program, const SegmentAt& segment,
                                             bool accumulates) const {
  return Program::list_at(lists_[program], segment, accumulates).timings;
}

void Executor::reset_timings() {
  for (auto& by_chunk : lists_) {
    for (auto& by_segment : by_chunk) {
      for (auto& variants : by_segment) {
        for (List& list : variants) std::fill(list.timings.begin(), list.timings.end(), Timing{});
      }
    }
  }
}

}  // namespace strata::program
