#include "plan/row_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/toml.h"
#include "plan/builtin_data.h"

namespace strata::planning {
namespace {

constexpr std::string_view kFile = "data/planning/architectures.toml";

int64_t count_at(const ConfigValue& table, std::string_view key, int64_t missing) {
  const ConfigValue* found = table.find(key);
  if (!found) return missing;
  const auto* value = found->get_if<int64_t>();
  if (!value || *value < 1)
    throw ConfigError("[{}] {}: found {}, expected a whole number from 1", to_string(found->origin), key,
                      to_toml(*found));
  return *value;
}

double real_at(const ConfigValue& table, std::string_view key) {
  const ConfigValue* found = table.find(key);
  const auto* value = found ? found->get_if<double>() : nullptr;
  return value ? *value : 0;
}

bool flag_at(const ConfigValue& table, std::string_view key) {
  const ConfigValue* found = table.find(key);
  const auto* value = found ? found->get_if<bool>() : nullptr;
  return value && *value;
}

Architecture read_architecture(const ConfigEntry& section) {
  const ConfigValue& table = section.value;
  Architecture out;
  out.name = section.key;
  if (const ConfigValue* match = table.find("match")) {
    for (const ConfigValue& name : std::get<ConfigValue::Array>(match->data))
      out.match.push_back(std::get<std::string>(name.data));
  }
  out.shape = {.layers = count_at(table, "layers", 0),
               .hidden = count_at(table, "hidden", 0),
               .heads = count_at(table, "heads", 0),
               .kv_heads = count_at(table, "kv_heads", 0),
               .head_dim = count_at(table, "head_dim", 0),
               .ffn = count_at(table, "ffn", 0),
               .vocab = count_at(table, "vocab", 0),
               .gated = flag_at(table, "gated"),
               .tied = flag_at(table, "tied"),
               .moe = {.experts = count_at(table, "experts", 0),
                       .per_token = count_at(table, "experts_per_token", 0),
                       .shared = count_at(table, "shared_experts", 0),
                       .width = count_at(table, "expert_ffn", 0),
                       .every = count_at(table, "expert_every", 1),
                       .dense_layers = count_at(table, "expert_dense_layers", 0),
                       .node_limit = count_at(table, "node_limit", 0)},
               .latent = {.query_rank = count_at(table, "query_rank", 0),
                          .key_value_rank = count_at(table, "key_value_rank", 0),
                          .rope_dim = count_at(table, "rope_dim", 0),
                          .nope_dim = count_at(table, "nope_dim", 0),
                          .value_dim = count_at(table, "value_dim", 0)}};
  out.parameters = real_at(table, "parameters");
  out.active_parameters = real_at(table, "active_parameters");
  return out;
}

// Fills a RowJob step by step; each step stops the next ones with `skipped`.
class RowReader {
 public:
  RowReader(const PublishedRun& run, const StackProfile& stack, const std::vector<Architecture>& known)
      : run_(run), stack_(stack), named_(find_architecture(known, run.model)) {}

