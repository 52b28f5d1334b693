#include "program/executor.h"

#include <algorithm>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"

namespace strata::program {

Executor::Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device)
    : set_(std::move(set)), device_(std::move(device)) {
  const hardware::DeviceSpec& planned = set_->options.target.spec;
  const hardware::DeviceSpec& here = device_->spec();
  STRATA_CHECK(planned.isa == here.isa && planned.threads == here.threads &&
                   set_->options.target.bindings.data() == device_->target().bindings.data(),
               "the programs were compiled for {} with {} threads and cannot run on {} with {}",
               planned.isa.str(), planned.threads, here.isa.str(), here.threads);
  arena_ = device_->allocate(device::MemorySpace::kDevice, set_->arena_bytes);
  device_->begin_launches();
  instantiate();
  size_t widest = 0;
  for (const Program& program : set_->programs) {
    auto& by_segment = timings_.emplace_back();
    for (size_t s = 0; s < kSegments; ++s) {
      for (size_t v = 0; v < kVariants; ++v) {
        by_segment[s][v].resize(program.segments[s][v].size());
        for (const Instruction& i : program.segments[s][v])
          widest = std::max<size_t>(widest, i.operand_count);
      }
    }
  }
  pointers_.resize(widest);
  for (size_t i = 0; i < set_->programs.size(); ++i) run(i, {Segment::kSetup});
}

void Executor::instantiate() {
  std::unordered_map<const void*, void*> made;  // of plans, which equal instructions share
  for (const Program& program : set_->programs) {
    auto& states = states_.emplace_back();
    for (size_t s = 0; s < kSegments; ++s) {
      for (size_t v = 0; v < kVariants; ++v) {
        for (const Instruction& i : program.segments[s][v]) {
          auto [state, is_new] = made.try_emplace(i.plan, const_cast<void*>(i.plan));
          if (is_new && i.instantiate != nullptr) {
            instances_.push_back(i.instantiate(i.plan));
            state->second = instances_.back().get();
          }
          states[s][v].push_back(state->second);
        }
      }
    }
  }
}

Executor::Bases Executor::bases_of(size_t index, const Action& action) const {
  const Program& program = set_->programs[index];
  Bases bases{};
  bases[static_cast<size_t>(Base::kBatch)] = set_->batch_offset + action.micro_batch * program.batch_bytes;
  for (size_t i = 0; i < program.pools.size(); ++i) {
    const Pool& pool = program.pools[i];
    bases[static_cast<size_t>(base_of_pool(i))] =
        pool.offset + pool.slot_of[static_cast<size_t>(action.micro_batch)] * pool.slot_bytes;
  }
  return bases;
}

const Instruction* Executor::advance(size_t index, Cursor& cursor) {
  device::Launch launch = device_->begin_launches();
  const Program& program = set_->programs[index];
  const Action& action = cursor.action;
  STRATA_CHECK(action.micro_batch < program.request.micro_batches, "{} of {} micro-batches", str(action),
               program.request.micro_batches);
  const auto segment = static_cast<size_t>(action.segment), variant = static_cast<size_t>(action.accumulates);
  const auto& instructions = program.segments[segment][variant];
  const auto& states = states_[index][segment][variant];
  auto& timings = timings_[index][segment][variant];
  std::array<std::byte*, std::tuple_size_v<Bases>> bases{};  // kAbsent keeps nullptr
  const Bases offsets = bases_of(index, action);
  for (size_t i = static_cast<size_t>(Base::kArena); i < bases.size(); ++i)
    bases[i] = arena_->address() + offsets[i];
  double begin = monotonic_seconds();
  while (cursor.next < instructions.size()) {
    const size_t i = cursor.next++;
    const Instruction& instruction = instructions[i];
    if (instruction.queue == graph::Queue::kCommunication) [[unlikely]]
      return &instruction;
    const Operand* operand = program.operands.data() + instruction.first_operand;
    for (uint32_t o = 0; o < instruction.operand_count; ++o) {
      std::byte* const base = bases[static_cast<size_t>(operand[o].base)];
      pointers_[o] = base == nullptr ? nullptr : base + operand[o].offset;
    }
    instruction.run(launch, states[i], pointers_.data());
    const double end = monotonic_seconds();
    ++timings[i].calls;
    timings[i].seconds += end - begin;
    if (observer_ != nullptr) [[unlikely]]
      observer_->instruction(index, action, i, begin, end);
    begin = end;
  }
  return nullptr;
}

void Executor::run(size_t index, const Action& action) {
  Cursor cursor{action};
  const Instruction* left = advance(index, cursor);
  STRATA_CHECK(left == nullptr, "{} needs a communicator for {}", str(action),
               program(index).node_of(*left).op->name);
}

void Executor::run_script(size_t index) {
  for (const Action& action : program(index).script) run(index, action);
}

void Executor::run_micro_batches(size_t index) {
  for (const Action& action : program(index).script) {
    if (is_of_micro_batch(action.segment)) run(index, action);
  }
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

void Executor::upload_operand(size_t index, const Action& action, const Instruction& instruction,
                              size_t operand, const void* from, int64_t bytes) {
  device_->upload(*arena_, offset_of(index, action, instruction, operand, bytes), from, bytes);
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

const std::vector<Timing>& Executor::timings(size_t program, Segment segment, bool accumulates) const {
  return timings_[program][static_cast<size_t>(segment)][accumulates ? 1 : 0];
}

void Executor::reset_timings() {
  for (auto& by_segment : timings_) {
    for (auto& variants : by_segment) {
      for (auto& timings : variants) std::fill(timings.begin(), timings.end(), Timing{});
    }
  }
}

}  // namespace strata::program
