#include "train/recompute_check.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/exchange.h"
#include "config/layout.h"
#include "data/samples/loader.h"

namespace strata::training {
namespace {

bool is_first_micro_batch(const program::Action& action) {
  return program::is_of_micro_batch(action.segment) && action.micro_batch == 0;
}

std::vector<uint64_t> gather(const program::Ranks& ranks, uint64_t digest) {
  std::vector<uint64_t> digests;
  for (const std::string& text : comm::gather_texts(ranks.all(), std::to_string(digest)))
    digests.push_back(std::stoull(text));
  return digests;
}

// Why results of different ranks cannot be compared; empty: they can.
std::string obstacle(const RunInputs& inputs, const program::Executor& executor) {
  if (inputs.config.parallel.pipeline > 1) return "a stage of a pipeline has no whole micro-batch";
  if (inputs.ranks.batch_parts() == 1) return "no other rank has a part of the batch";
  if (inputs.config.parallel.expert > 1)
    return "experts on several ranks compute the tokens of all of them (parallel.expert)";
  const auto sets = comm::gather_texts(inputs.ranks.all(), executor.device().spec().isa.str());
  const auto other =
      std::find_if(sets.begin(), sets.end(), [&](const auto& one) { return one != sets.front(); });
  if (other == sets.end()) return "";
  return fmt::format("rank 0 has the instruction sets {}, rank {} has {}", sets.front(), other - sets.begin(),
                     *other);
}

}  // namespace

WorkDigest::WorkDigest(program::Executor& executor, size_t program)
    : executor_(executor), program_(program) {}

void WorkDigest::instruction(size_t program, const program::Action& action, size_t index, double begin,
                             double end) {
  if (before_ != nullptr) before_->instruction(program, action, index, begin, end);
  if (program != program_) return;
  const program::Program& held = executor_.program(program);
  const program::Instruction& instruction = held.list_of(action)[index];
  if (instruction.queue != graph::Queue::kCompute) return;  // it sums over ranks
  const graph::Node& node = held.node_of(instruction);
  const graph::ValueId loss = held.graph.metric(graph::MetricKind::kLossSum);
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (node.outputs[o] == graph::kNone) continue;
    const graph::Value& value = held.graph.value(node.outputs[o]);
    const bool counts =
        value.role == graph::Role::kGradient || value.role == graph::Role::kTerms || node.outputs[o] == loss;
    if (!counts) continue;
    const int64_t bytes = value.bytes();
    bytes_.resize(std::max(bytes_.size(), static_cast<size_t>(bytes)));
    executor_.download_operand(program, action, instruction, node.inputs.size() + o, bytes_.data(), bytes);
    digest_ = hash64(bytes_.data(), static_cast<size_t>(bytes), digest_);
  }
}

std::optional<int> wrong_rank(const std::vector<int>& ranks, const WorkVotes& votes, bool& differs) {
  const size_t parts = ranks.size();
  const auto of = [](const std::vector<uint64_t>& digests, int rank) {
    return digests[static_cast<size_t>(rank)];
  };
  std::optional<int> wrong;
  for (size_t part = 0; part < parts; ++part) {
    const int owner = ranks[part], before = ranks[(part + parts - 1) % parts];
    const uint64_t own = of(votes.own, owner), checked = of(votes.next, before);
    if (own == checked) continue;
    differs = true;
    if (votes.third.empty() || wrong) continue;
    // With two parts the third result is the owner's again.
    const uint64_t third = of(votes.third, ranks[(part + 2 * parts - 2) % parts]);
    if (third == checked) wrong = owner;
    if (third == own && parts > 2) wrong = before;
  }
  return wrong;
}

RecomputeCheck::RecomputeCheck(const RunInputs& inputs, program::Executor& executor)
    : inputs_(inputs), executor_(executor) {
  if (inputs.config.recovery.recompute_check.kind == config::Interval::Kind::kNever) {
    can_check_ = false;
    return;
  }
  const std::string why = obstacle(inputs, executor);
  can_check_ = why.empty();
  if (!can_check_ && inputs.is_first())
    log_warning("[recovery.recompute_check] no micro-batch is computed again: {}", why);
}

bool RecomputeCheck::is_due(int64_t step) const {
  const int64_t every = config::steps_between(inputs_.config.recovery.recompute_check);
  return can_check_ && every > 0 && step % every == 0;
}

std::vector<int> RecomputeCheck::ranks_of_batch(int64_t rank) const {
  const graph::Mesh& mesh = inputs_.ranks.mesh();
  graph::Coordinates at = mesh.coordinates(rank);
  std::vector<int> ranks;
  for (int64_t part = 0; part < inputs_.ranks.batch_parts(); ++part) {
    const int64_t shards = mesh.size(graph::Axis::kShard);
    at[graph::Axis::kReplicate] = static_cast<int32_t>(part / shards);
    at[graph::Axis::kShard] = static_cast<int32_t>(part % shards);
    ranks.push_back(static_cast<int>(mesh.rank_at(at)));
  }
  return ranks;
}

void RecomputeCheck::begin(const RunPosition& position, size_t program) {
  position_ = &position;
  program_ = program;
  own_.emplace(executor_, program);
  found_.reset();
  mended_ = false;
}

void RecomputeCheck::compute_next() {
  next_ = compute(1);
}

uint64_t RecomputeCheck::compute(int64_t ahead) {
  const program::Program& program = executor_.program(program_);
  const data::SampleSource& samples = *position_->samples();
  const config::StepSize size = position_->size();
  const int64_t parts = inputs_.ranks.batch_parts();
  const config::BatchPart part =
      config::batch_part(size.sequences, (inputs_.ranks.batch_part() + ahead) % parts, parts);
  const int64_t pieces = inputs_.config.training.sequence_length / size.length;
  const int64_t rows = (program.request.sequences + pieces - 1) / pieces;
  data::HostBatch batch;
  data::fill_batch(samples,
                   {.first = position_->next_sample() + part.first,
                    .sequences = std::min(rows, part.rows),
                    .pieces = pieces},
                   rows, batch, scratch_);
  executor_.upload_rows(program_, batch.rows(samples.shape()), 0, 0);
  WorkDigest digest(executor_, program_);
  digest.begin();
  for (size_t i = 0; i < program.script.size(); ++i) {
    if (is_first_micro_batch(program.script[i])) executor_.run_in_script(program_, i);
  }
  digest.end();
  return digest.value();
}

bool RecomputeCheck::must_repeat() {
  const program::Ranks& ranks = inputs_.ranks;
  WorkVotes votes{.own = gather(ranks, own_->value()), .next = gather(ranks, next_), .third = {}};
  const auto differs = [&] {
    bool any = false;
    for (int rank = 0; rank < ranks.world().size(); ++rank) wrong_rank(ranks_of_batch(rank), votes, any);
    return any;
  };
  const bool is_second_time = found_.has_value();
  if (!differs()) {
    mended_ = is_second_time;
    return false;
  }
  if (is_second_time) return false;
  votes.third = gather(ranks, compute(ranks.batch_parts() > 2 ? 2 : 0));
  std::optional<int> wrong;
  bool any = false;
  for (int rank = 0; rank < ranks.world().size() && !wrong; ++rank)
    wrong = wrong_rank(ranks_of_batch(rank), votes, any);
  found_ = Corruption{.where = "computation", .found_by = "recompute_check", .rank = wrong};
  next_ = compute(1);
  own_.emplace(executor_, program_);
  return true;
}

}  // namespace strata::training
