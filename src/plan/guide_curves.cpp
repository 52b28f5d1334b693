#include "plan/guide_curves.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/toml.h"
#include "parallel/schedules.h"
#include "parallel/simulate.h"
#include "plan/builtin_data.h"
#include "plan/price_runs.h"

namespace strata::planning {
namespace {

constexpr std::string_view kFile = "data/planning/curves.toml";
constexpr std::string_view kRuns = "data/planning/curve_runs.csv";
constexpr std::string_view kExpected[] = {"rises", "falls", "level", "crosses", "order"};
constexpr double kLevel = 0.1;                // of the first value
constexpr double kCrossing = 2;               // factor
constexpr double kReduced = 1e9;              // bytes of an all-reduce
constexpr int64_t kStages = 8;                // of the bubble's curves
constexpr int32_t kMicroBatches = 32;         // of the schedules' curves
constexpr int64_t kMostMicroBatch = 1 << 20;  // sequences

// A point as the file has it; keys that it lacks are those of its curve.
struct PointSpec {
  double x = 0;
  std::string name, run, to;
  int64_t stages = 1;  // on a rank
  bool flat = false;   // rows for experts are sent once to each expert, not to each host
};

[[noreturn]] void wrong(const ConfigValue& value, std::string_view key, std::string_view expected) {
  throw ConfigError("[{}] {}: found {}, expected {}", to_string(value.origin), key, to_toml(value), expected);
}

std::string text_at(const ConfigValue& table, std::string_view key, bool required = true) {
  const ConfigValue* found = table.find(key);
  if (found == nullptr && !required) return "";
  const auto* text = found != nullptr ? found->get_if<std::string>() : nullptr;
  if (text == nullptr) wrong(found != nullptr ? *found : table, key, "text");
  return *text;
}

double number_of(const ConfigValue& value, std::string_view key) {
  if (const auto* whole = value.get_if<int64_t>()) return static_cast<double>(*whole);
  const auto* real = value.get_if<double>();
  if (real == nullptr) wrong(value, key, "a number");
  return *real;
}

template <size_t n>
void check_keys(const ConfigValue& table, const std::string_view (&known)[n]) {
  if (!table.is_table()) wrong(table, "curve", "a table");
  for (const ConfigEntry& entry : std::get<ConfigValue::Table>(table.data)) {
    if (std::find(std::begin(known), std::end(known), entry.key) == std::end(known))
      wrong(entry.value, entry.key, "a key of curves");
  }
}

PointSpec point_spec(const ConfigValue& table, PointSpec spec) {
  if (const ConfigValue* x = table.find("x")) {
    const auto* name = x->get_if<std::string>();
    if (name != nullptr) spec.name = *name;
    if (name == nullptr) spec.x = number_of(*x, "x");
  }
  if (const ConfigValue* stages = table.find("stages"))
    spec.stages = static_cast<int64_t>(number_of(*stages, "stages"));
  if (const ConfigValue* flat = table.find("flat")) {
    if (flat->get_if<bool>() == nullptr) wrong(*flat, "flat", "true or false");
    spec.flat = *flat->get_if<bool>();
  }
  if (table.find("run") != nullptr) spec.run = text_at(table, "run");
  if (table.find("to") != nullptr) spec.to = text_at(table, "to");
  return spec;
}

// Prices the runs of the curves.
class Predictor {
 public:
  Predictor() : pricer_(builtin_pricer()), runs_(parse_runs(builtin_file(kRuns), std::string(kRuns)).runs) {}

  double value(const std::string& predict, const PointSpec& point) const {
    if (predict == "speed")
      return speed(located(point.run, point.flat)) / speed(located(point.to, point.flat));
    if (predict == "mfu") return mfu(located(point.run, point.flat));
    if (predict == "expert-share") {
      const StepTime step = time_of(located(point.run, point.flat));
      return step.expert / step.total();
    }
    if (predict == "gather-tokens") return gather_tokens(located(point.run, point.flat));
    if (predict == "fsdp-over-tensor")
      return speed(with_tokens(located(point.run, false), point.x)) /
             speed(with_tokens(located(point.to, false), point.x));
    if (predict == "flat-over-levels") return flat_over_levels(point.x);
    if (predict == "bubble") return bubble(point);
    if (predict == "schedule") return schedule_speed(point);
    throw ConfigError("[{}] predict: found \"{}\", expected a formula of plan/guide_curves.h", kFile,
                      predict);
  }

