// Which GPUs have passed `strata doctor --self-test`. No GPU backend of this program has run on hardware when it was
// built, so it is chosen automatically only for GPUs that were checked.
#pragma once

#include "base/file.h"
#include "device/device.h"

namespace strata::device {

// A file for each model of GPU, version of the driver and version of the program, in the folder of measured devices
// (hardware/device_spec.h).
Path tested_path(const Device& gpu);
bool is_tested(const Device& gpu);
// Whether any has passed with this version of the program: without opening one.
bool any_is_tested();
// False, with a warning logged, if the file cannot be written.
bool record_tested(FileSystem& files, const Device& gpu);

}  // namespace strata::device
