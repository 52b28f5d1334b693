// Chooses values for keys that the user leaves open. Each choice is a function of the configuration and its
// inputs.
#pragma once

#include <string>
#include <vector>

#include "config/choice.h"
#include "config/layout.h"
#include "device/device.h"
#include "device/open/open.h"
#include "hardware/device_spec.h"

namespace strata::config {

// One rank's share of its host.
struct MachineShare {
  int64_t processors = 1;
  int64_t memory = 1;  // free bytes, minus a reserve for the rest of the program and other processes
  std::string of = "this machine";    // has the memory
  std::string host = "this machine";  // has the processors
  std::string users = {};             // others that hold memory of the device, "python3 (4711)"
};
// Of a device that is only described.
MachineShare share_of_device(const hardware::DeviceSpec& device);
// Of the device of one rank, if it has separate memory.
MachineShare share_of_device(const device::Device& device);
// For this host. `root` replaces "/" in tests.
MachineShare share_of_machine(const RankPlace& place, const Path& root = "/");

// That of its device, or of its host if the device is the processor.
MachineShare share_of_rank(const RunConfig& config, const RankPlace& place);
// The device that a run of `ranks` ranks asks for; auto: a GPU that has passed its self-test, else the processor.
device::Kind kind_of(const RunConfig& config, int64_t ranks);
// Chooses the device. ConfigError if it cannot run the ranks of `place`.
std::vector<Choice> choose_device(const RunConfig& config, const RankPlace& place, bool described);
// Chooses threads, memory budget and the communication driver. `share`: the smallest over all ranks, so that
// all run the same program.
std::vector<Choice> choose_machine(const RunConfig& config, const RankPlace& place,
                                   const MachineShare& share);
// Chooses number formats for the device.
std::vector<Choice> choose_precision(const RunConfig& config, const hardware::DeviceSpec& device);
// Chooses the learning-rate horizon and warm-up before the data are known.
std::vector<Choice> choose_horizon(const RunConfig& config);
std::vector<Choice> choose_warmup(int64_t horizon);
// Chooses the micro-batch size for the device, without regard to memory.
std::vector<Choice> choose_micro_batch(const RunConfig& config, const hardware::DeviceSpec& device);

// The open choices that memory.budget decides.
struct Fit {
  int64_t zero = 0;
  int64_t micro_batch = 1;
  bool keeps_recompute = false;  // memory.recompute is the run's stored choice
};
struct OpenToFit {
  bool zero = false, micro_batch = false;
};
// Returns the next fit to try after `tried` does not fit, or nothing if there is none smaller. `by_weights`:
// weights, gradients and optimizer states already exceed the budget.
std::optional<Fit> smaller_fit(const RunConfig& config, const OpenToFit& open, const Fit& tried,
                               bool by_weights);

}  // namespace strata::config
