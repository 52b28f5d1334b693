// Search of layouts: every layout of a job on a cluster that can run, ranked by time.
//
// Memory comes first: a layout that does not fit is discarded before its time is computed. All counts are of
// one training step; a layout keeps the least recomputation that fits.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/memory_model.h"
#include "plan/step_model.h"

namespace strata::planning {

// Degrees that the user fixed. Keys of RUN.toml name them in messages.
struct FixedLayout {
  std::optional<int64_t> tensor = {}, pipeline = {}, context = {}, expert = {}, zero = {}, micro_batch = {},
                         virtual_stages = {}, expert_tensor = {}, overlap_chunks = {};
  std::optional<PipelineSchedule> schedule = {};
  std::optional<bool> interleaved = {};  // 1F1B and ZB-H1: whether ranks have several stages
  std::optional<Recompute> recompute = {};
};

// What a stack can run.
struct SearchSpace {
  std::vector<PipelineSchedule> schedules = {PipelineSchedule::k1F1B};
  int most_zero = 3;
  std::vector<Recompute> recompute = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  int64_t most_virtual = 8;  // stages of a rank in interleaved schedules
  int64_t most_context = 64;
  bool virtual_divides = false;  // pipeline * virtual_stages must divide the layers
  bool shards_context = true;    // ZeRO also shards over the context axis
  // Experts are shared by the ranks of tensor, of context and tensor, or of whole shard groups with them; then
  // the shard group has at most that size.
  bool folds_experts = false;
  bool cuts_experts = false;  // the tensor axis may shard the width of each expert instead of sharing experts
  bool latent_context = true;  // latent attention may be tried with context parallelism
  // Parts of a micro-batch's rows whose exchanges along the tensor axis overlap matmuls. A rank needs 64 rows
  // for each (program/row_chunks.h).
  std::vector<int64_t> overlap_chunks = {1};
};
SearchSpace strata_space();
SearchSpace nanotron_space();  // DP, TP, PP and ZeRO 0 or 1, as its published scans

struct SearchRequest {
  ModelShape shape;
  int64_t sequence = 0;  // tokens
  int64_t batch = 0;     // sequences of a step
  Precision precision = Precision::kBf16;
  ClusterSpec cluster;
  int64_t devices = 1;
  const StackProfile* stack = nullptr;  // the caller keeps it alive
  const Profiles* profiles = nullptr;
  SearchSpace space = strata_space();
  FixedLayout fixed = {};
  double memory_limit = 0;  // bytes; 0: nine tenths of the chip's
  // Master weights and moments are in the host's memory, and the host updates them: of formulas only, no program does.
  bool offload = false;
  size_t keep = 10;
};

// What a faster step would need first.
enum class Binds { kCompute, kMemory, kBandwidth, kBubble, kBatch };
std::string_view to_string(Binds binds);

struct RankedLayout {
  Layout layout;
  StepTime step;
  MemoryUse memory;
  double seconds = 0;        // of a step
  double low = 0, high = 0;  // 90 % interval
  double mfu = 0;            // of the dense peak; model FLOPs with full attention
  Binds binds = Binds::kCompute;
  double binds_share = 0;  // of the step
};

// Layouts that cannot run, nearest first.
struct Discarded {
  std::string layout;  // "tensor 8, pipeline 2"
  std::string reason;
  double excess = 0;  // bytes above the memory, or 0: a rule is violated
};

struct SearchResult {
  std::vector<RankedLayout> best;  // fastest first, one for each combination of degrees, ZeRO and schedule
  std::vector<Discarded> nearest;
  double memory_limit = 0;
  double least_memory = 0;  // bytes of the layout that needs the fewest
  std::string least_layout;
  int64_t tried = 0, ruled_out = 0, too_large = 0, priced = 0;
};

// ConfigError for fixed degrees that contradict each other or the number of devices (names both), and for a
// batch that no layout can divide. `best` is empty if nothing fits.
SearchResult search_layouts(const SearchRequest& request);

// Memory and time of a layout by the profile's formulas: those of compiled programs (program_model.h), or of
// published stacks.
RankedLayout price_layout(const SearchRequest& request, const Layout& layout);

struct Sensitivity {
  std::string what;    // "1 GB more memory on every device"
  double seconds = 0;  // of the best step then; 0: nothing fits
  double gain = 0;     // share of the step that it saves
  std::string layout;  // the best one then
  int64_t devices = 0;
};
// The search repeated with one resource more: a GB, twice the devices, 1 Gbit/s and twice the outermost link,
// twice the batch (for the same tokens).
std::vector<Sensitivity> sensitivity(const SearchRequest& request, const RankedLayout& best);

std::string layout_in_words(const Layout& layout);
std::string gigabytes(double bytes);  // "66.5 GB"

}  // namespace strata::planning
