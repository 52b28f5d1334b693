#include "golden_model.h"

namespace strata::train::golden {

namespace {

program::CompileOptions options_for(const Golden& golden, Recompute recompute, DType activations) {
  program::CompileOptions options;
  options.activations = activations;
  options.model = golden.model;
  options.rule_of = [](const std::string&, const Shape& shape) {
    return optim::ParameterRule{shape.rank() >= 2 ? 0.1 : 0.0, 1.0};
  };
  options.recompute = recompute;
  options.cache_room = 64;
  options.threads = compute_threads();
  return options;
}

}  // namespace

std::unique_ptr<Executor> make_executor(const Golden& golden, std::vector<program::Request> requests,
                                        Recompute recompute, DType activations) {
  auto executor =
      std::make_unique<Executor>(program::compile(requests, options_for(golden, recompute, activations)));
  initialize_weights(*executor, 1);
  load_hugging_face(golden.folder, golden.model, *executor);
  executor->run(0, Segment::kEncode);
  return executor;
}

int32_t* input(Executor& executor, size_t index, const char* name, int64_t micro_batch) {
  return reinterpret_cast<int32_t*>(executor.batch_input(index, name, micro_batch));
}

void fill_stream(Executor& executor, size_t index, const int32_t* tokens, int64_t first, int64_t sequences,
                 int64_t micro_batch) {
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t t = 0; t < kLength; ++t) {
      const int64_t at = s * kLength + t;
      const int32_t* row = tokens + (first + s) * (kLength + 1);
      input(executor, index, "tokens", micro_batch)[at] = row[t];
      input(executor, index, "targets", micro_batch)[at] = row[t + 1];
      input(executor, index, "positions", micro_batch)[at] = static_cast<int32_t>(t);
      input(executor, index, "kv_begin", micro_batch)[at] = 0;
    }
  }
}

namespace {

// Rows [first, first + sequences) of what PREFIX inputs/… holds from its element `at` on.
void fill_spelt(const Golden& golden, Executor& executor, const std::string& prefix, int64_t at,
                int64_t first, int64_t sequences, int64_t micro_batch) {
  for (const auto& [name, entry] : golden.source.tensors) {
    if (!name.starts_with(prefix + "inputs/")) continue;
    const auto values = golden.integers(name);
    const Shape& shape = entry.tensor->shape;
    const int64_t length = shape[shape.rank() - 1], rows = shape[shape.rank() - 2];
    int32_t* to = input(executor, 0, name.substr(prefix.size() + 7).c_str(), micro_batch);
    if (to == nullptr) continue;
    std::copy_n(values.begin() + (at * rows + first) * length, sequences * length, to);
  }
}

}  // namespace

void fill_plain(const Golden& golden, Executor& executor, int64_t first, int64_t sequences,
                int64_t micro_batch) {
  if (golden.spells_inputs()) {
    fill_spelt(golden, executor, "", 0, first, sequences, micro_batch);
  } else {
    fill_stream(executor, 0, golden.integers("tokens").data(), first, sequences, micro_batch);
  }
}

void fill_documents(const Golden& golden, Executor& executor) {
  if (golden.spells_inputs()) return fill_spelt(golden, executor, "document/", 0, 0, kBatch, 0);
  const auto tokens = golden.integers("document/tokens");
  const auto positions = golden.integers("document/positions");
  const auto targets = golden.integers("document/targets");
  for (int64_t s = 0; s < kBatch; ++s) {
    for (int64_t t = 0; t < kLength; ++t) {
      const int64_t at = s * kLength + t;
      const auto place = static_cast<size_t>(at);
      input(executor, 0, "tokens")[at] = tokens[static_cast<size_t>(s * (kLength + 1) + t)];
      input(executor, 0, "targets")[at] = targets[place];
      input(executor, 0, "positions")[at] = positions[place];
      input(executor, 0, "kv_begin")[at] = static_cast<int32_t>(t) - positions[place];
    }
  }
}

void fill_step(const Golden& golden, Executor& executor, size_t step) {
  if (golden.spells_inputs())
    return fill_spelt(golden, executor, "adamw/", static_cast<int64_t>(step), 0, kBatch, 0);
  fill_stream(executor, 0, golden.integers("adamw/tokens").data() + step * kBatch * (kLength + 1), 0, kBatch,
              0);
}

program::Request train_request(const Golden& golden, int64_t sequences, int64_t micro_batches) {
  program::Request request{.kind = Kind::kTrain,
                           .sequences = sequences,
                           .sequence_length = kLength,
                           .micro_batches = micro_batches};
  if (golden.spells_inputs()) request.sequence_length = golden.length("inputs/tokens");
  if (golden.has("inputs/source_tokens")) request.source_length = golden.length("inputs/source_tokens");
  return request;
}

double mean_loss(const Executor& executor) {
  return *executor.data_as<double>("loss_sum") /
         static_cast<double>(*executor.data_as<int64_t>("token_count"));
}