  RowJob read() {
    for (void (RowReader::*step)() :
         {&RowReader::check_columns, &RowReader::read_sizes, &RowReader::read_experts,
          &RowReader::read_layout, &RowReader::read_batch, &RowReader::read_precision,
          &RowReader::note_violations}) {
      if (out_.skipped.empty()) (this->*step)();
    }
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void skip(fmt::format_string<Args...> text, Args&&... args) {
    out_.skipped = fmt::format(text, std::forward<Args>(args)...);
  }
  template <typename... Args>
  void assume(fmt::format_string<Args...> text, Args&&... args) {
    out_.assumptions.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void check_columns() {
    for (const InvalidCell& cell : run_.invalid) {
      if (is_input(cell.column)) return skip("{}: {}", cell.column, cell.message);
    }
    const std::vector<std::string_view> missing = missing_columns(run_, priced_columns());
    if (!missing.empty()) skip("no value in {}", fmt::join(missing, ", "));
  }

  void read_sizes() {
    ModelShape& shape = out_.job.shape;
    if (named_) {
      shape = named_->shape;
      assume("experts, head size and gates as published for {}", named_->name);
    }
    shape.layers = *run_.layers;
    shape.hidden = *run_.hidden;
    shape.heads = *run_.heads;
    shape.kv_heads = *run_.kv_heads;
    shape.vocab = *run_.vocab;
    shape.ffn = *run_.ffn;
    out_.job.sequence = *run_.seq_len;
    if (!named_) {
      if (shape.hidden % shape.heads != 0)
        return skip("heads {} does not divide hidden {}", shape.heads, shape.hidden);
      shape.head_dim = shape.hidden / shape.heads;
    }
    if (shape.kv_heads > shape.heads)
      return skip("kv_heads {} is above heads {}", shape.kv_heads, shape.heads);
  }

  // Chooses gated or not, tied or not, by the number of parameters.
  void read_dense() {
    ModelShape& shape = out_.job.shape;
    if (!run_.params_total) {
      shape.gated = shape.ffn != 4 * shape.hidden;
      return assume("{}: params_total_B has no value", shape.gated ? "gated MLP" : "two matrices in the MLP");
    }
    double least = 1e9;
    ModelShape best = shape;
    for (const bool gated : {true, false}) {
      for (const bool tied : {false, true}) {
        shape.gated = gated;
        shape.tied = tied;
        const double differs = std::abs(std::log(count_parameters(shape).stored / *run_.params_total));
        if (differs > least - 0.001) continue;  // of equal ones the first
        least = differs;
        best = shape;
      }
    }
    shape = best;
    if (least > 0.25)
      return skip("the sizes make {:.3g} billion parameters, params_total_B is {:.3g}",
                  count_parameters(shape).stored / 1e9, *run_.params_total / 1e9);
    assume("{}, {} head: {:.4g} billion parameters, published {:.4g}",
           shape.gated ? "gated MLP" : "two matrices in the MLP", shape.tied ? "tied" : "untied",
           count_parameters(shape).stored / 1e9, *run_.params_total / 1e9);
  }

  void read_experts() {
    if (named_) return;
    const bool sparse = run_.ep.value_or(1) > 1 || (run_.params_total && run_.params_active &&
                                                    *run_.params_active < 0.9 * *run_.params_total);
    if (!sparse) return read_dense();
    ModelShape& shape = out_.job.shape;
    if (!run_.params_total || !run_.params_active)
      return skip("a model with experts needs params_total_B and params_active_B, or a known name");
    // Experts of the published width in every layer.
    shape.gated = true;
    ParameterCounts counts = count_parameters(shape);
    const double expert = static_cast<double>(shape.layers) * counts.mlp;
    const double rest = counts.stored - expert;
    shape.moe = {.experts = std::llround((*run_.params_total - rest) / expert),
                 .per_token = std::llround((*run_.params_active - rest) / expert),
                 .width = shape.ffn};
    if (shape.moe.per_token < 1 || shape.moe.experts <= shape.moe.per_token)
      return skip("ffn {}, params_total_B and params_active_B do not give a number of experts", shape.ffn);
    counts = count_parameters(shape);
    if (std::abs(std::log(counts.stored / *run_.params_total)) > 0.1 ||
        std::abs(std::log(counts.active / *run_.params_active)) > 0.15)
      return skip("{} experts of width {} do not give params_total_B and params_active_B", shape.moe.experts,
                  shape.ffn);
    assume("{} experts, {} for a token, of width {}, from the parameter counts", shape.moe.experts,
           shape.moe.per_token, shape.ffn);
  }

  void read_layout() {
    Layout& layout = out_.job.layout;
    layout.tensor = *run_.tp;
    layout.pipeline = *run_.pp;
    layout.context = run_.cp.value_or(1);
    const int64_t model = layout.tensor * layout.pipeline * layout.context;
    if (*run_.num_gpus % model != 0)
      return skip("tp x pp x cp = {} does not divide num_gpus {}", model, *run_.num_gpus);
    layout.data = *run_.num_gpus / model;
    if (run_.dp && *run_.dp != layout.data)
      return skip("tp x pp x cp x dp = {}, num_gpus is {}", model * *run_.dp, *run_.num_gpus);
    if (layout.pipeline > out_.job.shape.layers)
      return skip("pp {} is above layers {}", layout.pipeline, out_.job.shape.layers);
    if (layout.pipeline > 1) {
      const int64_t most = out_.job.shape.layers / layout.pipeline;
      layout.virtual_stages = run_.vpp.value_or(std::min(stack_.stages_if_unknown, most));
      if (!run_.vpp) assume("vpp {}, as it has no value", layout.virtual_stages);
    }
    layout.expert = run_.ep.value_or(1);
    if (out_.job.shape.has_experts() && layout.expert > out_.job.shape.moe.experts)
      return skip("ep {} is above {} experts", layout.expert, out_.job.shape.moe.experts);
    // Experts are sharded over the tensor axis too if the group of experts divides the replicas.
    if (layout.replicas() % layout.expert == 0) layout.expert_tensor = layout.tensor;
    layout.shards = layout.replicas();
    if (run_.fsdp) {
      layout.zero_stage = run_.fsdp->stage;
      if (run_.fsdp->degree) layout.shards = std::min(*run_.fsdp->degree * layout.context, layout.replicas());
    } else if (stack_.shards_optimizer) {
      layout.zero_stage = 1;
    }
    if (layout.shards <= 1) layout.zero_stage = 0;
    if (run_.recompute && *run_.recompute != Recompute::kUnspecified) {
      layout.recompute = *run_.recompute;
    } else if (run_.recompute) {
      layout.recompute = Recompute::kFull;
      assume("full recomputation: the row has \"{}\"", run_.recompute_text);
    } else {
      layout.recompute = stack_.default_recompute;
      assume("{} recomputation, the stack's default",
             layout.recompute == Recompute::kSelective ? "selective" : "no");
    }
    // The stacks of 2021 shard activations only if the cell contains SP.
    layout.sequence_parallel =
        stack_.attention != AttentionKernel::kScores || run_.recompute_text.find("SP") != std::string::npos;
  }

  void read_batch() {
    Layout& layout = out_.job.layout;
    layout.micro_batch = run_.micro_batch.value_or(1);
    if (!run_.micro_batch) assume("micro-batches of one sequence: micro_batch has no value");
    if (stack_.local_batch && layout.pipeline > 1) {
      layout.micro_batch = 1;
      assume("the local batch of {} passes the pipeline one sequence at a time",
             run_.micro_batch.value_or(1));
    }
    const double sequences =
        static_cast<double>(*run_.global_batch_tokens) / static_cast<double>(out_.job.sequence);
    const double exact = sequences / static_cast<double>(layout.data * layout.micro_batch);
    if (exact < 0.98)
      return skip("global_batch_tokens is {:.3g} sequences, below micro_batch {} x {} replicas", sequences,
                  layout.micro_batch, layout.data);
    const double nearest = std::max(1.0, std::round(exact));
    if (std::abs(exact / nearest - 1) < 0.02) {
      layout.micro_batches = nearest;
    } else {
      layout.micro_batches = std::ceil(exact);
      assume("{:.0f} micro-batches, the last one smaller", layout.micro_batches);
    }
  }

  // Published runs may break the rules of this reference by uneven stages or padding, so these are notes.
  void note_violations() {
    for (const std::string& rule : layout_violations(out_.job.shape, out_.job.layout, out_.job.sequence))
      assume("possible although {}", rule);
  }

  void read_precision() {
    if (run_.precision) {
      out_.job.precision = *run_.precision;
    } else {
      assume("bf16: the row has no precision");
    }
  }

  const PublishedRun& run_;
  const StackProfile& stack_;
  const Architecture* named_;
  RowJob out_;
};

}  // namespace

double TrainingJob::batch_tokens() const {
  return layout.micro_batches * static_cast<double>(layout.micro_batch * layout.data * sequence);
}

std::vector<Architecture> builtin_architectures() {
  const ConfigValue document = parse_toml(builtin_file(kFile), std::string(kFile));
  std::vector<Architecture> out;
  for (const ConfigEntry& section : std::get<ConfigValue::Table>(document.find("architecture")->data))
    out.push_back(read_architecture(section));
  return out;
}

const Architecture* find_architecture(const std::vector<Architecture>& all, std::string_view model) {
  for (const Architecture& architecture : all) {
    for (const std::string& name : architecture.match) {
      if (model.starts_with(name)) return &architecture;
    }
  }
  return nullptr;
}

RowJob job_of(const PublishedRun& run, const StackProfile& stack, const std::vector<Architecture>& known) {
  return RowReader(run, stack, known).read();
}

}  // namespace strata::planning
