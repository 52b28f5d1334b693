#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"
#include "plan/layer_costs.h"
#include "plan/pipeline_walk.h"
#include "plan/program_model.h"

namespace strata::planning {
namespace {

constexpr int64_t kMostTensor = 64;          // ranks, within a domain of links
constexpr int64_t kMostTokens = 128 * 1024;  // of a micro-batch
constexpr int64_t kFewestRows = 64;          // of a part that overlaps (program/row_chunks.h)
constexpr size_t kMostDiscarded = 6;
constexpr double kWithoutBinding = 0.05;  // share of a step below which nothing but compute limits it

std::vector<int64_t> divisors(int64_t number, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t i = 1; i <= std::min(number, most); ++i)
    if (number % i == 0) out.push_back(i);
  return out;
}

MemoryUse whole_memory(const SearchRequest& request, const TrainingJob& job) {
  if (request.stack->compiled) return program_memory(job, request.cluster);
  return memory_use(job, *request.stack, *request.profiles, request.cluster.chip);
}

MemoryUse memory_of(const SearchRequest& request, const TrainingJob& job) {
  MemoryUse out = whole_memory(request, job);
  if (request.offload) out.optimizer = 0;
  return out;
}

StepTime time_of(const SearchRequest& request, const TrainingJob& job) {
  StepTime out = request.stack->compiled ? program_time(job, request.cluster)
                                         : step_time(job, *request.stack, *request.profiles, request.cluster);
  // fp32 gradients go to the host and bf16 weights come back; at best the host updates as fast as they pass
  // (ZeRO-Offload, arXiv 2101.06840, keeps the same values on either side).
  constexpr double kPassed = 4 + 2;
  if (request.offload) {
    const double parameters = whole_memory(request, job).optimizer / request.stack->optimizer_bytes;
    out.optimizer = std::max(out.optimizer, kPassed * parameters / request.cluster.chip.host_link.value);
  }
  return out;
}

class Search {
 public:
  explicit Search(const SearchRequest& request) : in_(request) {
    const Figure& memory = in_.cluster.chip.memory;
    out_.memory_limit = in_.memory_limit > 0 ? in_.memory_limit : hardware::kUsableMemory * memory.value;
    if (out_.memory_limit <= 0) {
      throw ConfigError("[chip {}] found no memory, expected its bytes: set chip.memory",
                        in_.cluster.chip.name);
    }
  }

  SearchResult run() {
    check_request();
    for (const int64_t tensor : tensors()) {
      for (const int64_t pipeline : pipelines(tensor)) {
        for (const int64_t context : contexts(tensor, pipeline)) {
          // Fixed degrees may leave no whole number.
          if (in_.devices % (tensor * pipeline * context) != 0) continue;
          const int64_t data = in_.devices / (tensor * pipeline * context);
          if (data > in_.batch) {
            too_few_sequences(data);
            continue;
          }
          layout_ = {.tensor = tensor, .pipeline = pipeline, .context = context, .data = data};
          try_experts();
        }
      }
    }
    finish();
    return std::move(out_);
  }

 private:
  void check_request() const {
    const FixedLayout& fixed = in_.fixed;
    const auto check = [&](const char* key, const std::optional<int64_t>& degree) {
      if (!degree || in_.devices % *degree == 0) return;
      throw ConfigError("[parallel.{}] found {} and --gpus {}, which it does not divide; expected a divisor",
                        key, *degree, in_.devices);
    };
    check("tensor", fixed.tensor);
    check("pipeline", fixed.pipeline);
    check("context", fixed.context);
    const int64_t model = fixed.tensor.value_or(1) * fixed.pipeline.value_or(1) * fixed.context.value_or(1);
    if (in_.devices % model != 0) {
      throw ConfigError(
          "[parallel] found tensor x pipeline x context = {} and --gpus {}, which it does not divide; change one "
          "of them",
          model, in_.devices);
    }
    const ModelShape& shape = in_.shape;
    if (fixed.pipeline && *fixed.pipeline > shape.layers) {
      throw ConfigError(
          "[parallel.pipeline] found {} and a model of {} layers, expected at most one stage for each layer",
          *fixed.pipeline, shape.layers);
    }
    if (fixed.tensor && !tensor_rule(*fixed.tensor).empty())
      throw ConfigError("[parallel.tensor] found {} and a model with which it cannot work: {}", *fixed.tensor,
                        tensor_rule(*fixed.tensor));
    if (fixed.micro_batch && in_.batch % *fixed.micro_batch != 0) {
      throw ConfigError(
          "[training.micro_batch_size] found {} and training.global_batch_size {}, which it does not divide",
          *fixed.micro_batch, in_.batch);
    }
    if (fixed.expert && !shape.has_experts() && *fixed.expert > 1) {
      throw ConfigError("[parallel.expert] found {} and a model without experts, expected 1", *fixed.expert);
    }
  }

