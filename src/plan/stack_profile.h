// Profiles of training stacks: bytes of a parameter, kept activations, overlap of communication, speed.
//
// Profiles are data (data/planning/stacks.toml, compiled into the program). Facts are read in the stacks'
// documentation and code; the few fitted constants come from published runs and are written by
// bench/plan_fit (data/planning/fitted.toml).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/catalogue.h"
#include "plan/published_runs.h"

namespace strata::planning {

// Attention kernels by speed. kScores writes the scores to memory, as before FlashAttention.
enum class AttentionKernel { kScores, kFlash1, kFlash2, kTuned };
inline constexpr size_t kAttentionKernels = 4;
std::string_view to_string(AttentionKernel kernel);

// A constant fitted on published runs.
struct Fitted {
  double value = 1.0;
  int64_t rows = 0;  // of this stack or family that the fit used; 0: `value` is the assumption without rows
};

// A family of chips with the same kernels.
struct ChipFamily {
  std::string name;
  std::vector<std::string> chips;
  // The bf16 GEMM fraction (catalogue) of the chips for which `attention` was measured; others of the family,
  // with less or more power, scale with theirs.
  double reference = 0.7;
  // Fraction of the bf16 peak that attention reaches, forward and backward together, without the work that
  // causal kernels skip; by AttentionKernel. Unused for kScores.
  std::array<double, kAttentionKernels> attention = {};
  Fitted gemm;  // factor on the achievable fractions of the catalogue
};

struct StackProfile {
  std::string name;
  std::string like;    // the stack whose fitted constants it shares; empty: its own
  std::string source;  // of the facts
  // Other profiles by family of chips: later versions of the stack run on later chips.
  std::vector<std::pair<std::string, std::string>> on;
  // Strata's own programs, which program_model.h prices as the compiler makes them: without fitted constants.
  bool compiled = false;

  // Bytes of a parameter on a device before sharding.
  double weight_bytes = 2;        // as used by the matmuls
  double gradient_bytes = 4;      // accumulated
  double optimizer_bytes = 12;    // master weights and moments
  double reduce_bytes = 4;        // of a gradient on the wire
  bool shards_optimizer = false;  // over the data axis if a row does not publish it
  bool keeps_gathered = false;    // with pipeline stages, ZeRO-3 weights stay gathered during the step
  bool keeps_outputs = false;     // with pipeline stages, the logits of all micro-batches stay

  AttentionKernel attention = AttentionKernel::kTuned;
  // What selective recomputation repeats: a share of the matmuls of the forward pass, of its element-wise
  // operations, and of its attention.
  double selective_matmuls = 0.3;
  double selective_elementwise = 1;
  double selective_attention = 0;
  double selective_kept = 1;  // share of a layer's activations that remain
  Recompute default_recompute = Recompute::kNone;
  // Runs without a published value recompute whole layers until they fit. Other stacks may offload instead.
  bool recomputes_to_fit = false;
  bool dropout = false;     // keeps masks: 34 instead of 32 bytes (arXiv 2205.05198)
  double logit_bytes = 10;  // for each logit, at the peak of the loss
  std::vector<std::pair<std::string, double>> logit_bytes_on;  // other values, by chip

  // Shares of communication that computation does not hide.
  double tensor_exposed = 0.6;
  double data_exposed = 0.25;
  double pipeline_exposed = 0.3;
  bool overlaps_gathers = true;   // ZeRO-3 gathers during computation
  int64_t reduce_messages = 1;    // collectives that reduce the gradients of a layer
  int64_t stages_if_unknown = 1;  // virtual stages of a pipeline rank if a row does not publish them
  int64_t gather_messages = 1;    // collectives that gather the weights of a layer
  bool local_batch =
      false;  // its micro_batch is the batch of a replica: pipelines split it into single sequences
  double memory_unit = 1e9;   // bytes of a "GB" in its logs
  double reserved_bytes = 0;  // context, communication buffers and other memory that formulas leave out

  Fitted efficiency;  // of matmuls, relative to the family's
  Fitted fixed;       // s of a step outside computation and communication: launches, host, logging
};

// Half-widths of 90 % intervals, as factors: exp(width).
struct StackInterval {
  std::string stack;
  double step = 0;  // of |log(predicted / published)|
  int64_t rows = 0;
};

struct Profiles {
  std::vector<ChipFamily> families;
  std::vector<StackProfile> stacks;
  double elementwise = 1;  // factor on the bytes of element-wise operations, fitted for all stacks
  double imbalance = 1.1;  // most loaded expert rank over the mean
  std::vector<StackInterval> intervals;
  double unknown_stack = 0;        // half-width for a stack without rows
  double unknown_chip = 0;         // added (in quadrature) for a family without rows in the fit
  std::string fitted_on;           // "46 of 207 rows, 2026-11-26"
  std::vector<uint64_t> fit_rows;  // input_hash() of the rows of the fit

  // The profile of the stack on a chip: another one if `on` names the chip's family.
  const StackProfile& stack_on(std::string_view name, std::string_view chip) const;
  const StackProfile& stack(std::string_view name) const;    // ConfigError with the nearest name
  const ChipFamily* family_of(std::string_view chip) const;  // null: not in a family
  // Half-width of the 90 % interval of the logarithm of a step's time. Null: a stack without published runs.
  double interval_width(const StackProfile* stack, const ChipFamily* family) const;
};

Profiles builtin_profiles();
// ConfigError with file, line and key. `fitted` may be empty: constants then have their assumed values.
Profiles parse_profiles(std::string_view stacks, std::string_view fitted);
// The text of data/planning/fitted.toml for the fitted constants of `profiles`.
std::string fitted_file(const Profiles& profiles);

}  // namespace strata::planning
