// The scalars of a step: the GPU decides with the CPU's code (optim/guard_decide.h), to the same bits.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernels/kernel_test.h"
#include "optim/guard_decide.h"
#include "optim/update_hyper.h"
#include "tensor/update_scalars.h"

namespace strata::gpu_tests {
namespace {

constexpr uint32_t kSeeds[] = {1, 2};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

class GpuScalars : public KernelTest {
 protected:
  template <typename T>
  T one_of(const void* from) {
    return read(static_cast<const T*>(from), 1)[0];
  }
  template <typename T>
  T field_of(const void* from, size_t offset) {
    return one_of<T>(static_cast<const std::byte*>(from) + offset);
  }
};

using optim::GuardRule, optim::SpikePreset;

optim::UpdateHyper hyper_of(const std::vector<GuardRule>& rules, double max_grad_norm) {
  optim::UpdateHyper hyper{.max_grad_norm = max_grad_norm, .lr = 0.01f, .embedding_scale = 0.3f};
  for (const GuardRule& rule : rules) hyper.rules.rules[at(hyper.rules.count++)] = rule;
  return hyper;
}
// Every preset on both signals, with short windows and all effects.
std::vector<GuardRule> short_rules(GuardRule::Signal signal) {
  using enum GuardRule::Effect;
  const GuardRule::Effect effect = signal == GuardRule::Signal::kLoss ? kSkip : kClip;
  return {
      {signal, SpikePreset::kRobustZ, effect, 24, 6, 1}, {signal, SpikePreset::kRobustZ, kReport, 21, 1, 1},
      {signal, SpikePreset::kOlmo, effect, 30, 5, 1.5},  {signal, SpikePreset::kMegatron, effect, 3, 4, 2},
      {signal, SpikePreset::kZClip, effect, 30, 2.5, 1}, {signal, SpikePreset::kRatio, effect, 7, 3, 0.5}};
}
std::vector<std::byte> bytes_of(const void* from, size_t n) {
  std::vector<std::byte> bytes(n);
  std::memcpy(bytes.data(), from, n);
  return bytes;
}

// A series of steps with spikes, steps without a target and infinite losses: in every step the GPU's decision
// and history have the bits of the CPU's.
TEST_P(GpuScalars, StepScalars) {
  static_assert(gpu::kStepScalarsWorkspace == optim::kGuardWorkspace * 8);
  static_assert(sizeof(gpu::GpuUpdateScalars) == sizeof(UpdateScalars));
  for (const uint32_t seed : kSeeds) {
    for (const GuardRule::Signal signal : {GuardRule::Signal::kLoss, GuardRule::Signal::kGradNorm}) {
      restart(seed);
      const optim::UpdateHyper hyper = hyper_of(short_rules(signal), seed == 1 ? 0 : 1.7);
      optim::GuardHistory history;
      gpu::StepScalarsArgs args{};
      args.hyper = upload_all<optim::UpdateHyper>({hyper});
      args.scalars = output_of<gpu::GpuUpdateScalars>(1);
      args.embedding_scalars = output_of<gpu::GpuUpdateScalars>(1);
      args.norm = output_of<float>(1);
      args.updates_out = upload_all<int64_t>({3});
      args.history_out = upload_all<optim::GuardHistory>({history});
      args.decision = output_of<optim::GuardDecision>(1);
      args.workspace = output_of<double>(optim::kGuardWorkspace);
      args.updates = args.updates_out;
      args.history = args.history_out;
      int64_t updates = 3;
      uint32_t fired = 0;
      const Values noise = random_values(100, seed);
      for (int64_t step = 0; step < 50; ++step) {
        const int64_t count = step % 13 == 7 ? 0 : 5 + step % 3;
        const bool spike = step % 9 == 8 || step > 46;
        double loss_sum = 20 + noise[at(2 * step)] + (spike ? 200 : 0),
               squares = 90 + 10 * noise[at(2 * step + 1)] + (spike ? 1e5 : 0);
        if (step == 30) loss_sum = kInfinity;
        if (step == 31) squares = std::numeric_limits<double>::quiet_NaN();
        args.token_count = upload_all<int64_t>({count});
        args.loss_sum = upload_all<double>({loss_sum});
        args.squares = upload_all<double>({squares});
        launch(gpu::step_scalars(), args);

        const double mean = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
        const double norm = std::sqrt(squares) * mean;
        Values workspace(at(optim::kGuardWorkspace));
        const optim::GuardDecision decision = optim::decide_in(
            hyper.rules, loss_sum * mean, norm, count > 0, hyper.max_grad_norm, history, workspace.data());
        updates += decision.skip != 0 ? 0 : 1;
        fired |= decision.fired;
        const auto is = one_of<optim::GuardDecision>(args.decision);
        ASSERT_EQ(bytes_of(&is, sizeof is), bytes_of(&decision, sizeof is)) << step;
        const auto kept = one_of<optim::GuardHistory>(args.history_out);
        ASSERT_EQ(bytes_of(&kept, sizeof kept), bytes_of(&history, sizeof kept)) << step;
        const auto clip = static_cast<float>(decision.clip * mean);
        for (const bool embedding : {false, true}) {
          const void* const scalars = embedding ? args.embedding_scalars : args.scalars;
          EXPECT_EQ(field_of<float>(scalars, offsetof(UpdateScalars, lr)), hyper.lr);
          const auto scale = field_of<float>(scalars, offsetof(UpdateScalars, grad_scale));
          const float expected = embedding ? clip * hyper.embedding_scale : clip;
          EXPECT_TRUE(scale == expected || !std::isfinite(squares)) << step;
          EXPECT_EQ(field_of<int32_t>(scalars, offsetof(UpdateScalars, skip)), decision.skip);
          EXPECT_EQ(field_of<int64_t>(scalars, offsetof(UpdateScalars, update)), updates);
        }
        EXPECT_EQ(read(args.updates_out, 1)[0], updates);
        const float written = read(args.norm, 1)[0];
        EXPECT_TRUE(std::isnan(norm) ? std::isnan(written) : written == static_cast<float>(norm)) << step;
      }
      EXPECT_EQ(fired, (1u << hyper.rules.count) - 1) << "rules that never fired";
    }
  }
}

// The longest window, and a history that is read from one place and written to another.
TEST_P(GpuScalars, StepScalarsOfLongHistory) {
  for (const int64_t accepted : {512, 700}) {
    restart();
    const optim::UpdateHyper hyper =
        hyper_of({{GuardRule::Signal::kLoss, SpikePreset::kRobustZ, GuardRule::Effect::kSkip, 512, 8, 1},
                  {GuardRule::Signal::kGradNorm, SpikePreset::kZClip, GuardRule::Effect::kClip, 128, 2, 1}},
                 1);
    optim::GuardHistory history;
    history.accepted = accepted;
    const Values random = random_values(4 * 512, 5);
    for (size_t i = 0; i < 512; ++i) {
      history.loss.first[i] = random[i] + 2;
      history.loss.recent[i] = random[i + 512] + 2;
      history.grad_norm.first[i] = random[i + 1024] + 2;
      history.grad_norm.recent[i] = random[i + 1536] + 2;
    }
    const gpu::StepScalarsArgs args{.hyper = upload_all<optim::UpdateHyper>({hyper}),
                                    .token_count = upload_all<int64_t>({3}),
                                    .loss_sum = upload_all<double>({7}),
                                    .updates = upload_all<int64_t>({700}),
                                    .history = upload_all<optim::GuardHistory>({history}),
                                    .squares = upload_all<double>({10}),
                                    .scalars = output_of<gpu::GpuUpdateScalars>(1),
                                    .embedding_scalars = output_of<gpu::GpuUpdateScalars>(1),
                                    .norm = output_of<float>(1),
                                    .updates_out = output_of<int64_t>(1),
                                    .history_out = output_of<optim::GuardHistory>(1),
                                    .decision = output_of<optim::GuardDecision>(1),
                                    .workspace = output_of<double>(optim::kGuardWorkspace)};
    launch(gpu::step_scalars(), args);
    const auto before = one_of<optim::GuardHistory>(args.history);
    EXPECT_EQ(bytes_of(&before, sizeof before), bytes_of(&history, sizeof before));
    Values workspace(at(optim::kGuardWorkspace));
    const optim::GuardDecision decision =
        optim::decide_in(hyper.rules, 7 * (1.0 / 3), std::sqrt(10.0) * (1.0 / 3), true, hyper.max_grad_norm,
                         history, workspace.data());
    const auto is = one_of<optim::GuardDecision>(args.decision);
    EXPECT_EQ(bytes_of(&is, sizeof is), bytes_of(&decision, sizeof is));
    const auto after = one_of<optim::GuardHistory>(args.history_out);
    EXPECT_EQ(bytes_of(&after, sizeof after), bytes_of(&history, sizeof after));
    EXPECT_EQ(read(args.updates_out, 1)[0], 701);
  }
}

STRATA_GPU_TESTS(GpuScalars, "sm_80");

}  // namespace
}  // namespace strata::gpu_tests
