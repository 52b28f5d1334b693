// Runs programs: allocates the arena once, then only calls kernels.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "program/program.h"
#include "program/ranks.h"
#include "program/row_copies.h"
#include "program/underway.h"

namespace strata::program {

class Executor {
 public:
  // Allocates the arena, makes instances of the plans and runs every program's setup. Weights are zero until
  // the caller fills and packs them. Several executors may share a set, each on a separate thread.
  // InternalError where the set was compiled for a device that computes otherwise.
  // `ranks`, which must outlive the executor, are those of the set's mesh; they execute the communication
  // queue together.
  Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device, const Ranks& ranks);
  // For a single process.
  Executor(const std::shared_ptr<const ProgramSet>& set, std::shared_ptr<device::Device> device);

  const ProgramSet& set() const { return *set_; }
  const device::Device& device() const { return *device_; }
  const Program& program(size_t index) const { return set_->programs[index]; }

  // Runs a segment of a program. Allocates nothing. `update_follows`: the caller runs the rest of the
  // schedule next, so that the work that can start early (Program::early) starts during the last micro-batch.
  void run(size_t program, const Action& action, bool update_follows = false);
  // Like run(), for an action of the program's schedule, with its pipeline messages: inputs are received
  // before it, outputs are sent after it. Actions after the micro-batches wait until all messages have
  // been sent. `adds`: to the sums that earlier runs of the schedule have left in accumulators.
  void run_in_script(size_t program, size_t at, bool update_follows = false, bool adds = false);
  // Until all that was sent has been received.
  void finish_messages();
  // Runs the program's schedule; all batches must be uploaded. It is the whole step, or the micro-batches
  // without the actions that follow them.
  void run_script(size_t program);
  void run_micro_batches(size_t program);

  // Copies between the host and a persistent value of the set, from byte `offset` of it on.
  void upload(const Persistent& value, const void* from, int64_t bytes, int64_t offset = 0) const;
  void download(const Persistent& value, void* to, int64_t bytes, int64_t offset = 0) const;
  // These take a persistent value of a program's graph.
  void upload(size_t program, graph::ValueId value, const void* from, int64_t bytes) const;
  void download(size_t program, graph::ValueId value, void* to, int64_t bytes) const;
  // These take the name of a value.
  void upload(const std::string& name, const void* from, int64_t bytes, int64_t offset = 0) const;
  void download(const std::string& name, void* to, int64_t bytes, int64_t offset = 0) const;
  // These copy one number, or the first ones.
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
  // Weights as fp32, whatever memory holds them as: all of a parameter, and elements from `first` on, rounded to
  // nearest.
  std::vector<float> read_floats(const std::string& name) const;
  void write_floats(const std::string& name, std::span<const float> values, int64_t first = 0) const;
  // Uploads the program's sequences of a batch, from row `first` on, to the buffer of a micro-batch: of each
  // column the elements that this rank reads. Rows may be shorter than the program's; they are padded.
  // Allocates nothing.
  void upload_rows(size_t program, const BatchRows& batch, int64_t first, int64_t micro_batch);
  // A column as this rank holds it, whole or its first values; nothing happens where the program does not
  // read it.
  void upload_column(size_t program, Column column, int64_t micro_batch, std::span<const int32_t> values);
  bool reads(size_t program, Column column) const {
    return set_->programs[program].graph.column(column) != graph::kNone;
  }
  // Bytes [offset, offset + bytes) of an operand of an instruction, inputs before outputs, as the action sees
  // it.
  void download_operand(size_t program, const Action& action, const Instruction& instruction, size_t operand,
                        void* to, int64_t bytes, int64_t offset = 0) const;
  void upload_operand(size_t program, const Action& action, const Instruction& instruction, size_t operand,
                      const void* from, int64_t bytes, int64_t offset = 0) const;

  // For other ranks, since it was made.
  double seconds_waited() const { return underway_.seconds_waited(); }
  const Ranks& ranks() const { return ranks_; }
  int64_t arena_bytes() const { return arena_->bytes(); }

  // Seconds by segment and instruction since the last reset. Off at first if the device is asynchronous: the host would
  // wait for it after each action. Otherwise it costs two clock reads a call.
  const std::vector<Timing>& timings(size_t program, const SegmentAt& segment,
                                     bool accumulates = false) const;
  void reset_timings();
  void time_calls(bool timed) { timed_ = timed; }

