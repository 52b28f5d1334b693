#include "device/cpu/probes.h"

#include <algorithm>
#include <functional>

#include "base/clock.h"
#include "base/log.h"
#include "base/parallel.h"
#include "device/cpu/bindings.h"
#include "device/op_run.h"
#include "graph/sum.h"
#include "hardware/roofline.h"
#include "kernels/cpu/measure.h"
#include "ops/ops.h"
#include "optim/optimizer.h"

namespace strata::device {
namespace {

using graph::Graph;
using graph::kNone;
using graph::Role;
using graph::ValueId;

constexpr int64_t kTokens = 1024;
constexpr int64_t kWidth = 512;
constexpr int64_t kFfn = 1536;
constexpr int64_t kVocab = 8192;
constexpr int64_t kHeadDim = 64;
constexpr double kMeasureSeconds = 4.0;

// One op at one shape; `encoding`: the repetition is the encoding of its weight, not the op.
struct Probe {
  Graph graph;
  bool encoding = false;
};

ValueId weight_of(Graph& graph, int64_t outputs, int64_t inputs) {
  return graph.add_parameter("w", {outputs, inputs}, {});
}

ValueId gradient_of(Graph& graph, Shape shape) {
  return add_operand(graph, "grad", DType::kF32, shape, {}, Role::kGradient);
}

class ProbeList {
 public:
  explicit ProbeList(DType dtype) : dtype_(dtype) {}

  std::vector<Probe> all() {
    gemms();
    elementwise();
    norms();
    attention();
    embedding_and_loss();
    if (dtype_ == DType::kF32) update();
    return std::move(probes_);
  }

 private:
  Graph& next(bool encoding = false) {
    probes_.push_back({Graph{}, encoding});
    return probes_.back().graph;
  }
  ValueId rows(Graph& graph, const char* name, int64_t width, std::vector<int64_t> segments = {}) {
    return add_operand(graph, name, dtype_, {kTokens, width}, std::move(segments));
  }
  static ValueId vector(Graph& graph, const char* name, int64_t n) {
    return add_operand(graph, name, DType::kF32, {n});
  }

  void gemms() {
    struct Size {
      int64_t outputs, inputs;
    };
    for (const Size& size : {Size{256, 256}, Size{1024, 512}, Size{512, 2048}, Size{2048, 1024}}) {
      {
        Graph& g = next();
        ops::linear(g, rows(g, "x", size.inputs), weight_of(g, size.outputs, size.inputs));
      }
      {
        Graph& g = next();
        const ValueId dy = rows(g, "dy", size.outputs);
        g.add_node(ops::kLinearGradInput, {dy, weight_of(g, size.outputs, size.inputs)});
      }
      Graph& g = next();
      const ValueId dy = rows(g, "dy", size.outputs);
      g.add_node_into(ops::kLinearGradWeight, {dy, rows(g, "x", size.inputs)},
                      {gradient_of(g, {size.outputs, size.inputs})});
    }
    Graph& g = next(true);
    const ValueId w = weight_of(g, kFfn, kWidth);
    g.add_node(ops::kLinearGradInput, {ops::linear(g, rows(g, "x", kWidth), w), w});
  }

  void elementwise() {
    {
      Graph& g = next();
      const ValueId a = rows(g, "a", kWidth);
      graph::add_sum(g, a, rows(g, "b", kWidth));
    }
    {
      Graph& g = next();
      ops::gated(g, rows(g, "gate_up", 2 * kFfn, {kFfn, kFfn}), ActivationKind::kSilu);
    }
    {
      Graph& g = next();
      const ValueId dy = rows(g, "dy", kFfn);
      g.add_node(ops::kGatedGrad, {dy, rows(g, "gate_up", 2 * kFfn, {kFfn, kFfn})},
                 {{"kind", static_cast<int64_t>(ActivationKind::kSilu)}});
    }
    {
      Graph& g = next();
      ops::activation(g, rows(g, "x", kFfn), ActivationKind::kGeluTanh);
    }
    {
      Graph& g = next();
      const ValueId dy = rows(g, "dy", kFfn);
      g.add_node(ops::kActivationGrad, {dy, rows(g, "x", kFfn)},
                 {{"kind", static_cast<int64_t>(ActivationKind::kGeluTanh)}});
    }
    Graph& g = next();
    g.add_node_into(ops::kColumnSums, {rows(g, "dy", kFfn)}, {gradient_of(g, {kFfn})});
  }

