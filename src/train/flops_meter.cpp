#include "train/flops_meter.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "hardware/device_spec.h"

namespace strata::training {
namespace {

// The best GEMM of this machine in FLOP/s: from the cache that `strata doctor` fills; otherwise measured here
// in half a second if the run is long enough; otherwise 0. A cached peak far below `reached`, the FLOP/s of a
// whole step, was measured on a busy machine and is ignored.
double gemm_peak(const device::Device& device, DType dtype, double reached, double seconds_left, bool warns) {
  constexpr double kBeyond = 1.1;  // large GEMMs in a step may exceed an isolated one by a few percent
  hardware::DeviceSpec spec = device.spec();
  if (hardware::load_cached_device(spec)) {
    const double known = spec.gemm_flops[hardware::precision_of(name_of(dtype))];
    if (known > 0 && reached <= kBeyond * known) return known;
    if (known > 0 && warns) {
      log_warning(
          "the stored GEMM peak, {:.0f} GFLOP/s, is below the {:.0f} of a step: it was measured on a busy "
          "machine. MFU uses a new measurement, or is omitted in a short run. Run `strata doctor` to store "
          "one",
          known / 1e9, reached / 1e9);
    }
  }
  if (seconds_left < 60) return 0;
  const device::PeakProduct probe = device.peak_product(dtype);
  double best = 0;
  for (const double end = monotonic_seconds() + 0.5; best == 0 || monotonic_seconds() < end;) {
    const double begin = monotonic_seconds();
    probe.run();
    best = std::max(best, probe.flops / (monotonic_seconds() - begin));
  }
  return best;
}

}  // namespace

FlopsMeter::FlopsMeter(const RunInputs& inputs, const device::Device& device, const RunPosition& position)
    : device_(device),
      dtype_(config::activation_dtype(inputs.config)),
      warns_(inputs.is_first()),
      model_(inputs.model),
      shape_(position.samples()->shape()),
      sequence_length_(inputs.config.training.sequence_length) {}

double FlopsMeter::flops_of(const config::StepSize& size) const {
  const int64_t tokens = shape_.encoder_length > 0 ? shape_.tokens : size.length;
  return models::training_flops_per_token(model_, size.length, tokens, shape_.target_share) *
         static_cast<double>(size.sequences * sequence_length_);
}

void FlopsMeter::add_to(StepRecord& record, size_t ranks, int64_t steps_left) {
  const auto count = static_cast<double>(ranks);
  if (!(record.size == size_)) {
    size_ = record.size;
    flops_ = flops_of(size_);
  }
  if (peak_ < 0) {
    peak_ = gemm_peak(device_, dtype_, flops_ / record.step_seconds / count,
                      record.step_seconds * static_cast<double>(steps_left), warns_);
  }
  record.flops = flops_;
  record.peak_flops = peak_ * count;
}

}  // namespace strata::training