std::vector<float> gradient_of(const Golden& golden, const Executor& executor, const std::string& file_name) {
  for (const models::TensorRow& row : golden.model.family->tensors(golden.model)) {
    if (row.file_name != file_name) continue;
    const auto& value = executor.set().at("grad." + row.parameter);
    const int64_t columns = value.shape.rank() == 2 ? value.shape[1] : 1;
    const float* gradient = executor.data_as<float>("grad." + row.parameter) + row.row * columns;
    const auto count = static_cast<float>(*executor.data_as<int64_t>("token_count"));
    std::vector<float> out(static_cast<size_t>(row.rows * columns));
    const int64_t group = row.interleave.none() ? row.rows : row.interleave.group_rows();
    for (int64_t first = 0; first < row.rows;) {
      const RowRun run =
          row.interleave.none() ? RowRun{0, 0, group} : run_at(row.interleave, row.rows, first);
      for (int64_t r = 0; r < run.rows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t to = row.transposed ? c * row.rows + r : (run.file_row + r) * columns + c;
          out[static_cast<size_t>(to)] = gradient[(run.memory_row + r) * columns + c] / count;
        }
      }
      first += run.rows;
    }
    return out;
  }
  ADD_FAILURE() << "no tensor " << file_name;
  return {};
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum);
}

namespace {

// By the loss of every token of the vocabulary as the target of every row.
double probabilities_error(const Golden& golden) {
  program::Request request = train_request(golden, kBatch, 1);
  request.kind = Kind::kEvaluate;
  request.per_token_loss = true;
  auto executor = make_executor(golden, {request});
  fill_plain(golden, *executor);
  const auto logits = golden.floats("logits");
  const int64_t vocab = golden.model.vocab_size, rows = kBatch * request.sequence_length;
  double worst = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    std::fill_n(input(*executor, 0, "targets"), rows, static_cast<int32_t>(v));
    executor->run(0, Segment::kFirst);
    const float* loss = executor->data_as<float>("token_loss");
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = logits.data() + r * vocab;
      double sum = 0;
      for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(row[i]));
      worst = std::max(worst,
                       std::abs(std::log(sum) - static_cast<double>(row[v]) - static_cast<double>(loss[r])));
    }
  }
  return worst;
}

}  // namespace

double logits_error(const Golden& golden) {
  if (golden.spells_inputs()) return probabilities_error(golden);
  auto executor = make_executor(golden, generation_requests(8));
  const auto tokens = golden.integers("tokens");
  const auto logits = golden.floats("logits");
  const int64_t vocab = golden.model.vocab_size;
  double worst = 0;
  for (int64_t s = 0; s < kBatch; ++s) {
    // Eight tokens at once at first, then one by one.
    for (int64_t t = 7; t < kLength; ++t) {
      const bool prefill = t == 7;
      const size_t index = prefill ? 0 : 1;
      for (int64_t i = 0; i < (prefill ? 8 : 1); ++i) {
        const int64_t from = prefill ? i : t;
        input(*executor, index, "tokens")[i] = tokens[static_cast<size_t>(s * (kLength + 1) + from)];
        input(*executor, index, "positions")[i] = static_cast<int32_t>(from);
      }
      *executor->data_as<int32_t>("cache_position") = prefill ? 0 : static_cast<int32_t>(t);
      *executor->data_as<int32_t>("last_row") = prefill ? 7 : 0;
      executor->run(index, Segment::kFirst);
      const float* found = executor->data_as<float>("logits");
      const float* wanted = logits.data() + (s * kLength + t) * vocab;
      for (int64_t v = 0; v < vocab; ++v)
        worst = std::max(worst, std::abs(static_cast<double>(found[v]) - wanted[v]));
    }
  }
  return worst;
}

std::vector<int32_t> greedy_text(const Golden& golden) {
  const auto prompt = golden.integers("greedy/prompt");
  const bool reads = golden.model.architecture == models::Architecture::kEncoderDecoder;
  auto executor = make_executor(golden, generation_requests(4, 1, reads ? std::ssize(prompt) : 0));
  Generator generator(*executor, 0, 1);
  const auto tokens = std::ssize(golden.integers("greedy/tokens"));
  return generator.generate(prompt, {.max_tokens = tokens, .temperature = 0});
}

Curve adamw_curve(const Golden& golden) {
  auto executor = make_executor(golden, {train_request(golden, kBatch, 1)});
  const size_t steps = golden.floats("adamw/loss").size();
  optim::UpdateHyper hyper;
  hyper.lr = 1e-3f;
  hyper.max_grad_norm = 1.0;
  Curve curve;
  for (size_t step = 0; step < steps; ++step) {
    fill_step(golden, *executor, step);
    executor->run(0, Segment::kFirst);
    curve.losses.push_back(mean_loss(*executor));
    hyper.bias_correction1 = static_cast<float>(1 - std::pow(0.9, static_cast<double>(step + 1)));
    hyper.bias_correction2 = static_cast<float>(1 - std::pow(0.95, static_cast<double>(step + 1)));
    std::memcpy(executor->data("hyper"), &hyper, sizeof hyper);
    executor->run(0, Segment::kUpdate);
    executor->run(0, Segment::kEncode);
    curve.norms.push_back(static_cast<double>(*executor->data_as<float>("grad_norm")));
  }
  return curve;
}

}  // namespace strata::train::golden
