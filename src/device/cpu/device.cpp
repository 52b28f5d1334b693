#include "device/cpu/device.h"

#include "device/cpu/bindings.h"
#include "device/host_device.h"
#include "kernels/cpu/measure.h"

namespace strata::device {

Target cpu_target(int threads) {
  return {cpu::describe_device(threads), cpu_bindings()};
}

std::shared_ptr<Device> make_cpu_device(int threads) {
  return std::make_shared<HostDevice>(cpu_target(threads));
}

}  // namespace strata::device