 private:
  using Located = RunPricer::Located;

  Located located(const std::string& id, bool flat) const {
    const auto run =
        std::find_if(runs_.begin(), runs_.end(), [&](const PublishedRun& one) { return one.id == id; });
    if (run == runs_.end()) throw ConfigError("[{}] found no run \"{}\" in {}", kFile, id, kRuns);
    Located out = pricer_.locate(*run);
    if (!out.row.skipped.empty()) throw ConfigError("[{}] {}: {}", kRuns, id, out.row.skipped);
    if (flat) out.row.job.shape.moe.node_limit = 0;
    return out;
  }

  StepTime time_of(const Located& run) const {
    return step_time(run.row.job, *run.stack, pricer_.profiles(), *run.cluster);
  }
  double speed(const Located& run) const {
    return run.row.job.batch_tokens() / static_cast<double>(run.row.job.layout.devices()) /
           time_of(run).total();
  }
  double mfu(const Located& run) const {
    const TrainingJob& job = run.row.job;
    return speed(run) * flops_per_token(job.shape, job.sequence, FlopConvention::kModelFull) /
           run.cluster->chip.peak_of(job.precision).value;
  }

  // One micro-batch of `tokens` for each device.
  static Located with_tokens(Located run, double tokens) {
    Layout& layout = run.row.job.layout;
    const int64_t devices = layout.devices() / layout.data;
    const double of_replica = tokens * static_cast<double>(devices);
    layout.micro_batch =
        std::max<int64_t>(1, std::llround(of_replica / static_cast<double>(run.row.job.sequence)));
    layout.micro_batches = 1;
    return run;
  }