  void norms() {
    constexpr double kEps = 1e-5;
    const graph::Attrs attrs{{"eps", kEps}, {"weight_offset", 0.0}};
    {
      Graph& g = next();
      const ValueId x = rows(g, "x", kWidth);
      ops::rms_norm(g, x, rows(g, "residual", kWidth), vector(g, "w", kWidth), kEps);
    }
    {
      Graph& g = next();
      const ValueId dy = rows(g, "dy", kWidth);
      const ValueId h = rows(g, "h", kWidth);
      const ValueId rstd = vector(g, "rstd", kTokens);
      g.add_node(ops::kRmsNormGradInput, {dy, h, rstd, vector(g, "w", kWidth), rows(g, "dh", kWidth)}, attrs);
    }
    {
      Graph& g = next();
      const ValueId dy = rows(g, "dy", kWidth);
      const ValueId h = rows(g, "h", kWidth);
      g.add_node_into(ops::kRmsNormGradWeight, {dy, h, vector(g, "rstd", kTokens)},
                      {gradient_of(g, {kWidth})}, attrs);
    }
    {
      Graph& g = next();
      const ValueId x = rows(g, "x", kWidth);
      const ValueId residual = rows(g, "residual", kWidth);
      ops::layer_norm(g, x, residual, vector(g, "w", kWidth), vector(g, "b", kWidth), kEps);
    }
    {
      Graph& g = next();
      const ValueId dy = rows(g, "dy", kWidth);
      const ValueId h = rows(g, "h", kWidth);
      const ValueId mean = vector(g, "mean", kTokens);
      const ValueId rstd = vector(g, "rstd", kTokens);
      g.add_node(ops::kLayerNormGradInput, {dy, h, mean, rstd, vector(g, "w", kWidth), rows(g, "dh", kWidth)},
                 attrs);
    }
    Graph& g = next();
    const ValueId dy = rows(g, "dy", kWidth);
    const ValueId h = rows(g, "h", kWidth);
    const ValueId mean = vector(g, "mean", kTokens);
    const ValueId dw = gradient_of(g, {kWidth});
    g.add_node_into(ops::kLayerNormGradWeight, {dy, h, mean, vector(g, "rstd", kTokens)},
                    {dw, gradient_of(g, {kWidth})}, attrs);
  }