  std::string tensor_rule(int64_t tensor) const {
    std::vector<std::string> rules = layout_violations(in_.shape, {.tensor = tensor}, in_.sequence);
    return rules.empty() ? "" : rules.front();
  }

  // Why layers of the model's kinds cannot be shared so.
  std::string refusal(const Layout& layout) const {
    return in_.shape.costs == nullptr ? "" : in_.shape.costs->refusal(job_of(layout), in_.cluster);
  }

  void rule_out(const Layout& layout, std::string reason) {
    ++out_.ruled_out;
    if (reasons_.insert(reason).second && out_.nearest.size() < kMostDiscarded)
      out_.nearest.push_back({layout_in_words(layout), std::move(reason), 0});
  }

  void too_few_sequences(int64_t data) {
    ++out_.ruled_out;
    least_data_ = least_data_ == 0 ? data : std::min(least_data_, data);
  }

  std::vector<int64_t> tensors() {
    if (in_.fixed.tensor) return {*in_.fixed.tensor};
    int64_t domain = 1;
    for (const LinkLevel& level : in_.cluster.links)
      if (level.size != LinkLevel::kAll) domain = std::max(domain, level.size);
    if (domain == 1) domain = in_.cluster.devices_per_host;
    std::vector<int64_t> out;
    for (const int64_t tensor : divisors(in_.devices, std::min(domain, kMostTensor))) {
      std::string rule = tensor_rule(tensor);
      if (rule.empty()) rule = refusal({.tensor = tensor});
      if (rule.empty()) {
        out.push_back(tensor);
      } else {
        rule_out({.tensor = tensor}, rule);
      }
    }
    return out;
  }

  std::vector<int64_t> pipelines(int64_t tensor) const {
    if (in_.fixed.pipeline) return {*in_.fixed.pipeline};
    return divisors(in_.devices / tensor, in_.shape.layers);
  }

  std::vector<int64_t> contexts(int64_t tensor, int64_t pipeline) {
    if (in_.fixed.context) return {*in_.fixed.context};
    const int64_t rest = in_.devices / (tensor * pipeline);
    std::vector<int64_t> out;
    for (int64_t context = 1; context <= rest; context *= 2) {
      if (context > in_.space.most_context) break;
      if (rest % context != 0 || (context > 1 && in_.sequence / context < 1024)) break;
      const Layout layout{.tensor = tensor, .context = context};
      if (context > 1 && in_.shape.latent.used() && !in_.space.latent_context && in_.shape.costs == nullptr) {
        rule_out(layout, "formulas do not know latent attention with context above 1 well enough");
        break;
      }
      if (context > 1 && in_.sequence % (2 * context * tensor) != 0) break;
      if (std::string reason = refusal(layout); context > 1 && !reason.empty()) {
        rule_out(layout, std::move(reason));
        break;
      }
      out.push_back(context);
    }
    return out;
  }

