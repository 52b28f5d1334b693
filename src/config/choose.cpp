#include "config/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "config/names.h"
#include "config/precision.h"
#include "config/ramp.h"
#include "config/resolve.h"
#include "device/open/tested.h"
#include "hardware/device_spec.h"

namespace strata::config {

MachineShare share_of_machine(const RankPlace& place, const Path& root) {
  const int64_t ranks = std::max(1, place.local_ranks);
  return {.processors = available_processors() / ranks,
          .memory = std::max<int64_t>(1, available_memory(root) / 10 * 9 / ranks)};
}

MachineShare share_of_device(const hardware::DeviceSpec& device) {
  const double memory = hardware::kUsableMemory * static_cast<double>(device.memory_bytes);
  return {.processors = 1,
          .memory = std::max(int64_t{1}, static_cast<int64_t>(memory)),
          .of = device.name,
          .host = device.name};
}

MachineShare share_of_device(const device::Device& device) {
  const double memory = hardware::kUsableMemory * static_cast<double>(device.free_memory());
  return {.processors = std::max<int64_t>(1, available_processors()),
          .memory = std::max(int64_t{1}, static_cast<int64_t>(memory)),
          .of = device.spec().name,
          .users = device.other_users()};
}

MachineShare share_of_rank(const RunConfig& config, const RankPlace& place) {
  if (kind_of(config, place.ranks) != device::Kind::kCuda) return share_of_machine(place);
  return share_of_device(*device::open(device::Kind::kCuda));
}

device::Kind kind_of(const RunConfig& config, int64_t ranks) {
  if (!config.device.kind.is_word()) return *config.device.kind;
  if (ranks > 1 || config.debug.reference_kernels || stores_low(config) || score_limit(config) > 0 ||
      !device::any_is_tested())
    return device::Kind::kCpu;
  try {
    return device::is_tested(*device::open(device::Kind::kCuda)) ? device::Kind::kCuda : device::Kind::kCpu;
  } catch (const WorldError&) {  // it is not there now
    return device::Kind::kCpu;
  }
}

std::vector<Choice> choose_device(const RunConfig& config, const RankPlace& place, bool described) {
  const device::Kind kind =
      described ? config.device.kind.value_or(device::Kind::kCpu) : kind_of(config, place.ranks);
  if (kind == device::Kind::kCuda && place.ranks > 1 && !described) {
    throw ConfigError(
        "[device.kind] found cuda for {} ranks, expected one: this version trains on one GPU. Start one rank, or "
        "choose cpu",
        place.ranks);
  }
  if (!config.device.kind.is_word()) return {};
  if (kind == device::Kind::kCuda)
    return {chosen("device.kind", "cuda", "the GPU has passed strata doctor --self-test")};
  if (stores_low(config))
    return {chosen("device.kind", "cpu",
                   "precision.weights and optimizer.state_dtype other than fp32 are for it")};
  if (score_limit(config) > 0) return {chosen("device.kind", "cpu", "optimizer.muon.qk_clip is for it")};
  return {chosen("device.kind", "cpu", "no GPU has passed strata doctor --self-test")};
}

std::vector<Choice> choose_machine(const RunConfig& config, const RankPlace& place,
                                   const MachineShare& share) {
  std::vector<Choice> made;
  const std::string ranks = place.local_ranks > 1 ? fmt::format(" by {} ranks", place.local_ranks) : "";
  if (config.parallel.progress.is_word()) {
    const bool fills = config.device.threads.is_word() || share.processors < *config.device.threads + 1;
    const bool thread = place.ranks > 1 && !fills;
    made.push_back(chosen("parallel.progress", thread ? "thread" : "inline",
                          thread             ? "device.threads leaves processors free"
                          : place.ranks == 1 ? "one rank sends nothing"
                                             : "compute threads take all processors"));
  }
  if (config.device.threads.is_word()) {
    made.push_back(chosen("device.threads", std::max<int64_t>(1, share.processors),
                          "the processors of " + share.host + ranks));
  }
  if (config.memory.budget.is_word()) {
    std::string of = share.of == MachineShare{}.of ? "that is free" + ranks : "of " + share.of;
    if (!share.users.empty()) of += fmt::format(" that {} leave free", share.users);
    made.push_back(
        chosen("memory.budget", to_string(Bytes{share.memory}), "nine tenths of the memory " + of));
  }
  return made;
}

std::vector<Choice> choose_precision(const RunConfig& config, const hardware::DeviceSpec& device) {
  std::vector<Choice> made;
  DType compute = activation_dtype(config);
  if (compute == DType::kF16 && device.kind != "cpu") {
    throw ConfigError(
        "[precision.compute] found fp16 on {}: not yet in this version; take \"bf16\", or "
        "device.kind = \"cpu\"",
        device.name);
  }
  if (config.precision.compute.is_word()) {
    const bool is_fast = hardware::bf16_is_fast(device);
    compute = is_fast ? DType::kBF16 : DType::kF32;
    const std::string what = device.kind == "cpu" ? "the processor" : device.name;
    made.push_back(chosen("precision.compute", spelled(compute),
                          what + (is_fast ? " has instructions for bf16" : " has no instructions for bf16")));
  }
  if (config.precision.residual.is_word()) {
    made.push_back(chosen(
        "precision.residual", spelled(compute),
        computes_in_codes(config) ? "what a recipe leaves out stays in bf16" : "as precision.compute"));
  } else if (config.precision.residual != compute) {
    throw ConfigError(
        "[precision.residual] a residual stream of another type than precision.compute ({}) is not yet in "
        "this version; leave it at \"auto\"",
        name_of(compute));
  }
  if (computes_in_codes(config) && config.precision.recipe == "auto") {
    const bool has_8_bits = *config.precision.compute == DType::kE4M3;
    made.push_back(
        chosen("precision.recipe", std::string(recipe_name(config)),
               has_8_bits ? "the published run of the most tokens in fp8" : "the recipe in 4 bits"));
  }
  return made;
}

std::vector<Choice> choose_horizon(const RunConfig& config) {
  std::vector<Choice> made;
  const int64_t horizon = config.schedule.steps.value_or(total_steps(config));
  if (config.schedule.steps.is_word()) {
    made.push_back(chosen("schedule.steps", horizon,
                          config.training.tokens ? "training.tokens in whole steps" : "training.steps"));
  }
  if (config.schedule.warmup_steps.is_word()) {
    for (Choice& one : choose_warmup(horizon)) made.push_back(std::move(one));
  }
  return made;
}

std::vector<Choice> choose_warmup(int64_t horizon) {
  return {chosen("schedule.warmup_steps", auto_warmup_steps(horizon),
                 fmt::format("a twentieth of {} steps, at least 10 and at most half", horizon))};
}

std::vector<Choice> choose_micro_batch(const RunConfig& config, const hardware::DeviceSpec& device) {
  if (!config.training.micro_batch_size.is_word()) return {};
  // As many sequences as make about this number of tokens per rank: GEMMs are most efficient there, and more would only use
  // memory. A GPU computes tiles of 128 x 128 on more than a hundred multiprocessors, so it needs more rows to be busy.
  const int64_t tokens = device.kind == "gpu" ? 8192 : 2048;
  const int64_t shares = mesh_of(config).size(graph::Axis::kContext);
  const int64_t wanted = std::max<int64_t>(1, tokens * shares / config.training.sequence_length);
  const int64_t sequences = shared_sequences(config);
  int64_t size = std::min(wanted, sequences);
  std::string why = device.kind == "gpu" ? "about 8,192 tokens per rank" : "about 2,048 tokens per rank";
  // A pipeline of p ranks waits for p - 1 micro-batches: with 4 p of them that is a fifth of the time.
  if (const int64_t ranks = config.parallel.pipeline; ranks > 1 && sequences / (4 * ranks) < size) {
    size = std::max<int64_t>(1, sequences / (4 * ranks));
    why = "four micro-batches for each rank of the pipeline";
  }
  const auto divides = [&](int64_t n) { return sequences % n == 0 && has_equal_rows(config, n); };
  // The next smaller divisor, or the next greater one if ranks can share none of the smaller ones.
  int64_t found = size;
  while (found > 0 && !divides(found)) --found;
  for (int64_t more = size + 1; found == 0 && more <= sequences; ++more)
    if (divides(more)) found = more;
  return {chosen("training.micro_batch_size", std::max<int64_t>(1, found), why)};
}

namespace {

// The next smaller number of sequences that divides those of a rank's steps and that ranks can share.
std::optional<int64_t> smaller_micro_batch(const RunConfig& config, int64_t size) {
  while (--size >= 1)
    if (shared_sequences(config) % size == 0 && has_equal_rows(config, size)) return size;
  return std::nullopt;
}

}  // namespace

std::optional<Fit> smaller_fit(const RunConfig& config, const OpenToFit& open, const Fit& tried,
                               bool by_weights) {
  Fit next = tried;
  next.keeps_recompute = false;
  if (tried.keeps_recompute && !by_weights) return next;
  const auto smaller =
      open.micro_batch ? smaller_micro_batch(config, tried.micro_batch) : std::optional<int64_t>();
  if (!by_weights && smaller) {
    next.micro_batch = *smaller;
    return next;
  }
  if (!open.zero || config.parallel.shard <= 1 || tried.zero >= 3) return std::nullopt;
  ++next.zero;
  return next;
}

}  // namespace strata::config
