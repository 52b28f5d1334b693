#include "train/layer_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "comm/exchange.h"

namespace strata::training {

using program::Statistic;
using program::StatisticsGroup;
using program::Watched;

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Statistic& one) {
  return Json::array({static_cast<int>(one.what), static_cast<int>(one.group), one.layer, one.tensor,
                      one.elements, one.is_matrix, one.is_head, one.parts, one.scale});
}

Statistic statistic_of(const Json& json) {
  return {.what = static_cast<Watched>(json.at(0).get<int>()),
          .group = static_cast<StatisticsGroup>(json.at(1).get<int>()),
          .layer = json.at(2),
          .tensor = json.at(3),
          .elements = json.at(4),
          .is_matrix = json.at(5),
          .is_head = json.at(6),
          .parts = json.at(7),
          .scale = json.at(8)};
}

bool is_on(int64_t mask, const Statistic& one) {
  return (mask & program::bit_of(one.group)) != 0;
}

// Statistics of the values divided by `scale`.
StatisticsTable divided(StatisticsTable table, double scale) {
  table.sum /= scale;
  table.greatest /= scale;
  table.squares /= scale * scale;
  table.row_squares /= scale * scale;
  return table;
}

std::optional<double> root_mean(double squares, double count) {
  if (count <= 0) return std::nullopt;
  return std::sqrt(squares / count);
}

std::optional<double> ratio_of_update(const MeasuredValue* update, const MeasuredValue* weight) {
  if (update == nullptr || weight == nullptr) return std::nullopt;
  const auto changed = root_mean(update->table.squares, update->table.elements);
  const auto size = root_mean(weight->table.squares, weight->of.elements);
  if (!changed || !size || *size == 0) return std::nullopt;
  return *changed / *size;
}

// By quantity, then tensor.
using ByTensor = std::map<std::pair<Watched, std::string_view>, const MeasuredValue*>;
ByTensor by_tensor(const std::vector<MeasuredValue>& values) {
  ByTensor found;
  for (const MeasuredValue& value : values) {
    if (!value.of.tensor.empty()) found[{value.of.what, value.of.tensor}] = &value;
  }
  return found;
}
const MeasuredValue* find(const ByTensor& values, Watched what, std::string_view tensor) {
  const auto at = values.find({what, tensor});
  return at == values.end() ? nullptr : at->second;
}

void add_figures(StepStatistics& to, double micro_batches) {
  const double tokens = to.tokens;
  const ByTensor values = by_tensor(to.values);
  std::map<double, NoiseSquares> noise;  // by parts
  std::optional<double> hidden, head;
  std::map<int32_t, double> queries, keys;
  double ratios = 0, matrices = 0;
  for (const MeasuredValue& value : to.values) {
    const double row = std::sqrt(value.table.row_squares);
    switch (value.of.what) {
      case Watched::kFirstGradient: {
        const MeasuredValue* const whole = find(values, Watched::kGradient, value.of.tensor);
        if (whole == nullptr || tokens <= 0) break;
        NoiseSquares& sum = noise[value.of.parts];
        sum.parts = value.of.parts;
        const double part_tokens = tokens / value.of.parts, measured = value.of.parts / micro_batches;
        // A gradient that is not finite has no squares.
        const bool is_finite = value.table.nonfinite == 0 && whole->table.nonfinite == 0;
        sum.part += is_finite ? value.table.squares / measured / (part_tokens * part_tokens)
                              : std::numeric_limits<double>::quiet_NaN();
        sum.whole += whole->table.squares / (tokens * tokens);
        break;
      }
      case Watched::kWeight:
        if (value.of.is_head) head = row;
        break;
      case Watched::kUpdate: {
        const auto ratio = ratio_of_update(&value, find(values, Watched::kWeight, value.of.tensor));
        if (!value.of.is_matrix || !ratio) break;
        ratios += *ratio;
        ++matrices;
        break;
      }
      case Watched::kQueries:
        queries[value.of.layer] = row * std::abs(value.of.scale);
        break;
      case Watched::kKeys:
        keys[value.of.layer] = row;
        break;
      case Watched::kHidden:
        hidden = row;
        break;
      case Watched::kGradient:
      case Watched::kStream:
      case Watched::kActivation:
        break;
    }
  }
  for (const auto& [parts, squares] : noise) to.noise.push_back(squares);
  if (matrices > 0) to.update_ratio = ratios / matrices;
  if (hidden && head) to.logit_max = *hidden * *head;
  for (const auto& [layer, greatest] : queries) {
    const auto key = keys.find(layer);
    if (key != keys.end()) to.attention_max = std::max(to.attention_max.value_or(0), greatest * key->second);
  }
}

}  // namespace