  // Expert degrees and the shard groups that go with them.
  void try_experts() {
    const int64_t inner = layout_.tensor * layout_.context;
    struct Choice {
      int64_t expert, shards, tensor;
    };
    std::vector<Choice> choices;
    const auto add = [&](int64_t expert, int64_t shards, int64_t tensor = 1) {
      choices.push_back({expert, shards, tensor});
    };
    std::vector<int64_t> groups = {layout_.data};
    // Groups within a host or domain, replicas between them.
    for (const LinkLevel& level : in_.cluster.links) {
      const int64_t group = level.size / inner;
      if (level.size != LinkLevel::kAll && group > 1 && group < layout_.data && layout_.data % group == 0)
        groups.push_back(group);
    }
    for (const int64_t shards : groups) add(1, shards);
    if (in_.shape.has_experts() && in_.space.folds_experts) {
      for (const int64_t expert : divisors(in_.shape.moe.experts, inner * layout_.data)) {
        if (expert == 1) continue;
        if (expert == layout_.tensor || expert == inner) {
          for (const int64_t shards : groups) add(expert, shards);
        } else if (expert > inner && expert % inner == 0 && layout_.data % (expert / inner) == 0) {
          add(expert, expert / inner);
        }
      }
    }
    // Each expert's width over the tensor axis, and whole experts over context and groups of shards.
    if (in_.shape.has_experts() && in_.space.cuts_experts && layout_.tensor > 1 &&
        in_.shape.moe.width % layout_.tensor == 0) {
      const int64_t context = layout_.context;
      for (const int64_t expert : divisors(in_.shape.moe.experts, context * layout_.data)) {
        if (expert == 1 || expert == context) {
          for (const int64_t shards : groups) add(expert, shards, layout_.tensor);
        } else if (expert > context && expert % context == 0 && layout_.data % (expert / context) == 0) {
          add(expert, expert / context, layout_.tensor);
        }
      }
    }
    for (const Choice& choice : choices) {
      if (in_.fixed.expert && choice.expert != *in_.fixed.expert) continue;
      if (in_.fixed.expert_tensor && choice.tensor != *in_.fixed.expert_tensor) continue;
      layout_.expert = choice.expert;
      layout_.expert_tensor = choice.tensor;
      layout_.shards = choice.shards * (in_.space.shards_context ? layout_.context : 1);
      try_batches();
    }
  }

  void try_batches() {
    for (int64_t micro = 1; micro * layout_.data <= in_.batch; micro *= 2) {
      const int64_t size = in_.fixed.micro_batch.value_or(micro);
      if (in_.batch % (size * layout_.data) != 0) {
        rule_out(layout_,
                 fmt::format("{} sequences of a step do not divide among {} ranks in micro-batches of {}",
                             in_.batch, layout_.data, size));
        break;
      }
      const int64_t tokens = size * in_.sequence / layout_.context;
      if (size > 1 && tokens > kMostTokens && !in_.fixed.micro_batch) break;
      layout_.micro_batch = size;
      const int64_t rounds = in_.batch / (size * layout_.data);
      layout_.micro_batches = static_cast<double>(rounds);
      if (tokens % layout_.tensor == 0 && can_overlap(tokens / layout_.tensor)) try_schedules();
      if (in_.fixed.micro_batch) break;
    }
  }

  // Whether there is a number of parts of a rank's rows of a micro-batch; sets them.
  bool can_overlap(int64_t rows) {
    overlaps_ = {1};
    if (layout_.tensor > 1)
      overlaps_ =
          in_.fixed.overlap_chunks ? std::vector{*in_.fixed.overlap_chunks} : in_.space.overlap_chunks;
    const auto few = [&](int64_t parts) {
      return parts > 1 && (rows % parts != 0 || rows / parts < kFewestRows);
    };
    const int64_t least = overlaps_.front();
    std::erase_if(overlaps_, few);
    layout_.overlap_chunks = overlaps_.empty() ? 1 : overlaps_.front();
    if (overlaps_.empty())
      rule_out(layout_, fmt::format("the {} rows of a rank do not make {} equal parts of at least {}", rows,
                                    least, kFewestRows));
    return !overlaps_.empty();
  }

  void try_schedules() {
    layout_.schedule = PipelineSchedule::k1F1B;
    layout_.virtual_stages = 1;
    if (layout_.pipeline == 1) return try_sharding();
    for (const PipelineSchedule schedule : in_.space.schedules) {
      if (in_.fixed.schedule && schedule != *in_.fixed.schedule) continue;
      layout_.schedule = schedule;
      const bool two = is_folded(schedule);
      const bool many = schedule == PipelineSchedule::k1F1B || schedule == PipelineSchedule::kZeroBubble;
      const int64_t most = two ? 2 : many ? in_.space.most_virtual : 1;
      // DualPipeV needs two for each rank.
      if (schedule == PipelineSchedule::kDualPipeV &&
          layout_.micro_batches < 2 * static_cast<double>(layout_.pipeline))
        continue;
      for (int64_t v = two ? 2 : 1; v <= most; ++v) {
        if (in_.fixed.virtual_stages && v != *in_.fixed.virtual_stages) continue;
        if (in_.fixed.interleaved && many && (v > 1) != *in_.fixed.interleaved) continue;
        layout_.virtual_stages = v;
        const int64_t stages = layout_.pipeline * v;
        if (stages > in_.shape.layers || (in_.space.virtual_divides && in_.shape.layers % stages != 0))
          continue;
        const bool whole = std::fmod(layout_.micro_batches, static_cast<double>(layout_.pipeline)) == 0;
        if (v > 1 && !two && !whole) continue;
        try_sharding();
      }
    }
  }

