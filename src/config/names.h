// Spelling of enum values in configurations. Each enum is declared in the module that uses it.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace strata::config {

template <typename E>
struct Named {
  E value;
  std::string_view name;
};

template <typename E>
using Names = std::vector<Named<E>>;

// Names that the enum's module defines.
template <typename E>
Names<E> named(std::initializer_list<E> values) {
  Names<E> all;
  for (const E value : values) all.push_back({value, name_of(value)});
  return all;
}

// names_of: every value that a key may have, in the order of messages.

inline Names<ModelInit> names_of(ModelInit) {
  using enum ModelInit;
  return {{kWeights, "weights"}, {kRandom, "random"}};
}
inline Names<models::InitScheme> names_of(models::InitScheme) {
  using enum models::InitScheme;
  return named({kPlain, kScaledResidual, kSmallWang, kTruncatedNormal, kMitchell});
}
inline Names<data::SpecialInText> names_of(data::SpecialInText) {
  using enum data::SpecialInText;
  return {{kToken, "token"}, {kText, "text"}, {kRefuse, "refuse"}};
}
inline Names<data::Pack> names_of(data::Pack) {
  using enum data::Pack;
  return {{kDocuments, "documents"}, {kStream, "stream"}, {kBestFit, "best_fit"}};
}
inline Names<data::Objective> names_of(data::Objective) {
  using enum data::Objective;
  return {{kCausal, "causal"}, {kMasked, "masked"}, {kSpanCorruption, "span_corruption"}};
}
Names<OptimizerKind> names_of(OptimizerKind);
inline Names<optim::ScheduleKind> names_of(optim::ScheduleKind) {
  using enum optim::ScheduleKind;
  return {{kCosine, "cosine"},
          {kWsd, "wsd"},
          {kLinear, "linear"},
          {kConstant, "constant"},
          {kInverseSqrt, "inverse_sqrt"}};
}
inline Names<optim::DecayShape> names_of(optim::DecayShape) {
  using enum optim::DecayShape;
  return {{kLinear, "linear"}, {kSqrt, "sqrt"}, {kCosine, "cosine"}};
}
inline Names<StateDtype> names_of(StateDtype) {
  return {{StateDtype::kFp32, "fp32"}, {StateDtype::kBf16, "bf16"}, {StateDtype::kFp8, "fp8"}};
}
inline Names<optim::Rounding> names_of(optim::Rounding) {
  using enum optim::Rounding;
  return {{kStochastic, "stochastic"}, {kKahan, "kahan"}, {kNearest, "nearest"}};
}
inline Names<DType> names_of(DType) {
  return {{DType::kBF16, "bf16"},
          {DType::kF32, "fp32"},
          {DType::kF16, "fp16"},
          {DType::kE4M3, "fp8"},
          {DType::kE2M1, "fp4"}};
}
inline Names<quantize::PartialSums> names_of(quantize::PartialSums) {
  using enum quantize::PartialSums;
  return {{kF32, "fp32"}, {kHopper, "hopper"}, {kHopperPromoted, "hopper_promoted"}};
}
inline Names<program::Recompute> names_of(program::Recompute) {
  using enum program::Recompute;
  return named({kNone, kSelective, kFull});
}
inline Names<device::Kind> names_of(device::Kind) {
  return {{device::Kind::kCpu, "cpu"}, {device::Kind::kCuda, "cuda"}};
}
inline Names<layers::ContextKind> names_of(layers::ContextKind) {
  using enum layers::ContextKind;
  return {{kAllGather, "all_gather"}, {kRing, "ring"}, {kUlysses, "ulysses"}};
}
inline Names<layers::Settings::Indexer> names_of(layers::Settings::Indexer) {
  using enum layers::Settings::Indexer;
  return {{kDense, "warmup"}, {kSparse, "sparse"}};
}
inline Names<Dispatch> names_of(Dispatch) {
  return {{Dispatch::kFlat, "flat"}, {Dispatch::kTwoLevel, "two_level"}};
}
inline Names<Progress> names_of(Progress) {
  return {{Progress::kInline, "inline"}, {Progress::kThread, "thread"}};
}
inline Names<Backend> names_of(Backend) {
  return {{Backend::kLocal, "local"}, {Backend::kMpi, "mpi"}};
}
inline Names<models::Experts::Router> names_of(models::Experts::Router) {
  using enum models::Experts::Router;
  // The enum's own module has no names for it; models has.
  Names<models::Experts::Router> all;
  for (const auto router : {kTopK, kHash, kTwoLevel, kExpertChoice, kSoft})
    all.push_back({router, models::name_of(router)});
  return all;
}
inline Names<models::Experts::Balance> names_of(models::Experts::Balance) {
  using enum models::Experts::Balance;
  return {{kSequence, "sequence"}, {kMicroBatch, "micro_batch"}, {kGlobal, "global"}};
}
inline Names<ops::CapacityAttrs::Keep> names_of(ops::CapacityAttrs::Keep) {
  using enum ops::CapacityAttrs::Keep;
  return {{kFirst, "position"}, {kGreatest, "probability"}};
}
inline Names<CapacityOver> names_of(CapacityOver) {
  using enum CapacityOver;
  return {{kSequence, "sequence"}, {kMicroBatch, "micro_batch"}};
}

inline Names<RecoveryRules> names_of(RecoveryRules) {
  return {{RecoveryRules::kAuto, "auto"}, {RecoveryRules::kNone, "none"}};
}
inline Names<PeerCopies> names_of(PeerCopies) {
  return {{PeerCopies::kAuto, "auto"}, {PeerCopies::kNever, "never"}};
}
inline Names<RecoveryRule::When> names_of(RecoveryRule::When) {
  using enum RecoveryRule::When;
  return {{kNonfinite, "nonfinite"},      {kLossSpike, "loss_spike"},  {kGradSpike, "grad_spike"},
          {kLossHigh, "loss_high"},       {kDivergence, "divergence"}, {kPlateau, "plateau"},
          {kLogitGrowth, "logit_growth"}, {kCorruption, "corruption"}};
}
inline Names<optim::SpikePreset> names_of(optim::SpikePreset) {
  using enum optim::SpikePreset;
  return named({kRobustZ, kOlmo, kMegatron, kZClip, kRatio});
}
inline Names<RecoveryRule::Action> names_of(RecoveryRule::Action) {
  using enum RecoveryRule::Action;
  return {{kSkipUpdate, "skip_update"},
          {kRollback, "rollback"},
          {kRollbackSkip, "rollback_skip"},
          {kEaseLr, "ease_lr"},
          {kClip, "clip"},
          {kShrinkEmbedding, "shrink_embedding"},
          {kAlert, "alert"},
          {kStop, "stop"}};
}

// Spelled as in the key.
template <typename E>
std::string_view spelled(E value) {
  for (const Named<E>& one : names_of(E{}))
    if (one.value == value) return one.name;
  throw InternalError("[config] a value of an enum has no name");
}
template <typename E>
std::optional<E> value_named(std::string_view name) {
  for (const Named<E>& one : names_of(E{}))
    if (one.name == name) return one.value;
  return std::nullopt;
}

}  // namespace strata::config