  void attention() {
    constexpr int64_t kKvWidth = kWidth / 2;
    const std::vector<int64_t> parts{kWidth, kKvWidth, kKvWidth};
    constexpr int64_t kQkv = kWidth + 2 * kKvWidth;
    {
      Graph& g = next();
      const ValueId qkv = rows(g, "qkv", kQkv, parts);
      const ValueId table = add_operand(g, "table", DType::kF32, {kTokens, kHeadDim / 2, 2});
      ops::rope(g, qkv, table, add_operand(g, "positions", DType::kI32, {kTokens}), kHeadDim);
    }
    for (const int64_t length : {256, 512, 1024}) {
      const graph::Attrs attrs{{"head_dim", kHeadDim},   {"sequence_length", length},
                               {"scale", 0.125},         {"window", int64_t{0}},
                               {"softcap", 0.0},         {"causal", int64_t{1}},
                               {"bias_zero", int64_t{0}}};
      {
        Graph& g = next();
        const ValueId qkv = rows(g, "qkv", kQkv, parts);
        g.add_node(ops::kAttention, {qkv, add_operand(g, "kv_begin", DType::kI32, {kTokens}), kNone, kNone},
                   attrs);
      }
      Graph& g = next();
      const ValueId dout = rows(g, "dout", kWidth);
      const ValueId out = rows(g, "out", kWidth);
      const ValueId lse = add_operand(g, "lse", DType::kF32, {kTokens / length, kWidth / kHeadDim, length});
      const ValueId qkv = rows(g, "qkv", kQkv, parts);
      g.add_node(ops::kAttentionGrad,
                 {dout, out, lse, qkv, add_operand(g, "kv_begin", DType::kI32, {kTokens}), kNone, kNone},
                 attrs);
    }
    constexpr int64_t kLength = 256, kSource = 512;
    const graph::Attrs attrs{{"head_dim", kHeadDim},
                             {"sequence_length", kLength},
                             {"encoder_length", kSource},
                             {"scale", 0.125},
                             {"softcap", 0.0}};
    const auto keys = [&](Graph& g) {
      return add_operand(g, "kv", dtype_, {kTokens / kLength * kSource, 2 * kKvWidth}, {kKvWidth, kKvWidth});
    };
    {
      Graph& g = next();
      const ValueId q = rows(g, "q", kWidth);
      g.add_node(ops::kCrossAttention, {q, keys(g), kNone, kNone}, attrs);
    }
    Graph& g = next();
    const ValueId dout = rows(g, "dout", kWidth);
    const ValueId out = rows(g, "out", kWidth);
    const ValueId lse = add_operand(g, "lse", DType::kF32, {kTokens / kLength, kWidth / kHeadDim, kLength});
    const ValueId q = rows(g, "q", kWidth);
    g.add_node(ops::kCrossAttentionGrad, {dout, out, lse, q, keys(g), kNone, kNone}, attrs);
  }

  void embedding_and_loss() {
    {
      Graph& g = next();
      const ValueId tokens = add_operand(g, "tokens", DType::kI32, {kTokens});
      ops::embedding(g, tokens, weight_of(g, kVocab, kWidth), dtype_);
    }
    {
      Graph& g = next();
      const ValueId dy = rows(g, "dy", kWidth);
      g.add_node_into(ops::kEmbeddingGrad, {dy, add_operand(g, "rows", DType::kI32, {kTokens})},
                      {gradient_of(g, {kTokens, kWidth})},
                      {{"rows", kTokens}, {"scale", 1.0}, {"padding_id", int64_t{-1}}});
    }
    for (const int64_t width : {int64_t{256}, int64_t{1024}}) {
      for (const bool training : {false, true}) {
        Graph& g = next();
        const ValueId x = rows(g, "x", width);
        const ValueId w = weight_of(g, kVocab, width);
        const ValueId targets = add_operand(g, "targets", DType::kI32, {kTokens});
        const ValueId sum = add_operand(g, "sum", DType::kF64, {1}, {}, Role::kMetric);
        const ValueId count = add_operand(g, "count", DType::kI64, {1}, {}, Role::kMetric);
        const graph::Attrs attrs{{"softcap", 0.0}};
        if (training) {
          const ValueId dx = rows(g, "dx", width);
          g.add_node_into(ops::kLinearCrossEntropyTrain, {x, w, w, targets, kNone},
                          {sum, count, dx, gradient_of(g, {kVocab, width})}, attrs);
        } else {
          g.add_node_into(ops::kLinearCrossEntropy, {x, w, targets, kNone}, {sum, count, kNone, kNone},
                          attrs);
        }
      }
    }
  }

