// Rates of this machine's processor for each op, measured at generic shapes: the basis of predictions. Never
// measured on the model that is predicted.
#pragma once

#include <functional>
#include <vector>

#include "hardware/device_spec.h"

namespace strata::device {

// Ranks that measure at the same time call this before each measurement: it returns when all have, with whether all
// want to go on. So each op is measured while the others run it too, as in a step of ranks that are alike.
using Together = std::function<bool(bool goes_on)>;

// Rates of every op of a training step, by the op's name, in fp32 and, if that is fast, bf16, with operands
// in the last-level cache and in memory; several entries of one op are several shapes. Each takes a few
// repetitions, about `seconds` in total. `family`: only ops whose name begins with it.
std::vector<hardware::FamilyRate> measure_ops(const hardware::DeviceSpec& device, double seconds,
                                              std::string_view family = {}, const Together& together = {});

// The machine with peaks and op rates: kept ones, else measured now (a few seconds) and kept. `fresh`: always
// measured.
hardware::DeviceSpec measured_cpu(FileSystem& files, int threads, bool fresh = false);
// One of several ranks of this host that measure at the same time. Measured now, without exchanges, and not kept.
hardware::DeviceSpec measured_together(int threads, const Together& together);

// Measures exchanges between two ranks of this host that do nothing else, which are part of its description.
void measure_exchange(hardware::DeviceSpec& device);

// True where op rates are known.
bool has_op_rates(const hardware::DeviceSpec& device);

}  // namespace strata::device
