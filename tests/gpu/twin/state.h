// The state of the twin of NVIDIA's driver, and what every call does first.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ptx/device.h"
#include "twin/settings.h"

namespace strata::twin {

using gpu_tests::StreamId;
using Clock = std::chrono::steady_clock;

// Thrown by a call's body: the number that the call returns.
struct Rejection {
  Result number;
};
inline void require(bool condition, Result otherwise) {
  if (!condition) throw Rejection{otherwise};
}

// Streams have the executor's numbers; the null stream is its first. Streams of the twin do not wait for it.
inline constexpr StreamId kNullStream = 1;

struct PinnedBuffer;

struct Card {
  Card(const Settings& settings, int ordinal);

  int ordinal;
  gpu_tests::Device device;
  uintptr_t context = 0;
  uint64_t memory, used;            // bytes, with those of other programs
  Result fault = cuda::kSuccess;    // lasting: every later call returns it
  std::vector<StreamId> destroyed;  // streams, to be used again
  std::vector<gpu_tests::EventId> idle_events;
};

struct LoadedModule {
  Card* card;
  gpu_tests::Module* module;
};
struct LoadedFunction {
  Card* card;
  uintptr_t module;
  const gpu_tests::Kernel* kernel;
  uint64_t dynamic_limit;
};
struct StreamObject {
  Card* card;
  StreamId id;
};
struct EventObject {
  Card* card;
  gpu_tests::EventId id;
  bool timed, recorded = false;
  std::shared_ptr<std::optional<Clock::time_point>> time;
};

// A handle is a number that is never used again, not an address: stale ones are found.
template <typename T>
class Handles {
 public:
  uintptr_t add(T object, uintptr_t handle) {
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  T& at(const void* handle, Result otherwise = kInvalidHandle) {
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    require(found != objects_.end(), otherwise);
    return found->second;
  }
  void remove(const void* handle) { objects_.erase(reinterpret_cast<uintptr_t>(handle)); }
  template <typename F>
  void remove_if(F condition) {
    std::erase_if(objects_, [&](const auto& entry) { return condition(entry.second); });
  }

 private:
  std::unordered_map<uintptr_t, T> objects_;
};

struct State {
  explicit State(const std::string& text) : settings(Settings::parse(text)) {}

  Settings settings;
  bool initialized = false;
  std::vector<std::unique_ptr<Card>> cards;
  std::map<uintptr_t, Card*> contexts;
  Handles<LoadedModule> modules;
  Handles<LoadedFunction> functions;
  Handles<StreamObject> streams;
  Handles<EventObject> events;
  std::map<uintptr_t, std::shared_ptr<PinnedBuffer>> pinned;  // by first address
  std::map<std::string, uint64_t> calls;
  std::vector<bool> used_faults, used_edits;
  std::string violation;
  Result injected = cuda::kSuccess;  // into the operation that the current call enqueues

  // The GPUs that CUDA_VISIBLE_DEVICES leaves.
  void initialize();
  Card& card_at(int ordinal);
  // Number of a stream; the null stream is a null handle.
  StreamId stream_of(Card& card, cuda::Stream stream);
  // Records the first violation, and that the context is lost.
  void lose(Card& card, Result number, const std::string& why);
};

// One per process, like the driver's. All calls hold the lock.
struct Process {
  std::mutex mutex;
  std::unique_ptr<State> state;
  std::optional<std::string> environment;  // of the last cuInit
  bool controlled =
      false;  // by a test in the process: the environment is not read, violations are not printed
  uintptr_t next_handle = 0x10000;
};
Process& process();
State& state();
uintptr_t new_handle();

// The context of this thread.
uintptr_t& current_context();

enum class Needs : uint8_t { kNothing, kInit, kContext, kHealthyContext };

// Runs a call's body, body(State&, Card&), under the lock: counts it, applies planted faults, makes the driver's
// checks, and turns violations into a lost context.
template <typename F>
Result call(const char* name, Needs needs, F body);

// What a planted fault makes of an operation when it runs.
struct InjectedFault {
  Result number;
  std::string what;
};
// Before a call enqueues work.
void inject(State& all, Card& card, StreamId stream, const char* name);

namespace detail {
// The result planted in this call: a failure's number, success for a drop, nothing for neither.
std::optional<Result> planted(State& all, const char* name);
Result number_of(const gpu_tests::Violation& violation);
Card* current_card(State& all);
}  // namespace detail

template <typename F>
Result call(const char* name, Needs needs, F body) {
  const std::lock_guard lock(process().mutex);
  State& all = state();
  if (needs != Needs::kNothing && !all.initialized) return kNotInitialized;
  Card* card = nullptr;
  if (needs == Needs::kContext || needs == Needs::kHealthyContext) {
    card = detail::current_card(all);
    if (card == nullptr) return kInvalidContext;
    if (needs == Needs::kHealthyContext && card->fault != cuda::kSuccess) return card->fault;
  }
  if (const std::optional<Result> number = detail::planted(all, name)) {
    if (card != nullptr && is_lasting(*number))
      all.lose(*card, *number, std::string(name) + " failed as planted");
    return *number;
  }
  try {
    if constexpr (std::is_invocable_v<F, State&, Card&>) {
      body(all, *card);
    } else {
      body(all);
    }
    return cuda::kSuccess;
  } catch (const Rejection& rejection) {
    return rejection.number;
  } catch (const gpu_tests::Violation& violation) {
    all.lose(*card, detail::number_of(violation), violation.what());
  } catch (const InjectedFault& fault) {
    all.lose(*card, fault.number, fault.what);
  } catch (const std::exception& error) {
    all.violation = error.what();  // a limit of the twin
    return kUnknown;
  }
  return card->fault;
}

}  // namespace strata::twin