  void update() {
    constexpr int64_t kRows = 1536, kColumns = 512;
    {
      Graph& g = next();
      g.add_node(optim::kSumOfSquares, {gradient_of(g, {kRows, kColumns})});
    }
    Graph& g = next();
    const ValueId w = weight_of(g, kRows, kColumns);
    const ValueId m = add_operand(g, "m", DType::kF32, {kRows, kColumns}, {}, Role::kState);
    const ValueId v = add_operand(g, "v", DType::kF32, {kRows, kColumns}, {}, Role::kState);
    const ValueId gradient = gradient_of(g, {kRows, kColumns});
    const ValueId scalars = add_operand(g, "scalars", DType::kU8, {optim::kScalarBytes});
    g.add_node_into(optim::kAdamW, {w, m, v, gradient, scalars}, {w, m, v},
                    {{"weight_decay", 0.1}, {"lr_scale", 1.0}});
    {
      Graph& lion = next();
      const ValueId p = weight_of(lion, kRows, kColumns), grad = gradient_of(lion, {kRows, kColumns});
      const ValueId momentum =
          add_operand(lion, "momentum", DType::kF32, {kRows, kColumns}, {}, Role::kState);
      lion.add_node_into(
          optim::kLion, {p, momentum, grad, add_operand(lion, "scalars", DType::kU8, {optim::kScalarBytes})},
          {p, momentum}, {{"weight_decay", 0.1}, {"lr_scale", 1.0}, {"beta1", 0.9}, {"beta2", 0.99}});
    }
    Graph& bytes = next();
    const ValueId p = weight_of(bytes, kRows, kColumns), grad = gradient_of(bytes, {kRows, kColumns});
    std::vector<ValueId> values{p};
    for (const char* moment : {"m", "v"}) {
      values.push_back(add_operand(bytes, moment, DType::kU8, {kRows, kColumns}, {}, Role::kState));
      values.push_back(add_operand(bytes, std::string(moment) + "_scale", DType::kF32,
                                   {kRows * kColumns / 256}, {}, Role::kState));
    }
    std::vector<ValueId> inputs = values;
    inputs.push_back(grad);
    inputs.push_back(add_operand(bytes, "scalars", DType::kU8, {optim::kScalarBytes}));
    bytes.add_node_into(optim::kAdamW8Bit, inputs, values, {{"weight_decay", 0.1}, {"lr_scale", 1.0}});
  }

