// Runs programs: allocates the arena once, then only calls kernels.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "device/device.h"
#include "program/program.h"
#include "program/ranks.h"

namespace strata::program {

// The calls of one instruction since the last reset, together.
struct Timing {
  uint64_t calls = 0;
  double seconds = 0;
};

class Executor {
 public:
  // Allocates the arena, makes instances of the plans and runs every program's setup. Weights are zero until
  // somebody fills them and encodes. Several executors may share a set, each on a thread of its own.
  // InternalError where the set was compiled for a device that computes otherwise.
  // `ranks`, which must outlive it: those of the set's mesh, that carry out what is on the communication
  // queue together.
  Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device, const Ranks& ranks);
  // On this process alone.
  Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device);

  const ProgramSet& set() const { return *set_; }
  const device::Device& device() const { return *device_; }
  const Program& program(size_t index) const { return set_->programs[index]; }

  // Runs a segment of a program. Allocates nothing. `update_follows`: the caller runs the rest of the script
  // next, so that beside the last micro-batch starts what the update can begin with (Program::early).
  void run(size_t program, const Action& action, bool update_follows = false);
  // The same of an action of the program's script, with the messages of a pipeline that belong to it: what it
  // reads is received before, what it makes is on its way afterwards. What comes behind the micro-batches
  // waits until all have gone. `adds`: to what earlier runs of the script have left in accumulators.
  void run_in_script(size_t program, size_t at, bool update_follows = false, bool adds = false);
  // Until all that was sent has been received.
  void finish_messages();
  // The program's script, whose batches are all there: the whole step, or the micro-batches without what
  // comes behind them.
  void run_script(size_t program);
  void run_micro_batches(size_t program);

  // Copies between the host and a persistent value of the set, from byte `offset` of it on.
  void upload(const Persistent& value, const void* from, int64_t bytes, int64_t offset = 0) const;
  void download(const Persistent& value, void* to, int64_t bytes, int64_t offset = 0) const;
  void upload(const std::string& name, const void* from, int64_t bytes, int64_t offset = 0) const;
  void download(const std::string& name, void* to, int64_t bytes, int64_t offset = 0) const;
  // The same of one number, or of the first ones.
  template <typename T>
  void write(const std::string& name, const T& value) const {
    upload(name, &value, sizeof(T));
  }
  template <typename T>
  void write(const std::string& name, const std::vector<T>& values) const {
    upload(name, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }
  template <typename T>
  T read(const std::string& name) const {
    T value{};
    download(name, &value, sizeof(T));
    return value;
  }
  // All of a persistent value.
  template <typename T>
  std::vector<T> read_all(const std::string& name) const {
    std::vector<T> values(static_cast<size_t>(set_->at(name).bytes) / sizeof(T));
    download(name, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    return values;
  }
  // An input of a program's batch, whole or `bytes` of it; nothing happens where the program has none of that
  // name.
  void upload_batch(size_t program, const std::string& name, int64_t micro_batch, const void* from,
                    int64_t bytes);
  template <typename T>
  void write_batch(size_t program, const std::string& name, int64_t micro_batch,
                   const std::vector<T>& values) {
    upload_batch(program, name, micro_batch, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  }
  bool has_batch_input(size_t program, const std::string& name) const;
  // `bytes` bytes of an operand of an instruction, inputs before outputs, as the action sees it.
  void download_operand(size_t program, const Action& action, const Instruction& instruction, size_t operand,
                        void* to, int64_t bytes) const;

  // For other ranks, since it was made.
  double seconds_waited() const { return seconds_waited_; }
  const Ranks& ranks() const { return ranks_; }
  int64_t arena_bytes() const { return arena_->bytes(); }

  // Seconds by segment and instruction since the last reset; always on (two clock reads a call).
  const std::vector<Timing>& timings(size_t program, const SegmentAt& segment,
                                     bool accumulates = false) const;
  void reset_timings();

  // Called around each instruction when set: for traces.
  struct Observer {
    virtual ~Observer() = default;
    virtual void instruction(size_t program, const Action& action, size_t index, double begin,
                             double end) = 0;
    // Whether what an instruction gives is there when it is told of: each collective is then waited for at
    // once, and nothing runs beside it.
    virtual bool wants_results() const { return false; }
  };
  void observe(Observer* observer) { observer_ = observer; }

 private:
  Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device,
           std::unique_ptr<const Ranks> alone);

  // By Base: the offsets in the arena where operands' offsets start.
  using Bases = std::array<int64_t, static_cast<size_t>(Base::kPool) + kMostPools>;

  // What carries out an instruction of the communication queue: its plan's instance.
  struct Exchange {
    comm::Communicator* group = nullptr;
    std::unique_ptr<comm::Prepared> prepared;
    size_t transfers = 0;
    std::vector<size_t> behind;  // instructions of the list on the same queue that must be done before
  };
  // A message of a pipeline under way.
  struct Sailing {
    size_t program = 0, message = 0;
    int32_t micro_batch = 0, slot = 0;
    comm::Ticket ticket;
  };
  // One that was started and is not waited for yet.
  struct Running {
    size_t instruction = 0;
    comm::Communicator* group = nullptr;
    comm::Ticket ticket;
  };

  // Of those that talk to other ranks themselves (OpDef::ranks); nullptr: they do not.
  struct Groups {
    comm::Communicator *ranks = nullptr, *across = nullptr, *within = nullptr;
  };
  void instantiate();
  void start_message(size_t program, size_t message, const Action& action);
  // Waits for those that `wanted` picks.
  void wait_for_messages(FunctionRef<bool(const Sailing&)> wanted);
  Groups groups_of(const Program& program, const Instruction& instruction) const;
  std::shared_ptr<void> make_exchange(const Program& program, const std::vector<Instruction>& list,
                                      size_t index) const;
  void start(const Program& program, const Instruction& instruction, size_t index, const Exchange& exchange,
             std::vector<Timing>& timings);
  comm::Ticket start_on_group(const Instruction& instruction, const Exchange& exchange);
  // Of the update; it may have been started early.
  void start_in_turn(const Program& program, const Instruction& instruction, size_t index,
                     const Exchange& exchange, std::vector<Timing>& timings);
  void start_early(size_t program, const Early& early,
                   const std::array<std::byte*, std::tuple_size_v<Bases>>& bases,
                   std::vector<Timing>& timings);
  void wait_for(size_t instruction, std::vector<Timing>& timings);
  void wait_for_all(std::vector<Timing>& timings);
  void set_pointers(const Program& program, const Instruction& instruction,
                    const std::array<std::byte*, static_cast<size_t>(Base::kPool) + kMostPools>& bases);
  Bases bases_of(size_t program, const Action& action) const;
  int64_t offset_of(size_t program, const Action& action, const Instruction& instruction, size_t operand,
                    int64_t bytes) const;

  std::unique_ptr<const Ranks> alone_;  // of an executor that was given none
  const Ranks& ranks_;
  std::shared_ptr<const ProgramSet> set_;
  std::shared_ptr<device::Device> device_;
  std::unique_ptr<device::Memory> arena_;
  std::vector<std::shared_ptr<void>> instances_;  // one of each plan that needs any
  // What each instruction's kernel runs on.
  std::vector<Program::Lists<void*>> states_;
  std::vector<Program::Lists<Groups>> groups_;
  std::vector<std::byte*> pointers_;  // of the running instruction; as many as the widest has
  std::vector<Program::Lists<Timing>> timings_;
  Observer* observer_ = nullptr;
  std::vector<comm::Buffers> buffers_;  // of the collective that starts
  std::vector<Running> running_;        // of the segment that runs
  std::vector<Running> early_;          // of the update that follows
  std::vector<Sailing> sailing_;
  double seconds_waited_ = 0;
};

}  // namespace strata::program
