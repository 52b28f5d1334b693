#include "inference/drift.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/parallel.h"
#include "inference/generate.h"
#include "ops/loss/loss.h"
#include "program/metrics.h"
#include "tensor/dtype.h"

namespace strata::inference {
namespace {

constexpr size_t kTraining = 0, kPrefill = 1, kDecode = 2;

// The head's input in a training program.
struct Hidden {
  std::vector<float> rows;  // [tokens, width]
  DType dtype = DType::kF32;
  double softcap = 0;
};

class HeadInput final : public program::Executor::Observer {
 public:
  explicit HeadInput(program::Executor& executor) : executor_(executor) { executor.observe(this); }
  ~HeadInput() override { executor_.observe(nullptr); }
  HeadInput(const HeadInput&) = delete;
  HeadInput& operator=(const HeadInput&) = delete;

  void instruction(size_t index, const program::Action& action, size_t at, double, double) override {
    using Op = ops::LinearCrossEntropy;
    constexpr int kX = graph::position_of<Op::In>("x");
    const program::Program& program = executor_.program(index);
    const program::Instruction& instruction = program.list_of(action)[at];
    const graph::Node& node = program.node_of(instruction);
    if (node.op != &Op::def) return;
    const graph::Value& x = program.graph.value(graph::inputs_of<Op>(node).x);
    std::vector<std::byte> bytes(static_cast<size_t>(x.bytes()));
    executor_.download_operand(index, action, instruction, kX, bytes.data(), x.bytes());
    found.rows.resize(static_cast<size_t>(x.shape.elements()));
    convert(found.rows.data(), DType::kF32, bytes.data(), x.dtype, x.shape.elements());
    found.dtype = x.dtype;
    found.softcap = node.attrs.as<Op::Attrs>().softcap;
  }

  Hidden found;

 private:
  program::Executor& executor_;
};

// The head's matrix [vocabulary, width], which may be the embedding.
std::vector<float> head_of(const program::Executor& executor, DType as) {
  const graph::Graph& graph = executor.program(kTraining).graph;
  std::string name;
  for (const graph::Parameter& parameter : graph.parameters()) {
    const bool is_head = parameter.role == graph::ParameterRole::kHead;
    if (is_head || (name.empty() && parameter.role == graph::ParameterRole::kEmbedding))
      name = graph.value(parameter.value).name;
    if (is_head) break;
  }
  std::vector<float> head = executor.read_all<float>(name);
  if (as == DType::kF32) return head;
  const auto count = std::ssize(head);
  std::vector<std::byte> rounded(head.size() * static_cast<size_t>(size_of(as)));
  convert(rounded.data(), as, head.data(), DType::kF32, count);
  convert(head.data(), DType::kF32, rounded.data(), as, count);
  return head;
}

// ln Σ exp.
double log_sum(std::span<const double> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  return most + std::log(sum);
}

Hidden run_training(program::Executor& executor, const DriftText& text) {
  const auto put = [&](Column column, const std::vector<int32_t>& values) {
    executor.upload_column(kTraining, column, 0, values);
  };
  const std::vector<int32_t> zeros(text.tokens.size());
  std::vector<int32_t> targets(text.tokens.begin() + 1, text.tokens.end()), positions;
  targets.push_back(text.tokens.front());
  for (size_t i = 0; i < text.tokens.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  put(Column::kTokens, text.tokens);
  put(Column::kTargets, targets);
  put(Column::kPositions, positions);
  put(Column::kKvBegin, zeros);
  put(Column::kEncoderTokens, text.encoder);
  put(Column::kEncoderKvBegin, std::vector<int32_t>(text.encoder.size()));
  put(Column::kCrossKvBegin, zeros);
  HeadInput head(executor);
  executor.run_script(kTraining);
  return std::move(head.found);
}

struct Compared {
  double kl = 0, logit = 0, log_probability = 0;
  bool other_choice = false;
};

// Compares the logits after one token. Receives training's loss for the next one.
Compared compare(std::span<const double> trained, std::span<const float> written, int32_t next, double loss) {
  const std::vector<double> generated(written.begin(), written.end());
  const double of_trained = log_sum(trained), of_generated = log_sum(generated);
  Compared out;
  for (size_t v = 0; v < generated.size(); ++v) {
    const double p = trained[v] - of_trained, q = generated[v] - of_generated;
    out.kl += std::exp(p) * (p - q);
    out.logit = std::max(out.logit, std::abs(trained[v] - generated[v]));
  }
  out.kl = std::max(0.0, out.kl);
  out.log_probability = std::abs(generated[static_cast<size_t>(next)] - of_generated + loss);
  out.other_choice = std::max_element(trained.begin(), trained.end()) - trained.begin() !=
                     std::max_element(generated.begin(), generated.end()) - generated.begin();
  return out;
}

}  // namespace

std::vector<program::Request> drift_requests(int64_t length, int64_t encoder_length) {
  std::vector<program::Request> requests = generation_requests(kPrefillChunk, 1, encoder_length);
  requests.insert(requests.begin(), {.kind = program::Kind::kEvaluate,
                                     .sequences = 1,
                                     .sequence_length = length,
                                     .encoder_length = encoder_length,
                                     .per_token_loss = true});
  return requests;
}

Drift measure_drift(program::Executor& training, program::Executor& generation,
                    std::span<const DriftText> texts) {
  Generator generator(generation, kPrefill, kDecode);
  const auto vocabulary = static_cast<size_t>(training.set().options.model.vocab_size);
  Drift drift;
  double sum = 0;
  std::vector<float> head;
  for (const DriftText& text : texts) {
    const Hidden hidden = run_training(training, text);
    const auto losses = program::Metric(training, kTraining, graph::MetricKind::kTokenLoss).read_all<float>();
    if (head.empty()) head = head_of(training, hidden.dtype);
    STRATA_CHECK(!hidden.rows.empty() && head.size() % vocabulary == 0,
                 "[drift] the training program has no head");
    const size_t width = head.size() / vocabulary;
    std::vector<double> trained(vocabulary);
    generator.follow(text.tokens, text.prompt, text.encoder, [&](size_t at, std::span<const float> written) {
      const float* const row = hidden.rows.data() + at * width;
      parallel_ranges(static_cast<int64_t>(vocabulary), 256, [&](int64_t begin, int64_t end) {
        for (auto v = static_cast<size_t>(begin); v < static_cast<size_t>(end); ++v) {
          double logit = 0;
          for (size_t i = 0; i < width; ++i) logit += double{row[i]} * double{head[v * width + i]};
          trained[v] = hidden.softcap > 0 ? hidden.softcap * std::tanh(logit / hidden.softcap) : logit;
        }
      });
      const int32_t next = text.tokens[(at + 1) % text.tokens.size()];
      const Compared found = compare(trained, written, next, double{losses[at]});
      sum += found.kl;
      drift.largest_kl = std::max(drift.largest_kl, found.kl);
      drift.largest_logit = std::max(drift.largest_logit, found.logit);
      drift.largest_log_probability = std::max(drift.largest_log_probability, found.log_probability);
      drift.other_choices += found.other_choice;
      ++drift.tokens;
    });
  }
  drift.mean_kl = drift.tokens > 0 ? sum / static_cast<double>(drift.tokens) : 0;
  return drift;
}

}  // namespace strata::inference
