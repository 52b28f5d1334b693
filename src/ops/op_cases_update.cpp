// Rows of the optimizer's ops.
#include "ops/case_operands.h"
#include "optim/optimizer.h"
#include "optim/router_bias.h"
#include "tensor/update_scalars.h"

namespace strata::device::op_rows {
namespace {

const UpdateScalars kScalars{.lr = 0.1f,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8f,
                             .bias_correction1 = 0.19f,
                             .bias_correction2 = 0.0975f,
                             .grad_scale = 0.25f,
                             .skip = 0,
                             .update = 3};

Operand partials(int64_t n) {
  return {.dtype = DType::kF64, .shape = {n}, .content = [](int64_t i) {
            return 0.3 + 0.7 * static_cast<double>(i);
          }};
}

// Whole matrices; and k and v of [q | k | v], which share a state, beside a matrix of its own.
void add_muon_stacks(std::vector<OpCase>& cases, const Operand& scalars) {
  const auto rule = [](double lr_scale, bool nesterov = true) {
    return optim::UpdateRule{
        .weight_decay = 0.1, .lr_scale = lr_scale, .optimizer = optim::Muon{.nesterov = nesterov}};
  };
  const optim::UpdateAttrs k{rule(0.5), 48, 24, 96, 0, 48}, v{rule(0.25), 72, 24, 96, 24, 48}, own{rule(1)};
  const Operand fused = f32({96, 20}), shared = f32({48, 20}), alone = f32({24, 20});
  const optim::MuonStackAttrs rows{{{0, v}, {}, {1, own}, {0, k}}},
      whole{{{1, own}, {0, {rule(0.5, false)}}, {}}};
  cases.push_back({.name = "muon_momentum",
                   .op = &optim::kMuonMomentum,
                   .inputs = {alone, alone, alone, alone, scalars},
                   .attrs = whole,
                   .updates = {0, 2, -1}});
  cases.push_back({.name = "muon_momentum_rows",
                   .op = &optim::kMuonMomentum,
                   .inputs = {shared, fused, alone, alone, scalars},
                   .attrs = rows,
                   .updates = {0, 2, -1},
                   .ragged = true});
  cases.push_back({.name = "muon_apply",
                   .op = &optim::kMuonApply,
                   .inputs = {alone, alone, f32({3, 24, 20}), scalars},
                   .attrs = whole,
                   .updates = {0, 1}});
  cases.push_back({.name = "muon_apply_rows",
                   .op = &optim::kMuonApply,
                   .inputs = {fused, alone, f32({4, 24, 20}), scalars},
                   .attrs = rows,
                   .updates = {0, 1},
                   .ragged = true});
  for (const auto& [name, shape] : std::initializer_list<std::pair<const char*, Shape>>{
           {"newton_schulz_wide", {4, 12, 20}}, {"newton_schulz_tall", {2, 20, 12}}})
    cases.push_back({.name = name,
                     .op = &optim::kNewtonSchulz,
                     .inputs = {f32(shape)},
                     .attrs = optim::NewtonSchulzAttrs{}});
  // Nothing but zeros in the second matrix.
  cases.push_back({.name = "newton_schulz_of_nothing",
                   .op = &optim::kNewtonSchulz,
                   .inputs = {f32_of(
                       {2, 8, 8}, [](int64_t i) { return i < 64 ? 0.01 * static_cast<double>(i % 7) : 0; })},
                   .attrs = optim::NewtonSchulzAttrs{}});
}

// A part of a tensor of 36 rows: 24 of them are here, in a parameter of their own or of 96 rows.
void add_adafactor_shards(std::vector<OpCase>& cases, const Operand& scalars) {
  const optim::UpdateRule rule{
      .weight_decay = 0.1, .lr_scale = 0.5, .optimizer = optim::Adafactor{.clip_threshold = 0.8}};
  const optim::AdafactorShardAttrs whole{{rule}, 36}, rows{{rule, 48, 24, 96, 0, 24}, 36};
  const Operand row = positive({24}), column = positive({20}), f64_one = partials(1);
  const Operand sums{.dtype = DType::kF64, .shape = {22}, .content = [](int64_t i) {
                       return 0.4 + 0.3 * static_cast<double>(i);
                     }};
  for (const auto& [name, attrs, matrix] :
       std::initializer_list<std::tuple<std::string, optim::AdafactorShardAttrs, Operand>>{
           {"", whole, f32({24, 20})}, {"_rows", rows, f32({96, 20})}}) {
    const bool ragged = !name.empty();
    cases.push_back({.name = "adafactor_sums" + name,
                     .op = &optim::kAdafactorSums,
                     .inputs = {matrix, row, matrix, scalars},
                     .attrs = attrs,
                     .updates = {1, -1},
                     .ragged = ragged});
    cases.push_back({.name = "adafactor_columns" + name,
                     .op = &optim::kAdafactorColumns,
                     .inputs = {row, column, matrix, sums, scalars},
                     .attrs = attrs,
                     .updates = {1, -1},
                     .ragged = ragged});
    cases.push_back({.name = "adafactor_apply" + name,
                     .op = &optim::kAdafactorApply,
                     .inputs = {matrix, row, column, matrix, sums, f64_one, scalars},
                     .attrs = attrs,
                     .updates = {0},
                     .ragged = ragged});
  }
  cases.push_back({.name = "adafactor_sums_vector",
                   .op = &optim::kAdafactorSums,
                   .inputs = {f32({24}), row, f32({24}), scalars},
                   .attrs = whole,
                   .updates = {1, -1}});
  cases.push_back({.name = "adafactor_apply_vector",
                   .op = &optim::kAdafactorApply,
                   .inputs = {f32({24}), row, absent(), f32({24}), partials(2), absent(), scalars},
                   .attrs = whole,
                   .updates = {0}});
}

}  // namespace

void add_update_rows(std::vector<OpCase>& cases) {
  const Operand scalars = bytes_of(kScalars, optim::kScalarBytes);
  const auto with = [](const optim::Optimizer& optimizer) {
    return optim::UpdateAttrs{{.weight_decay = 0.1, .lr_scale = 0.5, .optimizer = optimizer}};
  };
  // Some rows of a parameter of 96: of k in [q | k | v], whose states k and v share.
  const auto rows = [&](const optim::Optimizer& optimizer, int64_t first, int64_t count, int64_t state,
                        int64_t states) {
    optim::UpdateAttrs attrs = with(optimizer);
    attrs.first_row = first;
    attrs.rows = count;
    attrs.of_rows = 96;
    attrs.state_row = state;
    attrs.state_rows = states;
    return attrs;
  };
  const Operand bias = f32({96}, {48, 24, 24});
  const optim::AdamW adamw;
  cases.push_back({"adamw",
                   &optim::kAdamW,
                   {f32({12, 20}), f32({12, 20}), positive({12, 20}), f32({12, 20}), scalars},
                   with(adamw),
                   {0, 1, 2}});
  cases.push_back({"adamw_rows",
                   &optim::kAdamW,
                   {bias, f32({48}, {24, 24}), positive({48}, {24, 24}), bias, scalars},
                   rows(adamw, 72, 24, 24, 48),
                   {0, 1, 2}});
  const optim::Lion lion;
  cases.push_back(
      {"lion", &optim::kLion, {f32({12, 20}), f32({12, 20}), f32({12, 20}), scalars}, with(lion), {0, 1}});
  cases.push_back({.name = "router_bias_update",
                   .op = &optim::kRouterBiasUpdate,
                   .inputs = {f32({6}),
                              {.dtype = DType::kI64,
                               .shape = {6},
                               .content = [](int64_t i) { return static_cast<double>(i * 5 % 7); }},
                              scalars},
                   .attrs = optim::RouterBiasAttrs{0.01},
                   .updates = {0},
                   .replicated_only = true});
  cases.push_back({"lion_rows",
                   &optim::kLion,
                   {bias, f32({48}, {24, 24}), bias, scalars},
                   rows(lion, 48, 24, 0, 48),
                   {0, 1}});
  for (const auto& [name, nesterov, first, second] :
       std::initializer_list<std::tuple<const char*, bool, int64_t, int64_t>>{
           {"muon_wide", true, 12, 20},
           {"muon_tall", true, 20, 12},
           {"muon_without_nesterov", false, 16, 16}}) {
    cases.push_back({.name = name,
                     .op = &optim::kMuon,
                     .inputs = {f32({first, second}), f32({first, second}), f32({first, second}), scalars},
                     .attrs = with(optim::Muon{.nesterov = nesterov}),
                     .updates = {0, 1},
                     .replicated_only = true});
  }
  cases.push_back({.name = "muon_rows",
                   .op = &optim::kMuon,
                   .inputs = {f32({96, 20}), f32({48, 20}), f32({96, 20}), scalars},
                   .attrs = rows(optim::Muon{}, 72, 24, 24, 48),
                   .updates = {0, 1},
                   .replicated_only = true});
  add_muon_stacks(cases, scalars);
  const optim::Adafactor adafactor{.clip_threshold = 0.8};
  cases.push_back({.name = "adafactor",
                   .op = &optim::kAdafactor,
                   .inputs = {f32({12, 20}), positive({12}), positive({20}), f32({12, 20}), scalars},
                   .attrs = with(adafactor),
                   .updates = {0, 1, 2},
                   .replicated_only = true});
  cases.push_back({.name = "adafactor_rows",
                   .op = &optim::kAdafactor,
                   .inputs = {f32({96, 20}), positive({24}), positive({20}), f32({96, 20}), scalars},
                   .attrs = rows(adafactor, 48, 24, 0, 24),
                   .updates = {0, 1, 2},
                   .replicated_only = true});
  cases.push_back({.name = "adafactor_vector",
                   .op = &optim::kAdafactorVector,
                   .inputs = {f32({57}), positive({57}), f32({57}), scalars},
                   .attrs = with(adafactor),
                   .updates = {0, 1},
                   .replicated_only = true});
  add_adafactor_shards(cases, scalars);
  // Rows of whole blocks can be cut anywhere, others nowhere. A code may fall to the neighbour's where
  // rounding decides: then a moment differs by the distance of two codes.
  const auto codes = [](Shape shape) {
    return Operand{.dtype = DType::kU8, .shape = shape, .content = [](int64_t i) {
                     return static_cast<double>(i * 37 % 256);
                   }};
  };
  cases.push_back({.name = "adamw8bit",
                   .op = &optim::kAdamW8Bit,
                   .inputs = {f32({8, 512}), codes({8, 512}), positive({16}), codes({8, 512}), positive({16}),
                              f32({8, 512}), scalars},
                   .attrs = with(optim::AdamW8Bit{}),
                   .updates = {0, 1, 2, 3, 4}});
  cases.push_back({.name = "adamw8bit_rows",
                   .op = &optim::kAdamW8Bit,
                   .inputs = {f32({96, 20}), codes({24, 20}), positive({2}), codes({24, 20}), positive({2}),
                              f32({96, 20}), scalars},
                   .attrs = rows(optim::AdamW8Bit{}, 48, 24, 0, 24),
                   .updates = {0, 1, 2, 3, 4},
                   .replicated_only = true});
  // Rows 3 to 5 and 8 to 11 of a tensor of 11, behind a part of 5 rows, and columns 10 to 20 of 30: what the
  // second of two ranks has along each of two axes. A row of memory is padding.
  const optim::AdamW8BitShardAttrs held{.update =
                                            [&] {
                                              optim::UpdateAttrs attrs = rows(optim::AdamW8Bit{}, 8, 6, 0, 6);
                                              attrs.of_rows = 20;
                                              return attrs;
                                            }(),
                                        .rows = {.axes = {Axis::kTensor}, .parts = {{5, {3}}, {6, {3}}}},
                                        .columns = {.axes = {Axis::kShard}, .parts = {{30, {10}}}},
                                        .axes = {Axis::kTensor},
                                        .ranks = {1}};
  const Operand own = codes({6, 10}), scales = positive({2}), gradient = f32({20, 10}),
                rank = rank_at({{Axis::kShard, 1}, {Axis::kTensor, 1}});
  cases.push_back({.name = "adamw8bit_largest",
                   .op = &optim::kAdamW8BitLargest,
                   .inputs = {own, scales, own, scales, gradient, scalars, rank},
                   .attrs = held,
                   .replicated_only = true});
  cases.push_back({.name = "adamw8bit_shard",
                   .op = &optim::kAdamW8BitShard,
                   .inputs = {gradient, own, scales, own, scales, gradient, scalars, rank,
                              f32_of({2, 4}, [](int64_t i) { return 0.9 + 0.2 * static_cast<double>(i); })},
                   .attrs = held,
                   .updates = {0, 1, 2, 3, 4},
                   .replicated_only = true});
  cases.push_back({"sum_of_squares", &optim::kSumOfSquares, {f32({12, 20})}});
  cases.push_back({.name = "sum_of_squares_blocks",
                   .op = &optim::kSumOfSquares,
                   .inputs = {f32({2 * optim::kNormBlock + 3})},
                   .ragged = true});
  for (const auto& [name, limit, count] : std::initializer_list<std::tuple<const char*, double, double>>{
           {"", 0.0, 7.0}, {"_clipped", 0.1, 7.0}, {"_without_a_target", 1.0, 0.0}}) {
    optim::UpdateHyper hyper;
    hyper.max_grad_norm = limit;
    hyper.lr = 0.01f;
    cases.push_back(
        {.name = std::string("update_scalars") + name,
         .op = &optim::kUpdateScalars,
         .inputs = {bytes_of(hyper, optim::kScalarBytes), i64_of(count), i64_of(4), partials(3), partials(1)},
         .replicated_only = true,
         .opaque = {0}});
  }
  cases.push_back({.name = "root_of_sum",
                   .op = &optim::kRootOfSum,
                   .inputs = {partials(1), partials(4)},
                   .replicated_only = true});
  cases.push_back(
      {.name = "sum_of_partials", .op = &optim::kSumOfPartials, .inputs = {partials(1), partials(4)}});
}

}  // namespace strata::device::op_rows