std::vector<observe::LayerStatistics> layers_of(const StepStatistics& statistics) {
  std::vector<observe::LayerStatistics> rows;
  const ByTensor values = by_tensor(statistics.values);
  for (const MeasuredValue& value : statistics.values) {
    observe::LayerStatistics row;
    row.tensor = value.of.tensor;
    row.layer = value.of.layer == graph::kNone ? std::nullopt : std::optional<int64_t>(value.of.layer);
    const auto add_activation = [&](const MeasuredValue& of) {
      row.act_rms = root_mean(of.table.squares, of.table.elements - of.table.nonfinite);
      row.act_max = of.table.greatest;
      if (of.table.elements > 0) row.zero_share = of.table.zeros / of.table.elements;
    };
    switch (value.of.what) {
      case Watched::kWeight: {
        const MeasuredValue* const gradient = find(values, Watched::kGradient, value.of.tensor);
        if (gradient != nullptr && statistics.tokens > 0)
          row.grad_rms = std::sqrt(gradient->table.squares / gradient->of.elements) / statistics.tokens;
        row.weight_rms = root_mean(value.table.squares, value.of.elements);
        row.update_ratio = ratio_of_update(find(values, Watched::kUpdate, value.of.tensor), &value);
        // The last matrix of a feed-forward layer reads its activations.
        if (const auto* read = find(values, Watched::kActivation, value.of.tensor)) add_activation(*read);
        break;
      }
      case Watched::kStream:
      case Watched::kQueries:
      case Watched::kKeys:
      case Watched::kHidden:
        row.tensor = name_of(value.of.what);
        add_activation(value);
        break;
      case Watched::kGradient:
      case Watched::kFirstGradient:
      case Watched::kUpdate:
      case Watched::kActivation:
        continue;
    }
    rows.push_back(std::move(row));
  }
  // By layer; tensors outside of layers first.
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.layer < b.layer; });
  return rows;
}

StatisticsWatch::StatisticsWatch(const program::Executor& executor, size_t program)
    : executor_(executor),
      program_(program),
      weights_(executor, program, graph::MetricKind::kWeightsDigest),
      gradients_(executor, program, graph::MetricKind::kGradientsDigest),
      used_weights_(executor, program, graph::MetricKind::kUsedWeightsDigest) {
  for (size_t i = 0; i < executor.program(program).statistics.size(); ++i)
    tables_.emplace_back(executor, program, graph::MetricKind::kStatistics, static_cast<int32_t>(i));
  find_values();
}

void StatisticsWatch::find_values() {
  Json mine = Json::array();
  for (const Statistic& one : executor_.program(program_).statistics) mine.push_back(json_of(one));
  using Key = std::tuple<Watched, int32_t, std::string>;
  std::map<Key, size_t> index;
  for (const std::string& text : comm::gather_texts(executor_.ranks().all(), dump_json(mine))) {
    std::vector<size_t>& places = places_.emplace_back();
    for (const Json& json : parse_json<Json>(text)) {
      Statistic one = statistic_of(json);
      const auto [at, is_new] = index.try_emplace({one.what, one.layer, one.tensor}, values_.size());
      places.push_back(at->second);
      if (is_new) values_.push_back(std::move(one));
    }
  }
}

void StatisticsWatch::begin(int64_t step, int64_t every) {
  Groups& groups = turned_on_;
  groups.has_layers = all_ || (every > 0 && step % every == 0);
  groups.mask = 0;
  if (groups.has_layers)
    groups.mask |= bit_of(StatisticsGroup::kWeights) | bit_of(StatisticsGroup::kActivations);
  if (all_ || step % kNoiseEvery == 0) {
    const bool has_noise = std::any_of(values_.begin(), values_.end(), [](const Statistic& one) {
      return one.group == StatisticsGroup::kNoise;
    });
    // The whole gradient is compared with that of a part.
    if (has_noise) groups.mask |= bit_of(StatisticsGroup::kNoise) | bit_of(StatisticsGroup::kWeights);
  }
  program::write_statistics_mask(executor_, program_, groups.mask);
}

std::optional<StepStatistics> StatisticsWatch::read(double tokens, double loss_scale) const {
  if (measured_.mask == 0) return std::nullopt;
  const std::vector<Statistic>& own = executor_.program(program_).statistics;
  std::string text;
  for (size_t i = 0; i < own.size(); ++i) {
    StatisticsTable table;
    if (is_on(measured_.mask, own[i]) && tables_[i].is_reported()) table = tables_[i].read<StatisticsTable>();
    if (is_on(measured_.mask, own[i])) text.append(reinterpret_cast<const char*>(&table), sizeof table);
  }
  std::vector<StatisticsTable> sums(values_.size());
  const std::vector<std::string> all = comm::gather_texts(executor_.ranks().all(), text);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    size_t at = 0;
    for (const size_t place : places_[rank]) {
      if (!is_on(measured_.mask, values_[place])) continue;
      StatisticsTable table;
      STRATA_CHECK(at + sizeof table <= all[rank].size(), "rank {} has sent too few statistics", rank);
      std::memcpy(&table, all[rank].data() + at, sizeof table);
      at += sizeof table;
      add_statistics(sums[place], table);
    }
  }
  StepStatistics statistics;
  statistics.tokens = tokens;
  statistics.has_layers = measured_.has_layers;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!is_on(measured_.mask, values_[i])) continue;
    const bool is_scaled = loss_scale > 0 && (values_[i].what == Watched::kGradient ||
                                              values_[i].what == Watched::kFirstGradient);
    statistics.values.push_back({values_[i], is_scaled ? divided(sums[i], loss_scale) : sums[i]});
  }
  add_figures(statistics, static_cast<double>(executor_.program(program_).request.micro_batches));
  return statistics;
}

uint64_t StatisticsWatch::digest_of(const program::Metric& metric) {
  return metric.is_here() ? static_cast<uint64_t>(metric.read<int64_t>()) : 0;
}

int64_t StatisticsWatch::first_replica() const {
  // All weights are in it, so that it is cut along every axis along which one of them is.
  return used_weights_.is_here() ? used_weights_.first_holder() : executor_.ranks().world().rank();
}

uint64_t StatisticsWatch::joined_digest(const std::vector<uint64_t>& of_ranks) {
  uint64_t digest = 0;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank)
    digest += of_ranks[rank] * ops::factor_of_digest(static_cast<uint64_t>(rank));
  return digest;
}

std::string digest_text(uint64_t digest) {
  return fmt::format("{:016x}", digest);
}

}  // namespace strata::training