  DType dtype_;
  std::vector<Probe> probes_;
};

// Small numbers of both signs that are the same as bf16 and, in pairs, as fp32.
void fill(const Arena& arena) {
  auto* const words = reinterpret_cast<BF16*>(arena.data());
  parallel_ranges(arena.size() / 2, 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      words[i] = BF16(static_cast<float>(i * 2654435761 % 1021) / 2048.0f - 0.25f);
  });
}

void fill_indices(const OpRun& run) {
  for (ValueId id = 0; id < run.graph().value_count(); ++id) {
    const graph::Value& value = run.graph().value(id);
    const int64_t ids = value.name == "tokens" || value.name == "targets" ? kVocab
                        : value.name == "rows"                            ? kTokens
                                                                          : 1;
    for (int copy = 0; copy < run.copies(); ++copy) {
      if (value.dtype == DType::kI32) {
        for (int64_t i = 0; i < value.shape.elements(); ++i)
          run.data_as<int32_t>(id, copy)[i] = static_cast<int32_t>(i * 7919 % ids);
      } else if (value.dtype == DType::kU8 || value.role == Role::kState) {
        std::fill_n(run.data(id, copy), value.bytes(), std::byte{0});
      }
    }
  }
}

// The median repetition: a step is made of typical ones, not of the best.
double typical_seconds(double budget, const OpRun& run, const std::function<void(int)>& repeat) {
  std::vector<double> seconds;
  repeat(0);
  const double start = monotonic_seconds();
  for (int i = 0; i < 3 || (monotonic_seconds() - start < budget && i < 200); ++i) {
    const double begin = monotonic_seconds();
    repeat((i + 1) % run.copies());
    seconds.push_back(monotonic_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  return std::max(seconds[seconds.size() / 2], 1e-9);
}

hardware::FamilyRate measure(Probe& probe, bool cold, const hardware::DeviceSpec& device, double budget,
                             const Arena& pool, int64_t beyond) {
  int64_t once = 0;
  for (ValueId id = 0; id < probe.graph.value_count(); ++id) once += probe.graph.value(id).bytes();
  const int copies =
      cold ? static_cast<int>(std::max<int64_t>(2, beyond / std::max<int64_t>(once, 1) + 1)) : 1;
  OpRun run(probe.graph, cpu_bindings(), device, copies, &pool);
  fill_indices(run);
  for (int copy = 0; copy < copies; ++copy) run.encode(copy);
  const double seconds = typical_seconds(budget, run, [&](int copy) {
    if (probe.encoding) {
      run.encode(copy);
    } else {
      run.run(copy);
    }
  });
  graph::Cost cost;
  hardware::FamilyRate rate;
  rate.cold = cold;
  for (const graph::Node& node : run.graph().nodes()) {
    if ((node.phase == graph::Phase::kEncode) != probe.encoding) continue;
    const graph::NodeView view{run.graph(), node};
    const graph::Cost one = node.op->cost(view);
    cost.flops += one.flops;
    cost.bytes += one.bytes;
    rate.family = node.op->name;
    rate.dtype = compute_dtype(view);
  }
  rate.flops_per_s = cost.flops / seconds;
  rate.bytes_per_s = cost.bytes / seconds;
  return rate;
}

}  // namespace

std::vector<hardware::FamilyRate> measure_ops(const hardware::DeviceSpec& device, double seconds,
                                              std::string_view family) {
  std::vector<Probe> probes = ProbeList(DType::kF32).all();
  // Where bf16 is slow nobody computes in it, and measuring it would take long.
  if (hardware::bf16_is_fast(device)) {
    for (Probe& probe : ProbeList(DType::kBF16).all()) probes.push_back(std::move(probe));
  }
  std::erase_if(probes,
                [&](const Probe& probe) { return !probe.graph.nodes().back().op->name.starts_with(family); });
  // Far beyond the cache: a virtual machine may not say that its cores have a cache each. With a bound for
  // machines whose caches are huge.
  const int64_t beyond = std::clamp<int64_t>(6 * std::max(device.l3_bytes, cache_bytes(device)),
                                             int64_t{64} << 20, int64_t{768} << 20);
  const Arena pool(beyond + (int64_t{256} << 20));
  fill(pool);
  // Twice through the list, the better of both: a disturbance that lasts some seconds hits few probes twice.
  constexpr int kPasses = 2;
  const double budget = seconds / static_cast<double>(2 * kPasses * probes.size());
  std::vector<hardware::FamilyRate> rates(2 * probes.size());
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t i = 0; i < rates.size(); ++i) {
      hardware::FamilyRate rate = measure(probes[i / 2], i % 2 == 1, device, budget, pool, beyond);
      if (rate.bytes_per_s > rates[i].bytes_per_s) rates[i] = std::move(rate);
    }
  }
  // An encoding that this processor does not need was no work.
  std::erase_if(rates, [](const hardware::FamilyRate& rate) { return rate.family.empty(); });
  return rates;
}

bool has_op_rates(const hardware::DeviceSpec& device) {
  return std::any_of(device.rates.begin(), device.rates.end(),
                     [](const hardware::FamilyRate& rate) { return rate.family == ops::kLinear.name; });
}

hardware::DeviceSpec measured_cpu(FileSystem& files, int threads, bool fresh) {
  hardware::DeviceSpec device = cpu::describe_device(threads);
  if (!fresh && hardware::load_cached_device(device) && has_op_rates(device)) return device;
  log_info("measuring this machine's kernels once, about {:.0f} s", 2.5 * kMeasureSeconds);
  const int before = compute_threads();
  set_compute_threads(threads);
  device = cpu::measure_device(threads, kMeasureSeconds / 2);
  device.rates = measure_ops(device, kMeasureSeconds);
  set_compute_threads(before);
  hardware::save_cached_device(files, device);
  return device;
}

}  // namespace strata::device
