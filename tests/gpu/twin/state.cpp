#include "twin/state.h"

#include <fmt/core.h>

#include <charconv>
#include <cstdlib>

namespace strata::twin {

using gpu_tests::Fault;

Card::Card(const Settings& settings, int ordinal_in)
    : ordinal(ordinal_in),
      device({.seed = settings.seed + static_cast<uint64_t>(ordinal_in),
              .checks = {.unwritten = settings.unwritten},
              .shared_limit = settings.shared_limit(),
              .mma = gpu_tests::MmaSum::kHopper,
              // Every GPU has other addresses, as with the driver.
              .memory_base = gpu_tests::kGlobalBase + (static_cast<uint64_t>(ordinal_in) << 40),
              .traffic = !settings.traffic.empty()}),
      memory(settings.memory),
      used(settings.held) {}

void State::initialize() {
  used_faults.assign(settings.faults.size(), false);
  used_edits.assign(settings.edits.size(), false);
  int shown = settings.cards;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    // Numbers up to the first that is not one of a GPU (CUDA C++ Programming Guide, "CUDA Environment Variables").
    shown = 0;
    for (std::string_view rest = visible; !rest.empty();) {
      int number = -1;
      const size_t comma = std::min(rest.find(','), rest.size());
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + comma, number);
      if (error != std::errc() || end != rest.data() + comma || number < 0 || number >= settings.cards) break;
      ++shown;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  for (int ordinal = 0; ordinal < shown; ++ordinal)
    cards.push_back(std::make_unique<Card>(settings, ordinal));
  initialized = true;
}

Card& State::card_at(int ordinal) {
  require(ordinal >= 0 && ordinal < std::ssize(cards), kInvalidDevice);
  return *cards[static_cast<size_t>(ordinal)];
}

StreamId State::stream_of(Card& card, cuda::Stream stream) {
  if (stream == nullptr) return kNullStream;
  const StreamObject& object = streams.at(stream);
  require(object.card == &card, kInvalidHandle);
  return object.id;
}

void State::lose(Card& card, Result number, const std::string& why) {
  if (card.fault == cuda::kSuccess) card.fault = number;
  if (!violation.empty()) return;
  violation = why;
  if (!process().controlled) fmt::print(stderr, "twin of the CUDA driver: {}\n", why);
}

Process& process() {
  // Never destroyed: programs may call the driver from destructors of static objects.
  static Process& all = *new Process;
  return all;
}

State& state() {
  Process& all = process();
  if (all.state == nullptr) all.state = std::make_unique<State>(std::string());
  return *all.state;
}

uintptr_t new_handle() {
  return process().next_handle += 16;
}

uintptr_t& current_context() {
  static thread_local uintptr_t context = 0;
  return context;
}

void inject(State& all, Card& card, StreamId stream, const char* name) {
  if (all.injected == cuda::kSuccess) return;
  card.device.call(
      [fault = InjectedFault{all.injected, fmt::format("{} faults as planted", name)}] { throw fault; },
      stream, "planted fault");
  all.injected = cuda::kSuccess;
}

namespace detail {

std::optional<Result> planted(State& all, const char* name) {
  const uint64_t count = ++all.calls[name];
  all.used_faults.resize(all.settings.faults.size());
  std::optional<Result> result;
  for (size_t n = 0; n < all.settings.faults.size(); ++n) {
    const CallFault& fault = all.settings.faults[n];
    if (fault.call != name || fault.at != count) continue;
    all.used_faults[n] = true;
    if (fault.kind == CallFault::Kind::kFault) {
      all.injected = fault.number;
    } else {
      result = fault.kind == CallFault::Kind::kDrop ? cuda::kSuccess : fault.number;
    }
  }
  return result;
}

Result number_of(const gpu_tests::Violation& violation) {
  switch (violation.fault()) {
    case Fault::kOutOfBounds:
    case Fault::kFreed:
    case Fault::kReadOnly:
      return kIllegalAddress;
    case Fault::kMisaligned:
      return kMisaligned;
    case Fault::kDeadlock:
    case Fault::kLimit:
      return kLaunchTimeout;
    default:
      return kLaunchFailed;
  }
}

Card* current_card(State& all) {
  const auto found = all.contexts.find(current_context());
  return found == all.contexts.end() ? nullptr : found->second;
}

}  // namespace detail

}  // namespace strata::twin
