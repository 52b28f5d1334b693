// The settings of a model's mixtures of experts: which layers have one, how tokens are routed, and how the
// load of experts is balanced. One struct for configurations, models and layers; the attributes of ops that
// its ops are passed to their nodes unchanged.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/capacity/capacity.h"
#include "ops/clamp/clamp.h"
#include "ops/router/router.h"

namespace strata::layers {

struct MoeSpec {
  // The router's method: who chooses whom.
  enum class Router : uint8_t {
    kTopK,          // each token its experts
    kHash,          // a hash of the token, which experts weigh as for kTopK
    kTwoLevel,      // each token groups of experts, then experts of these
    kExpertChoice,  // each expert its tokens
    kSoft,          // no choice: all tokens contribute to all inputs of experts
  };
  int64_t count = 0;              // of a layer's experts; 0: no layer has any
  int64_t intermediate_size = 0;  // of one expert
  ops::RouteAttrs route = {};     // route.k of them for each token
  Router router = Router::kTopK;
  int64_t slots = 0;  // kSoft: of an expert
  // Experts are chosen by score and a bias, which loads move by ±bias_rate.
  bool router_bias = false;
  double bias_rate = 0;
  bool biases = false;                // of the router's logits and of experts; not with router_bias
  bool weighs_input = false;          // a token's weight multiplies an expert's input, not its output
  ops::ClampedGatedAttrs clamp = {};  // if it has a limit, replaces the FFN's activation
  int64_t latent_size = 0;            // width of the routed experts' inputs and outputs; 0: hidden states
  int64_t shared_size = 0;            // of the shared expert; 0: there is none
  bool shared_gate = false;           // its output is multiplied by a sigmoid per token
  // Layers from `first` on, of those every `period`-th (0: all), counted so that the last of each period has
  // them, like decoder_sparse_step, or the one at `place`; but for `dense`.
  int64_t first = 0, period = 0, place = -1;
  int64_t encoder_period = 0;  // for layers of a decoder's encoder
  double jitter = 0;           // of what routers read while they train (ops/jitter/jitter.h)
  std::vector<int64_t> dense = {};
  // The auxiliary loss (ops/router/router.h): over the tokens of each sequence, of a rank's part of the
  // micro-batch, or with probabilities of that and the counts of all ranks' tokens so far in this step
  // (Megatron-LM's).
  enum class Balance : uint8_t { kSequence, kMicroBatch, kGlobal } balance = Balance::kSequence;
  // One loss over the tokens of all layers together, as transformers has it; k times the coefficient where
  // experts are equally busy.
  bool pool_layers = false;
  double balance_coefficient = 0, z_coefficient = 0;
  // How many token-expert pairs an expert accepts among the tokens of a sequence, or of a rank's part of the
  // micro-batch; not in Mode::kCached, which lacks a text's earlier tokens.
  struct Capacity {
    int64_t slots = 0;  // this number; 0: by the factor
    double factor = 0;  // of an equal share; 0 as well: unbounded, and no pair is dropped
    int64_t least = 1;  // lower bound of the result by the factor
    bool over_sequence = true;
    ops::CapacityAttrs::Keep keep = ops::CapacityAttrs::Keep::kFirst;
    bool bounds() const { return slots > 0 || factor > 0; }
  } capacity = {};

  // Whether a layer of a decoder, of an encoder, or of a decoder's encoder has experts.
  bool at(int64_t layer) const;
  bool at_encoder(int64_t layer) const;
  // Whether experts see all tokens of a group: what takes part is decided there, and nothing is dropped.
  bool see_groups() const { return router == Router::kExpertChoice || router == Router::kSoft; }
  // Rows of the router's matrix.
  int64_t router_rows() const { return router == Router::kSoft ? count * slots : count; }
  // The fraction of the experts' weights that a token passes.
  double share_of_a_token() const { return static_cast<double>(route.k) / static_cast<double>(count); }
};

}  // namespace strata::layers
