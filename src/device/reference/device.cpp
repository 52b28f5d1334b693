#include "device/reference/device.h"

#include "device/host_device.h"
#include "device/reference/bindings.h"

namespace strata::device {

std::shared_ptr<Device> make_reference_device(int threads) {
  return std::make_shared<HostDevice>(Target{hardware::detect_cpu(threads), reference_bindings()});
}

}  // namespace strata::device
