// The keys of RUN.toml. All other code refers to this list.
#include "base/error.h"
#include "config/fields.h"
#include "config/ramp_field.h"
#include "models/model.h"

namespace strata::config {
namespace {

TableSpec run_table() {
  return table(
      "run", ResumeClass::kFree, &RunConfig::run, "The run itself.",
      {
          key("name", &RunTable::name, "Name of the run; auto: the file's name."),
          paths(key("folder", &RunTable::folder, "Output folder of the run; auto: runs/NAME.")),
          key("started_in", &RunTable::started_in,
              "The base of relative paths, which the program writes into a run's run.toml; unset: "
              "the current directory."),
          key("chosen", &RunTable::chosen,
              "Keys left open, with the values they replaced, which the program writes into a run's run.toml: a "
              "resumed run keeps these choices, or makes them again on another machine."),
          on_resume(key("seed", &RunTable::seed, "Determines weights and data order.", between(0, kMostSeed)),
                    ResumeClass::kRefused),
          key("max_time", &RunTable::max_time,
              "Time limit (\"2h\"): save and exit 75; auto: the scheduler's limit, if any."),
      });
}

TableSpec model_table() {
  return table(
      "model", ResumeClass::kRefused, &RunConfig::model,
      "The model to train: a preset, a directory or a family.",
      {
          key("preset", &ModelTable::preset, "A known model; `strata presets` lists them."),
          paths(key("from", &ModelTable::from, "A Hugging Face directory: its config.json and weights.")),
          key("init", &ModelTable::init, "With `from`: use its weights or random ones."),
          key("init_scheme", &ModelTable::init_scheme,
              "How random weights start: normal: all the same; scaled_residual: smaller by √(2 · layers) "
              "into the residual stream (GPT-2, Megatron-LM); small_wang (GPT-NeoX); truncated_normal: "
              "normal, cut at three standard deviations (OLMo 2); mitchell (OLMo); auto: the family's."),
          key("init_std", &ModelTable::init_std,
              "Standard deviation of random weights; unset: initializer_range of the config.json.",
              above_to(0, 1000)),
          key("mup_base_hidden_size", &ModelTable::mup_base_hidden_size,
              "µP: the width at which the settings were tuned. Weights start and learn so that the same "
              "settings serve this model's width.",
              between(1, models::kMostWidth)),
          key("mup_base_head_dim", &ModelTable::mup_base_head_dim,
              "µP: the head size there; unset: this model's.", between(1, models::kMostHeadDim)),
          key("family", &ModelTable::family, "An architecture, with the sizes below."),
          key("vocab_size", &ModelTable::vocab_size, "Entries of the vocabulary.",
              between(1, models::kMostIds)),
          key("hidden_size", &ModelTable::hidden_size, "Width of the residual stream.",
              between(1, models::kMostWidth)),
          key("intermediate_size", &ModelTable::intermediate_size, "Width of the feed-forward part.",
              between(1, models::kMostFfnWidth)),
          key("num_hidden_layers", &ModelTable::num_hidden_layers,
              "Layers; for an encoder-decoder, of each half.", between(1, models::kMostLayers)),
          key("num_attention_heads", &ModelTable::num_attention_heads, "Query heads.",
              between(1, models::kMostHeads)),
          key("num_key_value_heads", &ModelTable::num_key_value_heads, "Key and value heads.",
              between(1, models::kMostHeads)),
          key("head_dim", &ModelTable::head_dim, "Size of a head; unset: hidden_size / num_attention_heads.",
              between(1, models::kMostHeadDim)),
          key("max_position_embeddings", &ModelTable::max_position_embeddings, "Longest sequence.",
              between(1, models::kMostIds)),
          key("tie_word_embeddings", &ModelTable::tie_word_embeddings, "One matrix for embedding and head."),
          key("rope_theta", &ModelTable::rope_theta, "Base of the rotary embedding.",
              above_to(0, models::kMostTheta)),
          on_resume(key("mtp_loss_weight", &ModelTable::mtp_loss_weight,
                        "Weight of the loss of layers that predict further tokens (num_nextn_predict_layers "
                        "in config.json); 0: omit them; auto: 0.3.",
                        between(0, 1000)),
                    ResumeClass::kAccept),
          key("allow_leaking_routing", &ModelTable::allow_leaking_routing,
              "Allow a model whose routing depends on later tokens or on other sequences."),
          key("indexer", &ModelTable::indexer,
              "Of models with an indexer (index_topk in config.json): warmup, attention reads all keys and all but the "
              "indexer is frozen; sparse, attention reads the keys that the indexer chooses."),
          key("override", &ModelTable::overrides, "Any config.json key of the family."),
      });
}

TableSpec tokenizer_table() {
  return table(
      "tokenizer", ResumeClass::kRefused, &RunConfig::tokenizer, "The conversion of text to token ids.",
      {
          paths(
              key("path", &TokenizerTable::path,
                  "tokenizer.json, tiktoken ranks, tekken.json or a SentencePiece model; unset: the model's "
                  "own, or one trained on data.train.")),
          key("add_bos", &TokenizerTable::add_bos, "A begin-of-text token before each document."),
          key("add_eos", &TokenizerTable::add_eos, "An end-of-text token between documents."),
          key("eos", &TokenizerTable::eos,
              "The token that ends a text, or its id; auto: as the model's files declare."),
          key("bos", &TokenizerTable::bos,
              "The token that begins a text, or its id; auto: as the model's files declare."),
          key("special_in_text", &TokenizerTable::special_in_text,
              "Special tokens spelled out in a text: token, the token itself; text, plain letters; refuse."),
      });
}

TableSpec tokenizer_train_table() {
  using T = TokenizerTrainTable;
  TableSpec spec{
      .name = "tokenizer.train",
      .help = "A byte-level BPE trained on data.train and cached.",
      .resume = ResumeClass::kRefused,
      .keys =
          {
              key("vocab_size", &T::vocab_size,
                  "Vocabulary size, also for a model without one; auto: the model's.", between(257, 1 << 24)),
              key("min_frequency", &T::min_frequency, "Pairs seen less often are not merged.",
                  between(1, kMostNumber)),
              key("pattern", &T::pattern, "Name of the pattern that splits text into words."),
              key("special", &T::special,
                  "Special tokens, including <|endoftext|>. Those that data.objective needs are added; unset: "
                  "with the names of BERT or T5."),
          },
      .list = false,
      .later = false,
      .count = [](const RunConfig& config) { return size_t{config.tokenizer.train_given ? 1u : 0u}; },
      .at = [](RunConfig& config, size_t) -> void* { return &config.tokenizer.train; }};
  return spec;
}

// Reading turns builds into sources, so the key itself remains only if it was misread.
KeySpec build_key() {
  KeySpec spec = key("build", &DataTable::build,
                     "Folders of finished data builds: their sources, weights and tokenizer, in place of "
                     "data.train; a [[data.source]] of the same name changes a row.");
  spec.shape.optional = true;
  spec.write = [write = spec.write](const void* table) {
    return static_cast<const DataTable*>(table)->build.empty() ? std::nullopt : write(table);
  };
  return spec;
}

TableSpec data_table() {
  return table(
      "data", ResumeClass::kAccept, &RunConfig::data, "Training and validation data.",
      {
          paths(key("train", &DataTable::train,
                    "Files, folders or globs: text (a .txt file is one document), jsonl, parquet or token "
                    "files.")),
          build_key(),
          key("text_field", &DataTable::text_field, "The field of a record that holds its text."),
          paths(key("valid", &DataTable::valid, "Held-out files.")),
          key("valid_fraction", &DataTable::valid_fraction,
              "Without `valid`: the share of whole documents held out, below 100 of them the last tokens; "
              "auto: 0.01 for text, 0 for token files.",
              from_to_below(0, 1)),
          key("shuffle", &DataTable::shuffle, "false: windows in file order."),
          key("pack", &DataTable::pack,
              "documents: attention and loss never cross a document; stream: plain windows; best_fit."),
          on_resume(
              key("objective", &DataTable::objective,
                  "The training objective: each token from those before it, masked ones from all others, "
                  "or spans cut out of a text; auto: by the kind of model."),
              ResumeClass::kRefused),
          key("mask_rate", &DataTable::mask_rate, "masked, span_corruption: the share of the tokens hidden.",
              between_exclusive(0, 1)),
          key("mean_span", &DataTable::mean_span, "span_corruption: mean tokens per span.",
              between(1, 10000)),
          key("temperature", &DataTable::temperature,
              "Multiplies each source's weight by tokens^(1/temperature): 1 is in proportion to size, 3.3 the "
              "exponent 0.3 of XLM-R and mT5; unset: weights unchanged.",
              between(0.1, 1000)),
          key("fim_rate", &DataTable::fim_rate,
              "Share of documents (their parts within a window) turned into fill-in-the-middle.",
              between(0, 1)),
          key("fim_spm_rate", &DataTable::fim_spm_rate,
              "Share of these written suffix first (SPM); the others are written prefix first (PSM).",
              between(0, 1)),
          key("epochs", &DataTable::epochs, "Passes over the data, then stop.",
              word("repeat", between(1, 1e9))),
          key("skip", &DataTable::skip, "Global samples never to be trained on: [[first, last], …]."),
      });
}

TableSpec data_source_table() {
  return list(
      "data.source", ResumeClass::kAccept, &RunConfig::data, &DataTable::source,
      "Sources of a mixture, in place of data.train.",
      {
          key("name", &DataSource::name, "Name, for phases and reports."),
          paths(key("path", &DataSource::path, "Files, folders or globs.")),
          key("weight", &DataSource::weight, "Share of the training tokens.", between(0, kMostNumber)),
          key("max_epochs", &DataSource::max_epochs, "Maximum passes over this source.",
              word("repeat", between(1, 1e9))),
          key("max_tokens", &DataSource::max_tokens, "Maximum tokens from this source in the run.",
              count_between(1, kMostNumber)),
      });
}

TableSpec data_phase_table() {
  return list(
      "data.phase", ResumeClass::kAccept, &RunConfig::data, &DataTable::phase,
      "Changes of the weights at a step.",
      {
          key("from_step", &DataPhase::from_step, "First step of the phase.", between(1, kMostNumber)),
          key("weights", &DataPhase::weights, "Weight of each source by name.", between(0, kMostNumber)),
      });
}

// Unset if the length is given in tokens: run.toml has only one of the two.
KeySpec steps_key() {
  KeySpec spec =
      key("steps", &TrainingTable::steps, "Optimizer steps of the run.", count_between(1, kMostNumber));
  spec.write = [write = spec.write](const void* table) {
    return static_cast<const TrainingTable*>(table)->tokens ? std::nullopt : write(table);
  };
  return spec;
}

TableSpec training_table() {
  return table(
      "training", ResumeClass::kAccept, &RunConfig::training, "Sizes of a step and length of the run.",
      {
          key("sequence_length", &TrainingTable::sequence_length, "Tokens per window.",
              between(1, models::kMostIds)),
          key("micro_batch_size", &TrainingTable::micro_batch_size,
              "Sequences per micro-batch of a model replica; auto: about 2,048 tokens, fewer if memory.budget "
              "requires it.",
              between(1, kMostSequences)),
          key("global_batch_size", &TrainingTable::global_batch_size,
              "Sequences per optimizer step, over all replicas; the rest is accumulation.",
              between(1, kMostSequences)),
          steps_key(),
          key("tokens", &TrainingTable::tokens, "Tokens of the run, in place of steps.",
              count_between(1, kMostNumber)),
          key("clip_grad_norm", &TrainingTable::clip_grad_norm,
              "Largest global gradient norm; 0: no clipping.", between(0, kMostReal)),
          key("clip_rows", &TrainingTable::clip_rows,
              "Largest gradient norm of a row of a block's matrices, as a share of the norm of the row's "
              "weights, after clip_grad_norm (AGC, Brock et al. 2021, with 0.01 to 0.16); 0: no clipping.",
              between(0, kMostReal)),
          key("batch_ramp", &TrainingTable::batch_ramp,
              "A batch that grows to global_batch_size: [[tokens, sequences], …], each from that many trained "
              "tokens on; noise_scale: doubled when the gradient's noise allows it.",
              word("noise_scale")),
          key("length_warmup", &TrainingTable::length_warmup,
              "A length that grows to sequence_length: [[tokens, length], …]; until then a window is cut into "
              "equal sequences."),
      });
}

// Beyond, the gradient of a single token overflows in fp16.
constexpr double kMostFixedLossScale = 32768;

TableSpec precision_table() {
  return table(
      "precision", ResumeClass::kAccept, &RunConfig::precision, "Number formats.",
      {
          key("compute", &PrecisionTable::compute,
              "Type of activations and matmul operands; auto: bf16 if the processor has it.",
              choice({"auto", "bf16", "fp32", "fp16", "fp8", "fp4"})),
          key("residual", &PrecisionTable::residual, "Type of the residual stream; auto: as compute.",
              choice({"auto", "bf16", "fp32", "fp16"})),
          key("recipe", &PrecisionTable::recipe,
              "Formats and scales of matmuls in fp8 or fp4; auto: block for fp8, nvfp4 for fp4.",
              choice({"auto", "block", "tensor", "delayed", "row", "row_hp_wgrad", "mxfp8", "nvfp4"})),
          key("keep", &PrecisionTable::keep,
              "Matmuls that stay in bf16: \"head\", \"first N\" and \"last N\" blocks, tensor names with * and ?."),
          key("gather", &PrecisionTable::gather,
              "Type in which ZeRO gathers weights; auto: the one in which matmuls read them.",
              choice({"auto", "fp32", "bf16", "fp8"})),
          key("weights", &PrecisionTable::weights,
              "Type of matrices and tables between steps: fp32, or bf16 without masters. Norms, biases and routers "
              "stay fp32.",
              choice({"fp32", "bf16"})),
          key("rounding", &PrecisionTable::rounding,
              "How updated weights become bf16. kahan: another bf16 has what rounding cuts off."),
          key("loss_scale", &PrecisionTable::loss_scale,
              "Factor on the loss for the gradients of fp16, a power of two; dynamic: adapted.",
              word("dynamic", between(double{optim::kLeastLossScale}, kMostFixedLossScale))),
          key("dispatch", &PrecisionTable::dispatch,
              "Type in which rows go to experts on other ranks; auto: fp8 if the recipe is fp8 and its weight "
              "gradients are, otherwise the residual stream's.",
              choice({"auto", "fp8", "bf16"})),
          key("hadamard", &PrecisionTable::hadamard,
              "false: nvfp4 without the Hadamard transform of weight gradients, for comparison."),
          key("gradient_rounding", &PrecisionTable::gradient_rounding,
              "How nvfp4 rounds gradients; auto: stochastic.", choice({"auto", "stochastic", "nearest"})),
          key("accumulation", &PrecisionTable::accumulation,
              "Sums of matmuls of fp8 outside experts. hopper: cut to 14 bits, as Hopper's tensor cores do; "
              "hopper_promoted: likewise, added to fp32 every 128. Both are models of that device, and slow."),
      });
}

TableSpec memory_table() {
  return table(
      "memory", ResumeClass::kFree, &RunConfig::memory, "Memory use.",
      {
          key("budget", &MemoryTable::budget,
              "Memory of the step: \"8GB\"; auto: nine tenths of the machine's free memory, or of the remainder "
              "of the process's control groups if that is less, divided by its ranks."),
          key("recompute", &MemoryTable::recompute,
              "Activations recomputed in backward; auto: to fit the budget."),
          later(key("offload", &MemoryTable::offload, "Data stored outside the device.")),
      });
}

TableSpec device_table() {
  return table(
      "device", ResumeClass::kFree, &RunConfig::device, "What computes.",
      {
          key("kind", &DeviceTable::kind,
              "The device; auto: a GPU that has passed strata doctor --self-test, else the processor.",
              choice({"auto", "cpu", "cuda"})),
          key("threads", &DeviceTable::threads,
              "Compute threads; auto: one for each core that the process may use, by its affinity, the CPU "
              "quota of its control groups (rounded up) and OMP_NUM_THREADS.",
              between(1, 4096)),
          key("pin", &DeviceTable::pin,
              "Bind each compute thread to a separate core; only if the run has all cores of the "
              "machine and no other run has bound its threads."),
      });
}

TableSpec checkpoint_table() {
  using T = CheckpointTable;
  return table(
      "checkpoint", ResumeClass::kFree, &RunConfig::checkpoint, "Saving the run.",
      {
          key("interval", &T::interval,
              "\"200 steps\", \"10min\", \"500M tokens\"; auto: from the cost of a save and the failures in "
              "ledger.jsonl, by Daly's formula; without failures at most 1 % of the time; at least every 30 "
              "min.",
              word("auto")),
          key("keep_last", &T::keep_last, "Newest checkpoints to keep.", between(1, 1e6)),
          key("keep_every", &T::keep_every, "Keep permanently the first at or after each: \"1000 steps\"."),
          key("keep_best", &T::keep_best, "Best checkpoints to keep.", between(0, 1e6)),
          key("best_metric", &T::best_metric,
              "Best is the lowest value of this metric, or the highest for an accuracy."),
      });
}

TableSpec eval_table() {
  using T = EvalTable;
  return table(
      "eval", ResumeClass::kFree, &RunConfig::eval, "Evaluation on held-out data.",
      {
          key("interval", &T::interval, "How often: \"100 steps\", \"10min\", \"never\"."),
          key("max_tokens", &T::max_tokens, "Tokens of data.valid; auto: a small share of the run's time.",
              count_between(2, kMostNumber)),
          key("sample_prompts", &T::sample_prompts,
              "Texts to continue at each evaluation; an encoder-decoder reads them."),
          key("sample_tokens", &T::sample_tokens, "Tokens per sample; 0: no samples.",
              between(0, models::kMostIds)),
      });
}

TableSpec eval_set_table() {
  return list(
      "eval.set", ResumeClass::kFree, &RunConfig::eval, &EvalTable::set, "Further held-out sets, and tasks.",
      {
          key("name", &EvalSet::name, "Names the metric eval/NAME/loss; for a task eval/NAME/acc and so on."),
          paths(key("path", &EvalSet::path, "Files, folders or globs.")),
          key("max_tokens", &EvalSet::max_tokens, "Most tokens.", count_between(2, kMostNumber)),
          key("task", &EvalSet::task,
              "Questions instead of text, as lm-evaluation-harness asks them: \"hellaswag\", "
              "\"arc_easy\", \"arc_challenge\", \"piqa\", \"lambada_openai\"; path is their jsonl."),
          key("limit", &EvalSet::limit, "Only the first questions of a task; 0: all.",
              between(0, kMostNumber)),
      });
}

TableSpec log_table() {
  return table(
      "log", ResumeClass::kFree, &RunConfig::log, "Output.",
      {
          key("interval_steps", &LogTable::interval_steps,
              "Steps per terminal line; metrics.jsonl has every step.", between(1, kMostNumber)),
          key("tensorboard", &LogTable::tensorboard, "TensorBoard event files next to metrics.jsonl."),
          later(key("prometheus", &LogTable::prometheus, "FILE or :PORT.")),
          key("alert_command", &LogTable::alert_command,
              "Program and arguments to run when something is wrong, without a shell; it reads the event as "
              "JSON on standard input. At most one a minute for each rule."),
          key("layers", &LogTable::layers,
              "How often layers.jsonl gets the sizes of gradients, weights, updates and activations of every "
              "layer: \"10 steps\" or \"never\"."),
          later(key("histograms", &LogTable::histograms, "The same quantities as histograms.")),
      });
}

TableSpec profile_table() {
  return table("profile", ResumeClass::kFree, &RunConfig::profile, "Time measurements.",
               {key("steps", &ProfileTable::steps,
                    "Steps of which to write a Perfetto / Chrome trace: [10, [20, 25]].")});
}

TableSpec debug_table() {
  return table(
      "debug", ResumeClass::kFree, &RunConfig::debug, "Debugging.",
      {key("reference_kernels", &DebugTable::reference_kernels,
           "Plain kernels in fp64, many times slower, for finding numerical errors."),
       key("inject", &DebugTable::inject,
           "Faults to inject: \"nan@rank=1,step=40,phase=bwd\", \"garbage@step=9\", …; each once in a run.")});
}

}  // namespace

const std::vector<TableSpec>& run_tables() {
  static const std::vector<TableSpec> tables = [] {
    std::vector<TableSpec> all = {
        run_table(),         model_table(),      tokenizer_table(), tokenizer_train_table(), data_table(),
        data_source_table(), data_phase_table(), training_table(),  optimizer_table()};
    for (TableSpec& spec : optimizer_sub_tables()) all.push_back(std::move(spec));
    for (TableSpec& spec : std::vector<TableSpec>{
             optimizer_group_table(), schedule_table(), precision_table(), memory_table(), device_table(),
             parallel_table(), moe_table(), checkpoint_table(), eval_table(), eval_set_table(), log_table(),
             recovery_table(), recovery_rule_table(), profile_table(), debug_table()})
      all.push_back(std::move(spec));
    return all;
  }();
  return tables;
}

const TableSpec* find_table(std::string_view name) {
  for (const TableSpec& table : run_tables()) {
    if (table.name == name) return &table;
  }
  return nullptr;
}

std::string table_path(const TableSpec& table, size_t index) {
  return table.list ? table.name + "." + std::to_string(index) : table.name;
}

}  // namespace strata::config
