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
      by_segment[s].resize(program.segments[s].size());
      for (const Instruction& i : program.segments[s]) widest = std::max<size_t>(widest, i.operand_count);
    }
  }
  pointers_.resize(widest);
  for (size_t i = 0; i < set_->programs.size(); ++i) run(i, Segment::kSetup);
}

void Executor::instantiate() {
  std::unordered_map<const void*, void*> made;  // of plans, which equal instructions share
  for (const Program& program : set_->programs) {
    auto& states = states_.emplace_back();
    for (size_t s = 0; s < kSegments; ++s) {
      for (const Instruction& i : program.segments[s]) {
        auto [state, is_new] = made.try_emplace(i.plan, const_cast<void*>(i.plan));
        if (is_new && i.instantiate != nullptr) {
          instances_.push_back(i.instantiate(i.plan));
          state->second = instances_.back().get();
        }
        states[s].push_back(state->second);
      }
    }
  }
}

void Executor::run(size_t index, Segment segment, int64_t micro_batch) {
  device::Launch launch = device_->begin_launches();
  const Program& program = set_->programs[index];
  // By Base: kAbsent keeps nullptr, whatever the offset.
  std::byte* const bases[] = {nullptr, arena_->address(),
                              arena_->address() + set_->batch_offset + micro_batch * program.batch_bytes};
  auto& timings = timings_[index][static_cast<size_t>(segment)];
  const auto& instructions = program.segment(segment);
  const auto& states = states_[index][static_cast<size_t>(segment)];
  double begin = monotonic_seconds();
  for (size_t i = 0; i < instructions.size(); ++i) {
    const Instruction& instruction = instructions[i];
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
      observer_->instruction(index, segment, i, begin, end);
    begin = end;
  }
}

void Executor::upload(const std::string& name, const void* from, int64_t bytes, int64_t offset) const {
  const Persistent& value = set_->at(name);
  STRATA_CHECK(offset + bytes <= value.bytes, "bytes {} to {} of {}, which has {}", offset, offset + bytes,
               name, value.bytes);
  device_->upload(*arena_, value.offset + offset, from, bytes);
}

void Executor::download(const std::string& name, void* to, int64_t bytes, int64_t offset) const {
  const Persistent& value = set_->at(name);
  STRATA_CHECK(offset + bytes <= value.bytes, "bytes {} to {} of {}, which has {}", offset, offset + bytes,
               name, value.bytes);
  device_->download(*arena_, value.offset + offset, to, bytes);
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

std::byte* Executor::data(const std::string& name) const {
  return arena_->address() + set_->at(name).offset;
}

std::byte* Executor::batch_input(size_t index, const std::string& name, int64_t micro_batch) const {
  const Program& program = set_->programs[index];
  STRATA_CHECK(micro_batch < program.request.micro_batches, "micro-batch {} of {}", micro_batch,
               program.request.micro_batches);
  const graph::ValueId id = program.graph.find_value(name);
  if (id == graph::kNone || program.graph.value(id).role != graph::Role::kInput) return nullptr;
  return arena_->address() + set_->batch_offset + micro_batch * program.batch_bytes +
         program.places[static_cast<size_t>(id)].at.offset;
}

const std::vector<Timing>& Executor::timings(size_t program, Segment segment) const {
  return timings_[program][static_cast<size_t>(segment)];
}

void Executor::reset_timings() {
  for (auto& by_segment : timings_) {
    for (auto& timings : by_segment) std::fill(timings.begin(), timings.end(), Timing{});
  }
}

}  // namespace strata::program