  // While gathers take longer than computing, more of them is exposed than the share that is never hidden.
  double gather_tokens(Located run) const {
    const auto gathers_longer = [&](int64_t micro_batch) {
      run.row.job.layout.micro_batch = micro_batch;
      const StepTime step = time_of(run);
      return step.data > run.stack->data_exposed * step.compute();
    };
    int64_t low = 1, high = kMostMicroBatch;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (gathers_longer(middle)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return static_cast<double>(low * run.row.job.sequence);
  }

  double flat_over_levels(double devices) const {
    const Located run = located("gather-llama-70b", false);
    const std::span<const LinkLevel> links = run.cluster->links;
    const Group group{.ranks = static_cast<int64_t>(devices), .stride = 1};
    const auto seconds = [&](std::span<const LinkLevel> levels) {
      return hardware::exchange_seconds(levels, hardware::Exchange::kAllReduce, group, kReduced);
    };
    return seconds(links.last(1)) / seconds(links);
  }

  static double bubble(const PointSpec& point) {
    const parallel::Schedule schedule =
        parallel::make_schedule({.name = point.stages > 1 ? "interleaved" : "1f1b",
                                 .ranks = kStages,
                                 .micro_batches = static_cast<int32_t>(point.x),
                                 .virtual_stages = static_cast<int32_t>(point.stages)});
    return parallel::simulate(schedule, parallel::even_costs(schedule)).bubble_share();
  }

  // Micro-batches in a second on the run's pipeline, without its data axis.
  double schedule_speed(const PointSpec& point) const {
    const Located run = located(point.run, point.flat);
    const StepTime step = time_of(run);
    const double m = run.row.job.layout.micro_batches;
    // The backward pass repeats the matmuls for I and for W, and attention 2.5 times for I.
    const double forward =
        (step.matmuls / 3 + step.attention / 3.5 + step.elementwise / 3 + step.expert / 2) / m;
    const double weight_grad = step.matmuls / 3 / m;
    const double all = (step.matmuls + step.attention + step.elementwise + step.expert) / m;
    const parallel::Schedule schedule =
        parallel::make_schedule({.name = point.name,
                                 .ranks = static_cast<int32_t>(run.row.job.layout.pipeline),
                                 .micro_batches = kMicroBatches,
                                 .virtual_stages = static_cast<int32_t>(point.stages)});
    parallel::Costs costs = parallel::even_costs(
        schedule,
        {.forward = forward, .input_grad = all - forward - weight_grad, .weight_grad = weight_grad});
    parallel::StageCost& last = costs.stages.back();
    const double head = step.loss / m / 3;
    last.forward += head;
    last.input_grad += head;
    last.weight_grad += head;
    return kMicroBatches / parallel::simulate(schedule, costs).makespan;
  }

  RunPricer pricer_;
  std::vector<PublishedRun> runs_;
};

GuideCurve read_curve(const ConfigEntry& section, const Predictor& predictor) {
  static constexpr std::string_view kKeys[] = {"source", "what", "x",  "predict", "expect", "note",
                                               "points", "run",  "to", "stages",  "flat"};
  static constexpr std::string_view kPointKeys[] = {"x", "published", "run", "to", "stages"};
  const ConfigValue& table = section.value;
  check_keys(table, kKeys);
  GuideCurve out{.id = section.key,
                 .source = text_at(table, "source"),
                 .what = text_at(table, "what"),
                 .axis = text_at(table, "x"),
                 .note = text_at(table, "note", false),
                 .points = {}};
  const auto expected = std::find(std::begin(kExpected), std::end(kExpected), text_at(table, "expect"));
  if (expected == std::end(kExpected))
    wrong(*table.find("expect"), "expect", "rises, falls, level, crosses or order");
  out.expected = static_cast<Expected>(expected - std::begin(kExpected));
  const std::string predict = text_at(table, "predict");
  PointSpec common = point_spec(table, {});
  common.name.clear();
  const ConfigValue* points = table.find("points");
  if (points == nullptr || !points->is_array()) wrong(table, "points", "a list");
  for (const ConfigValue& each : std::get<ConfigValue::Array>(points->data)) {
    check_keys(each, kPointKeys);
    const PointSpec spec = point_spec(each, common);
    CurvePoint point{
        .x = spec.x, .name = spec.name, .published = {}, .predicted = predictor.value(predict, spec)};
    if (const ConfigValue* published = each.find("published"))
      point.published = number_of(*published, "published");
    out.points.push_back(std::move(point));
  }
  // Speeds of schedules are relative to the first one.
  if (predict == "schedule") {
    const double first = out.points.front().predicted;
    for (CurvePoint& point : out.points) point.predicted /= first;
  }
  out.direction_holds = direction_holds(out);
  return out;
}

}  // namespace

std::string_view to_string(Expected expected) {
  return kExpected[static_cast<size_t>(expected)];
}

std::optional<double> CurvePoint::error() const {
  if (!published) return std::nullopt;
  return predicted / *published - 1;
}

bool direction_holds(const GuideCurve& curve) {
  const std::vector<CurvePoint>& points = curve.points;
  for (size_t i = 1; i < points.size(); ++i) {
    const double before = points[i - 1].predicted, here = points[i].predicted;
    const bool rises = curve.expected == Expected::kRises || curve.expected == Expected::kCrosses;
    if (rises && here <= before) return false;
    if (curve.expected == Expected::kFalls && here >= before) return false;
    if (curve.expected == Expected::kLevel && std::abs(here / points[0].predicted - 1) > kLevel) return false;
  }
  for (const CurvePoint& one : points) {
    if (!one.published) continue;
    const double factor = one.predicted / *one.published;
    if (curve.expected == Expected::kCrosses && (factor > kCrossing || factor < 1 / kCrossing)) return false;
    if (curve.expected != Expected::kOrder) continue;
    for (const CurvePoint& other : points) {
      if (other.published && *one.published < *other.published && one.predicted >= other.predicted)
        return false;
    }
  }
  return true;
}

std::vector<GuideCurve> guide_curves() {
  const ConfigValue document = parse_toml(builtin_file(kFile), std::string(kFile));
  const ConfigValue* curves = document.find("curve");
  if (curves == nullptr || !curves->is_table()) wrong(document, "curve", "tables");
  const Predictor predictor;
  std::vector<GuideCurve> out;
  for (const ConfigEntry& section : std::get<ConfigValue::Table>(curves->data))
    out.push_back(read_curve(section, predictor));
  return out;
}

}  // namespace strata::planning
