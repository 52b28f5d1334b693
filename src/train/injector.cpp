#include "train/injector.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "train/value_faults.h"

namespace strata::training {

using config::Fault;
using config::FaultKind;
using config::FaultPhase;
using config::FlipWhere;
using program::Action;
using program::Segment;

namespace {

constexpr uint32_t kFlipStream = 0x666c6970;  // "flip"

// Random bits of a fault.
uint64_t seed_of(const config::RunConfig& config) {
  return static_cast<uint64_t>(config.run.seed);
}

uint64_t draw_of(const Fault& fault, uint64_t seed) {
  const auto bits = philox({seed ^ hash64(fault.entry), kFlipStream}, static_cast<uint64_t>(fault.step));
  return static_cast<uint64_t>(bits[0]) << 32 | bits[1];
}

ElementFault element_fault(const Fault& fault, uint64_t seed) {
  using Kind = ElementFault::Kind;
  const Kind kind = fault.kind == FaultKind::kNan   ? Kind::kNan
                    : fault.kind == FaultKind::kInf ? Kind::kInf
                                                    : Kind::kFlip;
  return {kind, draw_of(fault, seed)};
}

bool is_of_phase(Segment segment, FaultPhase phase) {
  switch (phase) {
    case FaultPhase::kForward:
      return segment == Segment::kForward;
    case FaultPhase::kBackward:
      return segment == Segment::kBackward || segment == Segment::kInputGrad ||
             segment == Segment::kWeightGrad;
    case FaultPhase::kUpdate:
      return segment == Segment::kUpdate;
    case FaultPhase::kGather:
      return true;
    case FaultPhase::kSave:
      break;
  }
  return false;
}

bool is_of_machine(const Fault& fault) {
  return fault.kind == FaultKind::kStop || fault.kind == FaultKind::kKill || fault.kind == FaultKind::kDrop;
}

int signal_of(const Fault& fault) {
  return fault.kind == FaultKind::kStop ? SIGSTOP : SIGKILL;
}

Path largest_tensor_file(const Path& folder) {
  Path largest;
  uintmax_t most = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".safetensors" || file.file_size() <= most) continue;
    most = file.file_size();
    largest = file.path();
  }
  return largest;
}

// Flips one bit of a file's second half, where tensors are.
void flip_in_file(const Path& path, uint64_t draw) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const uint64_t size = std::filesystem::file_size(path);
  const auto at = static_cast<std::streamoff>(size / 2 + draw % std::max<uint64_t>(1, size - size / 2));
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ (1 << (draw >> 32) % 8));
  file.seekp(at);
  if (!file.put(byte).flush()) throw WorldError("[{}] cannot write the bit of debug.inject", path.string());
}

}  // namespace

// Acts after instructions of one action, and passes everything on to the observer that was there before.
class Injector::Watch final : public program::Executor::Observer {
 public:
  explicit Watch(program::Executor& executor) : executor_(executor) {}

  void add(size_t index, std::function<void()> act) { acts_.emplace_back(index, std::move(act)); }
  bool empty() const { return acts_.empty(); }
  void begin() {
    before_ = executor_.observe(this);
    watches_ = true;
  }
  void end() {
    if (watches_) executor_.observe(before_);
    watches_ = false;
    acts_.clear();
  }

  void instruction(size_t program, const Action& action, size_t index, double begin, double end) override {
    for (const auto& [at, act] : acts_)
      if (at == index) act();
    if (before_ != nullptr) before_->instruction(program, action, index, begin, end);  // it sees the fault
  }
  bool wants_results() const override { return before_ != nullptr && before_->wants_results(); }

 private:
  program::Executor& executor_;
  Observer* before_ = nullptr;
  bool watches_ = false;
  std::vector<std::pair<size_t, std::function<void()>>> acts_;
};

Injector::Injector(const RunInputs& inputs, program::Executor& executor, InjectedDisk& disk, const Path& run,
                   Reporter& reporter)
    : inputs_(inputs),
      executor_(executor),
      disk_(disk),
      run_(run),
      reporter_(reporter),
      marks_(disk.under(), run),
      watch_(std::make_unique<Watch>(executor)) {
  std::vector<std::string> problems;  // validation has reported them
  plan_ = config::read_inject(inputs.config.debug.inject, 0, 0, problems);
  for (const Fault& fault : plan_.faults) {
    if (fault.waits() && marks_.find(fault.entry) == nullptr) waiting_.push_back(fault);
  }
  check_gathers();
  wait_for_marks();
}

Injector::~Injector() {
  disk_.set_full(false);
  disk_.set_factor(1);
}