  void try_sharding() {
    for (int zero = 0; zero <= (layout_.shards > 1 ? in_.space.most_zero : 0); ++zero) {
      if (in_.fixed.zero && layout_.shards > 1 && zero != *in_.fixed.zero) continue;
      Layout layout = layout_;
      layout.zero_stage = zero;
      // Groups of shards make no difference without shards.
      const int64_t inner = layout.context * (layout.expert_tensor > 1 ? 1 : layout.tensor);
      if (zero == 0 && layout.expert <= inner && layout.shards < layout.replicas() &&
          layout.shards < layout.data)
        continue;
      try_recompute(layout);
    }
  }

  // The least recomputation that fits.
  void try_recompute(Layout layout) {
    RankedLayout tried;
    for (const Recompute recompute : in_.space.recompute) {
      if (in_.fixed.recompute && recompute != *in_.fixed.recompute) continue;
      // Values that are computed again for I stay until W.
      if (recompute == Recompute::kFull && splits_backward(layout)) continue;
      layout.recompute = recompute;
      const TrainingJob job = job_of(layout);
      const MemoryUse memory = memory_of(in_, job);
      if (memory.total() <= out_.memory_limit) {
        return try_overlap(job, memory);
      }
      tried.layout = layout;
      tried.memory = memory;
    }
    if (tried.memory.total() <= 0) return;  // no recomputation to try
    ++out_.tried;
    ++out_.too_large;
    const double total = tried.memory.total();
    if (out_.least_memory == 0 || total < out_.least_memory) {
      out_.least_memory = total;
      out_.least_layout = layout_in_words(tried.layout);
    }
    // The most nearly fitting ones of each combination of degrees.
    const auto key = std::tuple(layout.tensor, layout.pipeline, layout.context, layout.expert);
    const auto [at, fresh] = large_.try_emplace(key, tried);
    if (!fresh && total < at->second.memory.total()) at->second = tried;
  }

  void try_overlap(TrainingJob job, MemoryUse memory) {
    for (const int64_t chunks : overlaps_) {
      if (chunks != job.layout.overlap_chunks) {
        job.layout.overlap_chunks = chunks;
        memory = memory_of(in_, job);
      }
      ++out_.tried;
      if (memory.total() <= out_.memory_limit) {
        price(job, memory);
      } else {
        ++out_.too_large;
      }
    }
  }

  TrainingJob job_of(const Layout& layout) const {
    return {.shape = in_.shape, .layout = layout, .sequence = in_.sequence, .precision = in_.precision};
  }

  void price(const TrainingJob& job, const MemoryUse& memory) {
    ++out_.priced;
    const StepTime step = time_of(in_, job);
    const Layout& layout = job.layout;
    const auto key =
        std::tuple(layout.tensor, layout.pipeline, layout.context, layout.expert, layout.expert_tensor,
                   layout.zero_stage, layout.schedule, layout.virtual_stages > 1);
    const double seconds = step.total();
    const auto [at, fresh] = found_.try_emplace(key);
    if (!fresh && at->second.seconds <= seconds) return;
    at->second.layout = layout;
    at->second.step = step;
    at->second.memory = memory;
    at->second.seconds = seconds;
  }

