// Switch Transformers (Fedus et al. 2021, arXiv 2101.03961), T5 with experts in some layers: each token goes
// to one expert, up to its capacity, weighted by its probability. Follows transformers (switch_transformers).

#include "base/error.h"
#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/t5_layout.h"

namespace strata::models {
namespace {

// The period of layers with experts, which are at 1 of each period; all layers have experts if it is 1. If
// the config.json asks for none, in transformers layer 1 has experts.
int64_t period_of(int64_t layers, int64_t sparse) {
  return sparse > 0 ? layers / sparse : layers;
}

// The number of sparse layers for that period.
int64_t sparse_layers(int64_t layers, int64_t period) {
  return std::max<int64_t>(1, layers / std::max<int64_t>(1, period));
}

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_t5_keys(json, kSwitch);
  config.gated = false;
  config.activation = json.activation("dense_act_fn", "relu");
  json.require_equal("router_bias", false);
  json.require_equal("router_dtype", "float32");
  const int64_t encoder = json.count_or("num_sparse_encoder_layers", 3),
                decoder = json.count_or("num_sparse_decoder_layers", 3);
  if (encoder > config.encoder_layers || decoder > config.layers)
    throw DataError(
        "[{}] found {} sparse layers of {} in the encoder and {} of {} in the decoder: expected at most all",
        where, encoder, config.encoder_layers, decoder, config.layers);
  config.experts = {.count = json.integer_or("num_experts", 8),
                    .intermediate_size = config.intermediate_size,
                    .period = period_of(config.layers, decoder),
                    .place = 1,
                    .encoder_period = period_of(config.encoder_layers, encoder),
                    .jitter = json.real_or("router_jitter_noise", 0.01),
                    .balance_coefficient = json.real_or("router_aux_loss_coef", 0.001),
                    .z_coefficient = json.real_or("router_z_loss_coef", 0.001),
                    .capacity = {.slots = json.integer_or("expert_capacity", 64)}};
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = t5_keys(config, "SwitchTransformersForConditionalGeneration", dtype);
  const Experts& experts = config.experts;
  json["dense_act_fn"] = name_of(config.activation);
  json["expert_capacity"] = experts.capacity.slots > 0 ? experts.capacity.slots : 64;
  json["num_experts"] = experts.count;
  json["num_sparse_decoder_layers"] = sparse_layers(config.layers, experts.period);
  json["num_sparse_encoder_layers"] = sparse_layers(config.encoder_layers, experts.encoder_period);
  json["router_aux_loss_coef"] = experts.balance_coefficient;
  json["router_bias"] = false;
  json["router_dtype"] = "float32";
  json["router_ignore_padding_tokens"] = false;
  json["router_jitter_noise"] = experts.jitter;
  json["router_z_loss_coef"] = experts.z_coefficient;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return t5_tensors(config, "mlp");
}

#define STRATA_SWITCH(experts, sparse)                                         \
  R"("decoder_start_token_id":0,"expert_capacity":64,"num_experts":)" #experts \
  R"(,"num_sparse_encoder_layers":)" #sparse R"(,"num_sparse_decoder_layers":)" #sparse
constexpr PresetRow kPresets[] = {
    {"switch-base-8", "Switch base, 1 of 8 experts in every other layer", 768, 12, 12, 12, 64, 3072, 32128,
     512, STRATA_SWITCH(8, 6)},
    {"switch-base-128", "Switch base, 1 of 128 experts", 768, 12, 12, 12, 64, 3072, 32128, 512,
     STRATA_SWITCH(128, 6)},
    {"switch-large-128", "Switch large, 1 of 128 experts", 1024, 24, 16, 16, 64, 4096, 32128, 512,
     STRATA_SWITCH(128, 12)},
};
#undef STRATA_SWITCH

}  // namespace

const Family kSwitch{
    .name = "switch",
    .model_type = "switch_transformers",
    .build = build_encoder_decoder,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = t5_ignores,
    .size_keys = {"d_model", "num_layers", "num_heads", nullptr, "d_kv", "d_ff", nullptr},
    .presets = kPresets,
};

}  // namespace strata::models