void Injector::check_gathers() const {
  const program::Program& program = executor_.program(program_);
  const auto gathers = [&] {
    return std::any_of(program.script.begin(), program.script.end(),
                       [&](const Action& action) { return find_gather(program, action).has_value(); });
  };
  for (const Fault& fault : plan_.faults) {
    if (fault.phase == FaultPhase::kGather && !gathers()) {
      throw ConfigError(
          "[debug.inject] \"{}\": found phase=gather in a run whose ranks gather no weights; expected fwd, "
          "bwd, update or save, or parallel.zero = 1, 2 or 3 on several ranks",
          fault.entry);
    }
  }
}

// Before any rank acts all must have read, or reported and recorded, what there is.
void Injector::wait_for_marks() {
  if (!inputs_.ranks.alone()) inputs_.ranks.all().barrier();
}

void Injector::fire(const Fault& fault, int64_t step) {
  marks_.add(fault, step, is_mine(fault));
  fired_here_.insert(fault.entry);
  has_new_ = true;
  observe::MetricFields fields{{"fault", fault.entry}, {"rank", fault.rank}};
  if (fault.phase) fields.push_back({"phase", std::string(config::spelled(*fault.phase))});
  reporter_.event("injected", step, fields);
  if (inputs_.is_first()) log_warning("injected at step {}: {}", step, fault.entry);
}

void Injector::consider(const Fault& fault, int64_t step) {
  if (fault.waits() || step < fault.step || step > fault.last_step()) return;
  if (const auto* const mark = marks_.find(fault.entry)) {
    const bool repeats = fault.changes_numbers() || (fault.step < step && fired_here_.contains(fault.entry));
    if (!repeats || !mark->acts(step)) return;
  } else {
    if (step != fault.step) return;  // the run has passed it
    fire(fault, step);
  }
  active_.push_back(fault);
}

void Injector::before_step(int64_t step) {
  step_ = step;
  has_new_ = false;
  active_.clear();
  strikes_.clear();
  for (const Fault& fault : plan_.faults) consider(fault, step);
  for (const config::RandomFaults& random : plan_.random) {
    const auto fault = random.draw(step, inputs_.ranks.world().size());
    if (!fault) continue;
    if (!fault->waits()) {
      consider(*fault, step);
    } else if (marks_.find(fault->entry) == nullptr) {
      waiting_.push_back(*fault);
    }
  }
  if (has_new_) wait_for_marks();
  set_disk();
  act_before_step();
}

void Injector::set_disk() {
  bool is_full = false;
  double factor = 1;
  for (const Fault& fault : active_) {
    if (!is_mine(fault)) continue;
    is_full = is_full || fault.kind == FaultKind::kFullDisk;
    if (fault.kind == FaultKind::kSlowDisk) factor = std::max(factor, fault.factor);
  }
  disk_.set_full(is_full);
  disk_.set_factor(factor);
}

void Injector::change_weights(const Fault& fault) {
  if (is_mine(fault)) change_weight(executor_, element_fault(fault, seed_of(inputs_.config)));
}

void Injector::pack_weights() {
  executor_.run(program_, {Segment::kEncode});
}

void Injector::act_before_step() {
  bool packs = false;
  for (const Fault& fault : active_) {
    if (fault.kind == FaultKind::kSpike) {
      add_noise(executor_, fault.factor, seed_of(inputs_.config), step_);
      packs = true;
    }
    if (fault.kind == FaultKind::kFlip && fault.where == FlipWhere::kWeights) {
      change_weights(fault);
      packs = true;
    }
  }
  // With shards this is a collective, and all ranks know of the fault.
  if (packs) pack_weights();
  for (const Fault& fault : active_) {
    if (!is_mine(fault)) continue;
    if (fault.kind == FaultKind::kSlow)
      std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
    if (is_of_machine(fault) && !fault.phase) strike_machine(fault);
    const bool is_of_value = fault.kind == FaultKind::kNan || fault.kind == FaultKind::kInf;
    const bool in_update = is_of_value && fault.phase == FaultPhase::kUpdate;
    if ((fault.phase && !in_update) ||
        (fault.kind == FaultKind::kFlip && fault.where == FlipWhere::kGradients))
      strikes_.push_back({fault});
  }
}

void Injector::strike_machine(const Fault& fault) {
  if (fault.kind == FaultKind::kDrop) {
    inputs_.ranks.world().lose_next();
  } else {
    ::kill(::getpid(), signal_of(fault));
  }
}

