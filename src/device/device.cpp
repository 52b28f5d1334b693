#include "device/device.h"

#include "base/error.h"
#include "base/memory.h"

namespace strata::device {
namespace {

[[noreturn]] void cannot_be_measured(const Device& device) {
  throw InternalError("the device {} cannot be measured", device.spec().name);
}

// Of devices whose work is done when the call that starts it returns.
struct PastPoint final : Point {
  void mark() override {}
};

class Copy final : public Capture {
 public:
  Copy(const Device& device, const Memory& from, int64_t offset, int64_t bytes)
      : device_(device), from_(from), offset_(offset), content_(static_cast<size_t>(bytes)) {}
  void take() override {
    device_.download(from_, offset_, content_.data(), static_cast<int64_t>(content_.size()));
  }
  const std::byte* content() const override { return content_.data(); }

 private:
  const Device& device_;
  const Memory& from_;
  int64_t offset_;
  std::vector<std::byte> content_;
};

}  // namespace

void Device::download_after(const Point&, const Memory& from, int64_t offset, void* to, int64_t bytes) const {
  download(from, offset, to, bytes);
}
std::unique_ptr<Point> Device::make_point() const {
  return std::make_unique<PastPoint>();
}
std::unique_ptr<Capture> Device::make_capture(const Memory& from, int64_t offset, int64_t bytes) const {
  return std::make_unique<Copy>(*this, from, offset, bytes);
}
int64_t Device::free_memory() const {
  return available_memory();
}

hardware::DeviceSpec Device::measured(FileSystem&, bool) const {
  cannot_be_measured(*this);
}
hardware::DeviceSpec Device::measure_peaks(double) const {
  cannot_be_measured(*this);
}
std::vector<hardware::FamilyRate> Device::measure_ops(double, std::string_view) const {
  cannot_be_measured(*this);
}
PeakProduct Device::peak_product(DType) const {
  cannot_be_measured(*this);
}
std::function<double()> Device::triad_loop(int64_t) const {
  cannot_be_measured(*this);
}
std::function<double()> Device::reading_loop(int64_t) const {
  cannot_be_measured(*this);
}

}  // namespace strata::device
