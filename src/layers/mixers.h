// What exchanges information between the tokens of a layer besides attention: gated delta nets, state spaces
// and short convolutions. Each is a block from hidden states to hidden states.
//
// Sources: Yang et al. 2024, "Gated delta networks" (arXiv 2412.06464); Kimi Team 2025, "Kimi Linear" (arXiv
// 2510.26692); Dao and Gu 2024, "Transformers are SSMs" (arXiv 2405.21060); Liquid AI 2025, LFM2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers/layers.h"

namespace strata::layers {

// Sizes of a gated delta net. Each key head serves value_heads / key_heads consecutive value heads.
struct DeltaDims {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t taps = 4;                // of the convolutions of q, k and v
  bool decays_by_channel = false;  // of keys (Kimi delta attention), not by value head
  int64_t gate_rank = 0;           // decays and output gates pass a bottleneck of this size; 0: one matrix
  double step_scale = 1;           // 2: steps up to 2, whose states may change sign
  bool sigmoid_gate = false;       // of the output; SiLU otherwise
  double norm_eps = 1e-6;          // of the output's norm
  // Decay rates start as U(least_rate, most_rate), and step biases as 1, or so that steps start log-uniform between
  // these bounds, at least step_floor.
  double least_rate = 0, most_rate = 16;
  double least_step = 0, most_step = 0, step_floor = 0;

  int64_t key_width() const { return key_heads * key_dim; }
  int64_t value_width() const { return value_heads * value_dim; }
  bool operator==(const DeltaDims&) const = default;
};

// Sizes of a state space (Mamba-2). Head n reads the keys and queries (B and C) of group n · groups / heads.
struct StateSpaceDims {
  int64_t heads = 0, head_dim = 0, groups = 1, state_dim = 0;
  int64_t taps = 4;
  bool convolution_bias = true, bias = false;  // `bias`: of the projections
  double least_dt = 0, greatest_dt = 0;        // bounds of steps; greatest_dt = 0: none
  enum class Norm : uint8_t { kAbsent, kGateFirst, kNormFirst } norm = Norm::kGateFirst;
  double norm_eps = 1e-5;
  // Factors on the results of the projections: [z, x, B, C, dt] (Falcon-H1).
  std::vector<double> multipliers = {1, 1, 1, 1, 1};
  // Where step biases start, as DeltaDims has it; deviations of first weights, 0: the scheme's.
  double least_step = 0, most_step = 0, step_floor = 0;
  double convolution_std = 0, out_std = 0;

  int64_t width() const { return heads * head_dim; }
  int64_t group_width() const { return groups * state_dim; }
  bool operator==(const StateSpaceDims&) const = default;
};

struct ShortConvolutionDims {
  int64_t taps = 3;
  bool bias = false;  // of projections and convolution
  bool operator==(const ShortConvolutionDims&) const = default;
};

// Parameters NAME.qkv, NAME.gate (with gate_rank NAME.gate_down and .gate_up), NAME.step [value heads, d],
// NAME.decay (or .decay_down, .decay_up), NAME.convolution.weight [q | k | v, taps], NAME.decay_rate, NAME.step_bias,
// NAME.norm.weight [value_dim], NAME.out.
struct DeltaSpec {
  std::string name = {};
  int64_t hidden_size = 0;
  DeltaDims dims = {};
};
ValueId delta_net(Context& context, const DeltaSpec& spec, ValueId x);

// Parameters NAME.xbc [x | B | C], NAME.gate, NAME.step, NAME.convolution.*, NAME.decay_rate, NAME.step_bias, NAME.skip,
// NAME.norm.weight, NAME.out.
struct StateSpaceSpec {
  std::string name = {};
  int64_t hidden_size = 0;
  StateSpaceDims dims = {};
};
ValueId state_space(Context& context, const StateSpaceSpec& spec, ValueId x);

// y = W_out (C ⊙ conv(B ⊙ x)); parameters NAME.before (B), NAME.after (C), NAME.x, NAME.convolution.*, NAME.out.
struct ShortConvolutionSpec {
  std::string name = {};
  int64_t hidden_size = 0;
  ShortConvolutionDims dims = {};
};
ValueId short_convolution(Context& context, const ShortConvolutionSpec& spec, ValueId x);

}  // namespace strata::layers