const data::HostBatch& Injector::tokens(int64_t step, const data::HostBatch& batch) {
  const bool is_garbage = std::any_of(active_.begin(), active_.end(),
                                      [](const Fault& fault) { return fault.kind == FaultKind::kGarbage; });
  if (!is_garbage) return batch;
  // The loader owns the batch and may return it again.
  random_tokens_ = batch;
  make_random(random_tokens_, inputs_.model.vocab_size, seed_of(inputs_.config), step);
  return random_tokens_;
}

void Injector::before_action(const Action& action) {
  for (Strike& strike : strikes_)
    if (!strike.done) prepare(strike, action);
  if (!watch_->empty()) watch_->begin();
}

void Injector::prepare(Strike& strike, const Action& action) {
  const program::Program& program = executor_.program(program_);
  const Fault& fault = strike.fault;
  const FaultPhase phase = fault.phase.value_or(FaultPhase::kBackward);
  if (!is_of_phase(action.segment, phase)) return;
  if (is_of_machine(fault)) {
    // In the middle of the first action of its phase.
    const auto middle = phase == FaultPhase::kGather ? find_gather(program, action)
                                                     : std::optional(program.list_of(action).size() / 2);
    if (!middle || *middle >= program.list_of(action).size()) return;
    strike.done = true;
    return watch_->add(*middle, [this, fault] { strike_machine(fault); });
  }
  const auto at =
      phase == FaultPhase::kForward ? find_activation(program, action) : find_gradient(program, action);
  if (!at) return;
  strike.done = true;
  watch_->add(at->index, [this, action, at = *at, wrong = element_fault(fault, seed_of(inputs_.config))] {
    change_output(executor_, program_, action, at, wrong);
  });
}

void Injector::after_action() {
  watch_->end();
}

void Injector::after_update() {
  bool packs = false;
  for (const Fault& fault : active_) {
    if ((fault.kind != FaultKind::kNan && fault.kind != FaultKind::kInf) ||
        fault.phase != FaultPhase::kUpdate)
      continue;
    change_weights(fault);
    packs = true;
  }
  if (packs) pack_weights();
  for (const Strike& strike : strikes_)
    if (!strike.done) log_warning("{}: found nothing to act on in step {}", strike.fault.entry, step_);
}

template <typename Due>
std::vector<Fault> Injector::take_due(int64_t step, const Due& due) {
  std::vector<Fault> taken;
  has_new_ = false;
  for (const Fault& fault : waiting_) {
    if (!due(fault) || fault.step > step) continue;
    fire(fault, step);
    taken.push_back(fault);
  }
  std::erase_if(waiting_, [&](const Fault& fault) { return due(fault) && fault.step <= step; });
  if (has_new_) wait_for_marks();
  std::erase_if(taken, [&](const Fault& fault) { return !is_mine(fault); });
  return taken;
}

void Injector::before_save(int64_t step) {
  for (const Fault& fault : take_due(step, [](const Fault& one) { return one.waits_for_save(); })) {
    if (fault.kind == FaultKind::kFlip) {
      const std::lock_guard lock(mutex_);
      to_flip_.push_back(draw_of(fault, seed_of(inputs_.config)));
    } else if (fault.kind == FaultKind::kDrop) {
      strike_machine(fault);
    } else {
      disk_.signal_in_write(run_ / "checkpoints", signal_of(fault));
    }
  }
}

void Injector::after_save(int64_t step) {
  disk_.signal_now();  // of a rank that has written nothing
  std::vector<uint64_t> draws;
  {
    const std::lock_guard lock(mutex_);
    draws.swap(to_flip_);
  }
  const Path folder = run_ / "checkpoints" / fmt::format("step-{:08}", step);
  for (const uint64_t draw : draws) flip_in_file(largest_tensor_file(folder), draw);
}

template <typename Due>
std::optional<FlipPlace> Injector::take_flip(int64_t step, const Due& due) {
  const auto taken = take_due(step, due);
  if (taken.empty()) return std::nullopt;
  const uint64_t draw = draw_of(taken.front(), seed_of(inputs_.config));
  return FlipPlace{draw, static_cast<int>(draw >> 61)};
}

std::optional<FlipPlace> Injector::flip_snapshot(int64_t step) {
  return take_flip(step, [](const Fault& one) { return one.waits_for_snapshot(); });
}

std::optional<FlipPlace> Injector::flip_copy(int64_t step) {
  return take_flip(step, [](const Fault& one) { return one.waits_for_copy(); });
}

void Injector::undo_after(int64_t step) {
  marks_.undo_after(step, inputs_.is_first());
}

}  // namespace strata::training