  // Metrics and per-step parameters are copied to the host after the work started so far. The host's reads of them take
  // the copy, and so do not wait for later work, until the next run or write, unless `keep_capture` is on.
  // No effect if the device is synchronous.
  void capture();
  // While the micro-batches of the next step start before the host has read this step's metrics.
  void keep_capture(bool keeps) { keeps_capture_ = keeps; }
  void drop_capture() { has_capture_ = keeps_capture_ = false; }

  // Called around each instruction when set: for traces.
  struct Observer {
    virtual ~Observer() = default;
    virtual void instruction(size_t program, const Action& action, size_t index, double begin,
                             double end) = 0;
    // Whether an instruction's result must be complete when it is reported: each collective is then waited
    // for immediately, and nothing overlaps it.
    virtual bool wants_results() const { return false; }
  };
  // Returns the previous one.
  Observer* observe(Observer* observer) { return std::exchange(observer_, observer); }

 private:
  Executor(std::shared_ptr<const ProgramSet> set, std::shared_ptr<device::Device> device,
           std::unique_ptr<const Ranks> alone);

  // By Base.
  using Offsets = std::array<int64_t, kBases>;
  using Addresses = std::array<std::byte*, kBases>;

  // What carries out an instruction of the communication queue.
  struct Exchange {
    comm::Communicator* group = nullptr;
    std::unique_ptr<comm::Prepared> prepared;
    size_t transfers = 0;
    bool adds = false;
  };
  // Instructions [begin, end), again and again as long as the number at `condition` is not 0.
  struct Loop {
    size_t begin = 0, end = 0;
    Operand condition = {};
  };
  // The instructions of a segment, ready to be carried out.
  struct List {
    device::CallList calls;
    std::vector<device::Peers> peers;
    std::vector<std::string>
        names;  // of the instructions, for errors that arrive later; empty if the device is synchronous
    std::vector<std::optional<Exchange>> exchanges;
    // For instructions on the communication queue: the last earlier one on that queue that must be done; -1:
    // none.
    std::vector<int32_t> after;
    std::vector<Timing> timings;
    std::vector<Loop> loops;
  };
  // A segment as it runs.
  struct Running {
    size_t program;
    const Action& action;
    const std::vector<Instruction>& instructions;
    List& list;
    const Addresses& addresses;
    device::Launch launch;
    std::vector<Early>::const_iterator early, early_end;  // that is to start next
  };

  void make_list(const Program& program, const std::vector<Instruction>& instructions, List& list);
  device::Peers peers_of(const Program& program, const Instruction& instruction) const;
  Exchange make_exchange(const Program& program, const Instruction& instruction) const;
  Offsets offsets_of(size_t program, const Action& action) const;
  Addresses addresses_of(size_t program, const Action& action) const;
  int64_t offset_of(size_t program, const Action& action, const Instruction& instruction, size_t operand,
                    int64_t bytes) const;
  List& list_of(size_t program, const Action& action);

  // Bytes of the arena, of a value whose content only updates and the host change or of any other.
  void read(graph::Role role, int64_t offset, void* to, int64_t bytes) const;
  void write(graph::Role role, int64_t offset, const void* from, int64_t bytes) const;
  void find_captured();

  void run_range(Running& running, size_t begin, size_t end);
  void run_loop(Running& running, const Loop& loop);
  bool goes_on(const Running& running, const Loop& loop) const;
  void start_message(size_t program, size_t message, const Action& action);
  void start(Running& running, size_t index);
  void start_early(size_t program, const Early& early, const Addresses& addresses);
  void start_on_group(List& list, size_t index, Started::What what, const Addresses& addresses);

  std::unique_ptr<const Ranks> alone_;  // of an executor that was given none
  const Ranks& ranks_;
  std::shared_ptr<const ProgramSet> set_;
  std::shared_ptr<device::Device> device_;
  std::unique_ptr<device::Memory> arena_;
  device::Instances instances_;
  std::vector<Program::ByList<List>> lists_;  // by program
  std::vector<RowCopies> row_copies_;         // by program
  std::unique_ptr<device::Stopwatch> stopwatch_;
  bool timed_ = false;
  std::unique_ptr<device::Point>
      updated_;  // after the newest update, or write by the host, of weights and states
  // What a capture holds: bytes [begin, end) of the arena, metrics and per-step parameters.
  struct Captured {
    int64_t begin, end;
    std::unique_ptr<device::Capture> copy;
  };
  std::vector<Captured> captures_;
  mutable std::atomic<bool> has_capture_ = false;
  bool keeps_capture_ = false;
  std::vector<size_t> begins_;  // of the list that runs: the mark at which each instruction begins
  Observer* observer_ = nullptr;
  std::vector<comm::Buffers> buffers_;  // of the collective that starts
  Underway underway_;
};

}  // namespace strata::program