  void finish() {
    for (auto& [key, one] : found_) out_.best.push_back(std::move(one));
    // Of equally fast ones the one with more memory left.
    std::stable_sort(out_.best.begin(), out_.best.end(), [](const RankedLayout& a, const RankedLayout& b) {
      return std::pair(a.seconds, a.memory.total()) < std::pair(b.seconds, b.memory.total());
    });
    if (out_.best.size() > in_.keep) out_.best.resize(in_.keep);
    for (RankedLayout& one : out_.best) one = price_layout(in_, one.layout);
    std::vector<RankedLayout> large;
    for (auto& [key, one] : large_) large.push_back(std::move(one));
    std::stable_sort(large.begin(), large.end(), [](const RankedLayout& a, const RankedLayout& b) {
      return a.memory.total() < b.memory.total();
    });
    std::vector<Discarded> nearest;
    for (const RankedLayout& one : large) {
      if (nearest.size() == kMostDiscarded / 2) break;
      const double total = one.memory.total();
      nearest.push_back(
          {layout_in_words(one.layout),
           fmt::format("needs {} of {}: {} for weights, gradients and optimizer, {} for activations "
                       "and scratch",
                       gigabytes(total), gigabytes(out_.memory_limit),
                       gigabytes(one.memory.weights + one.memory.gradients + one.memory.optimizer),
                       gigabytes(one.memory.activations + one.memory.working + one.memory.gathered +
                                 one.memory.logits)),
           total - out_.memory_limit});
    }
    nearest.insert(nearest.end(), out_.nearest.begin(), out_.nearest.end());
    if (nearest.size() > kMostDiscarded) nearest.resize(kMostDiscarded);
    out_.nearest = std::move(nearest);
    if (out_.tried == 0) nothing_tried();
  }

  [[noreturn]] void nothing_tried() const {
    if (least_data_ > 0) {
      throw ConfigError(
          "[--gpus] found {} and training.global_batch_size {}: the batch has fewer sequences than the layouts have "
          "data ranks, at least {}; use fewer devices or a larger batch",
          in_.devices, in_.batch, least_data_);
    }
    throw ConfigError("[strata plan] found no layout of {} devices that can run{}", in_.devices,
                      out_.nearest.empty() ? "" : ": " + out_.nearest.front().reason);
  }

  const SearchRequest& in_;
  SearchResult out_;
  Layout layout_;  // so far
  std::vector<int64_t> overlaps_;
  std::set<std::string> reasons_;
  int64_t least_data_ = 0;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int, PipelineSchedule, bool>, RankedLayout>
      found_;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, RankedLayout> large_;
};

void set_binding(RankedLayout& one) {
  const StepTime& step = one.step;
  const Layout& layout = one.layout;
  // With few micro-batches the cost of each step weighs as much as the batch is small.
  const bool few = layout.micro_batches <= 2;
  const bool no_more =
      layout.micro_batch == 1 && layout.micro_batches < 4 * static_cast<double>(layout.pipeline);
  const double batch = step.optimizer + step.fixed + (few ? step.data : 0) + (no_more ? step.bubble : 0);
  const std::pair<Binds, double> parts[] = {{Binds::kMemory, step.recompute},
                                            {Binds::kBandwidth, step.exposed() - (few ? step.data : 0)},
                                            {Binds::kBubble, no_more ? 0 : step.bubble},
                                            {Binds::kBatch, batch}};
  one.binds = Binds::kCompute;
  one.binds_share = kWithoutBinding;
  for (const auto& [what, seconds] : parts) {
    if (seconds / one.seconds <= one.binds_share) continue;
    one.binds = what;
    one.binds_share = seconds / one.seconds;
  }
  if (one.binds == Binds::kCompute) one.binds_share = step.compute() / one.seconds;
}

}  // namespace

RankedLayout price_layout(const SearchRequest& request, const Layout& layout) {
  const TrainingJob job{
      .shape = request.shape, .layout = layout, .sequence = request.sequence, .precision = request.precision};
  RankedLayout out;
  out.layout = layout;
  const StackProfile& stack = *request.stack;
  out.memory = memory_of(request, job);
  out.step = time_of(request, job);
  out.seconds = out.step.total();
  // No GPU has run compiled programs: they are as uncertain as a stack without published runs.
  const double width = request.profiles->interval_width(
      stack.compiled ? nullptr : &stack, request.profiles->family_of(request.cluster.chip.name));
  out.low = out.seconds * std::exp(-width);
  out.high = out.seconds * std::exp(width);
  const double peak = request.cluster.chip.peak_of(request.precision).value;
  const double flops = flops_per_token(request.shape, request.sequence, FlopConvention::kModelFull);
  if (peak > 0 && out.seconds > 0) {
    const auto devices = static_cast<double>(layout.devices());
    out.mfu = flops * job.batch_tokens() / out.seconds / devices / peak;
  }
  set_binding(out);
  return out;
}

SearchResult search_layouts(const SearchRequest& request) {
  return Search(request).run();
}

}  // namespace strata::planning
