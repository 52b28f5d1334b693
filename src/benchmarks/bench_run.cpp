#include "benchmarks/bench_run.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/kernel_files.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/signals.h"
#include "benchmarks/bench_model.h"
#include "checkpoint/weights.h"
#include "config/objective.h"
#include "data/tokens/token_writer.h"
#include "evaluation/evaluate.h"
#include "program/initialize.h"

extern char** environ;

namespace strata::benchmarks {

using program::Segment;

namespace {

constexpr int64_t kMostTokens = int64_t{64} << 20;

bool sets_any(const std::vector<std::string>& sets, std::initializer_list<std::string_view> keys) {
  return std::any_of(sets.begin(), sets.end(), [&](const std::string& set) {
    return std::any_of(keys.begin(), keys.end(), [&](std::string_view key) { return set.starts_with(key); });
  });
}

Path tokens_path(const Path& folder) {
  return folder / "tokens.bin";
}

Path tokenizer_path(const Path& folder) {
  return folder / "tokenizer.json";
}

bool makes_tokens(const std::vector<std::string>& sets) {
  return !sets_any(sets, {"data.train", "data.source", "data.build"});
}

// Whether the synthetic tokens need a tokenizer too, to name the tokens that replace masked text.
bool makes_tokenizer(const std::vector<std::string>& sets, const models::ModelConfig& model) {
  return makes_tokens(sets) && model.architecture != models::Architecture::kDecoder &&
         !sets_any(sets, {"tokenizer.path"});
}

// The objective's special tokens, then words up to the size of the model's vocabulary. 0 ends a text.
void write_tokenizer(const Path& path, const config::RunConfig& config, const models::ModelConfig& model) {
  std::vector<std::string> names{"<|endoftext|>"};
  const config::SpecialTokens special = config::special_tokens(config, model);
  for (const std::string& name : special.tokens) {
    if (name != names.front()) names.push_back(name);
  }
  nlohmann::ordered_json added = nlohmann::ordered_json::array(), words;
  for (size_t i = 0; i < names.size(); ++i) {
    added.push_back({{"id", i},
                     {"content", names[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (int64_t i = 0; i < model.vocab_size; ++i)
    words[i < std::ssize(names) ? names[static_cast<size_t>(i)] : fmt::format("word{}", i)] = i;
  const nlohmann::ordered_json json{{"version", "1.0"},
                                    {"truncation", nullptr},
                                    {"padding", nullptr},
                                    {"added_tokens", added},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                                    {"post_processor", nullptr},
                                    {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                                    {"model",
                                     {{"type", "WordPiece"},
                                      {"unk_token", names.back()},
                                      {"continuing_subword_prefix", "##"},
                                      {"max_input_chars_per_word", 100},
                                      {"vocab", words}}}};
  write_file_atomically(posix_file_system(), path, dump_json(json));
}

// Documents of 1 to 1,000 tokens, with about equally frequent ids; 0 ends each.
void write_tokens(const Path& path, int64_t count, int64_t vocab) {
  data::TokenWriter writer(posix_file_system(), path, data::token_type_for(vocab));
  std::vector<int32_t> document;
  for (uint64_t number = 0; writer.tokens() < count; ++number) {
    document.clear();
    const auto bits = philox({1, 1}, number);
    for (uint32_t i = 0; i < bits[0] % 1000; ++i)
      document.push_back(static_cast<int32_t>(
          1 + (bits[1] + uint64_t{i} * 7919) % static_cast<uint64_t>(std::max<int64_t>(1, vocab - 1))));
    document.push_back(0);
    writer.append(document);
    writer.end_document();
  }
  writer.finish({.vocab_size = vocab, .end_of_text = 0}, "");
}

// Enough tokens that the held-out 1 % suffices for an evaluation.
int64_t tokens_wanted(const config::RunConfig& config) {
  const int64_t step_tokens = config.training.global_batch_size * config.training.sequence_length;
  const int64_t between =
      config.eval.interval.kind == config::Interval::Kind::kSteps ? config.eval.interval.count : 100;
  const int64_t held_out = config.eval.max_tokens.value_or(step_tokens * between / 60);
  return std::clamp<int64_t>(120 * held_out, 200 * config.training.sequence_length, kMostTokens);
}

std::string toml_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

config::RunConfig bench_config(const std::vector<std::string>& sets, const Path& folder) {
  std::vector<std::string> all;
  if (!sets_any(sets, {"model.preset", "model.from", "model.family"}))
    all.push_back("model.preset=\"llama3-29m\"");
  if (makes_tokens(sets)) {
    all.push_back("data.train=[" + toml_text(tokens_path(folder).string()) + "]");
    if (!sets_any(sets, {"data.valid"})) all.push_back("data.valid_fraction=0.01");
  }
  all.insert(all.end(), sets.begin(), sets.end());
  all.push_back("run.folder=" + toml_text((folder / "run").string()));
  const config::IssueHook hooks[] = {config::check_model};
  config::RunConfig config = config::parse_run_config("", "strata bench", all);
  config::require_valid(config, hooks);
  if (!makes_tokenizer(sets, config::resolve_model(config))) return config;
  all.push_back("tokenizer.path=" + toml_text(tokenizer_path(folder).string()));
  return config::parse_run_config("", "strata bench", all);
}

namespace {

constexpr const char* kFolderPrefix = "strata-bench-";
constexpr const char* kLockName = ".lock";

// Killed benchmarks leave their folders. Their locks ended with the processes; a folder whose lock is held
// belongs to a running benchmark.
void remove_left_folders(const Path& parent) {
  std::error_code error;
  std::vector<Path> left;
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    if (entry.path().filename().string().starts_with(kFolderPrefix) &&
        std::filesystem::exists(entry.path() / kLockName, error))
      left.push_back(entry.path());
  }
  for (const Path& folder : left) {
    try {
      const FileLock lock(folder / kLockName);
      std::filesystem::remove_all(folder, error);
    } catch (const Error&) {  // in use, or another user's
    }
  }
}

}  // namespace

BenchFolder::BenchFolder(const std::vector<std::string>& sets) {
  Path parent = std::filesystem::temp_directory_path();
  const config::RunConfig config = config::parse_run_config("", "strata bench", sets);
  if (config.was_set("run.folder")) {
    parent = config.run.folder;
    posix_file_system().create_directories(parent);
  }
  remove_left_folders(parent);
  std::string name = (parent / (std::string(kFolderPrefix) + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr)
    throw WorldError("[{}] cannot create a folder here: {}", parent.string(), std::strerror(errno));
  path_ = name;
  lock_.emplace(path_ / kLockName);
}

BenchFolder::~BenchFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

BenchRun::BenchRun(const std::vector<std::string>& sets) : folder_(sets) {
  const config::RunConfig wanted = bench_config(sets, folder_.path());
  const models::ModelConfig sizes = config::resolve_model(wanted);
  if (makes_tokenizer(sets, sizes)) write_tokenizer(tokenizer_path(folder_.path()), wanted, sizes);
  if (makes_tokens(sets)) write_tokens(tokens_path(folder_.path()), tokens_wanted(wanted), sizes.vocab_size);
  flush_denormals();
  const auto plan = config::make_plan(wanted, {.files = posix_file_system()});
  config = plan->config;
  model = plan->model;
  data = plan->data;
  samples_.emplace(data.sources, config::sample_options(config, model, plan->tokens()));
  executor_ = std::make_unique<program::Executor>(plan->set(), config::make_device(config));
  program::initialize_weights(*executor_, static_cast<uint64_t>(config.run.seed));
  executor_->run(config::kTrainProgram, {Segment::kEncode});
}

std::string BenchRun::describe() const {
  return fmt::format("{}, {} x {} tokens per step in micro-batches of {}, {}, {} threads",
                     config.model.preset.empty() ? std::string(model.family->name) : config.model.preset,
                     config.training.global_batch_size, config.training.sequence_length,
                     *config.training.micro_batch_size, name_of(config::activation_dtype(config)),
                     *config.device.threads);
}

void BenchRun::copy_batch(const data::HostBatch& from, int64_t micro_batch) {
  executor_->upload_rows(config::kTrainProgram, from.rows(samples_->shape()),
                         micro_batch * *config.training.micro_batch_size, micro_batch);
}

void BenchRun::compute_micro_batch(int32_t micro_batch) {
  for (const program::Action& action : executor_->program(config::kTrainProgram).script) {
    if (program::is_of_micro_batch(action.segment) && action.micro_batch == micro_batch)
      executor_->run(config::kTrainProgram, action);
  }
}

double BenchRun::step_seconds(double budget) {
  const program::Script& schedule = executor_->program(config::kTrainProgram).script;
  const auto kind_of = [](const program::Action& action) {
    return static_cast<size_t>(action.segment) * program::kVariants + (action.accumulates ? 1 : 0);
  };
  std::array<std::vector<double>, static_cast<size_t>(program::kSegments) * program::kVariants> seconds;
  const double begin = monotonic_seconds();
  // The first pass touches all pages for the first time and is excluded.
  for (int64_t pass = 0; pass < 3 || (monotonic_seconds() - begin < budget && pass < 50); ++pass) {
    write_hyper(*executor_);
    std::array<bool, seconds.size()> is_timed{};
    for (const program::Action& action : schedule) {
      const size_t kind = kind_of(action);
      if (std::exchange(is_timed[kind], true)) continue;
      const double action_begin = monotonic_seconds();
      executor_->run(config::kTrainProgram, action);
      if (pass > 0) seconds[kind].push_back(monotonic_seconds() - action_begin);
    }
  }
  double sum = 0;
  for (const program::Action& action : schedule) sum += median(seconds[kind_of(action)]);
  return sum;
}

namespace {

// A new process inherits the peak resident size of this one, so reset that to the current size. If the system
// does not allow it, reported peaks are too high rather than too low.
void reset_peak_resident() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
  std::ofstream("/proc/self/clear_refs") << "5";
}

// Settings of Open MPI's mpirun, which other MPIs ignore: allow more ranks than processors, without binding,
// and do not read memory of other processes (containers forbid it).
std::vector<std::string> environment_of_mpirun() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  for (const char* setting :
       {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1",
        "OMPI_MCA_hwloc_base_binding_policy=none", "OMPI_MCA_btl_vader_single_copy_mechanism=none"})
    all.emplace_back(setting);
  return all;
}

// Waits for a child process to end, and kills it after `seconds` if they are not 0. If this process is asked to stop
// meanwhile, it stops the child too.
int end_of(pid_t id, rusage& usage, double seconds) {
  const double end = monotonic_seconds() + seconds;
  int status = 0;
  // -1 if the system has no pidfd: poll() then waits for its timeout.
  const auto handle = static_cast<int>(::syscall(SYS_pidfd_open, id, 0));
  constexpr int kPollMilliseconds = 50;
  pollfd ended{.fd = handle, .events = POLLIN, .revents = 0};
  while (::wait4(id, &status, WNOHANG, &usage) == 0) {
    if (stop_requested()) {
      save_before_stopping();  // so that the benchmark's folder is removed
      ::kill(id, SIGTERM);
      while (::wait4(id, &status, 0, &usage) < 0 && errno == EINTR) {
      }
      throw Interrupted();
    }
    if (seconds > 0 && monotonic_seconds() > end) ::kill(id, SIGKILL);
    ::poll(&ended, 1, kPollMilliseconds);
  }
  ::close(handle);
  return status;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

bool has_mpirun() {
  return find_program("mpirun").has_value();
}

SelfRun run_self(std::vector<std::string> words, const Path& log, const Launch& launch) {
  const std::string verb = words[0];
  const std::string self = launch.program.empty() ? program_path().string() : launch.program.string();
  // A rebuild may have replaced the file of the running program.
  std::string program =
      launch.program.empty() && ::access("/proc/self/exe", X_OK) == 0 ? "/proc/self/exe" : self;
  std::vector<std::string> variables;
  if (launch.by_mpirun) {
    words.insert(words.begin(), {"mpirun", "-n", std::to_string(launch.ranks), self});
    program = words[0];
    variables = environment_of_mpirun();
  } else {
    if (launch.ranks > 1) words.insert(words.end(), {"--ranks", std::to_string(launch.ranks)});
    words.insert(words.begin(), "strata");
  }
  const std::vector<char*> arguments = pointers_to(words), settings = pointers_to(variables);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  reset_peak_resident();
  const double begin = monotonic_seconds();
  pid_t id = 0;
  const int failed = ::posix_spawnp(&id, program.c_str(), &actions, nullptr, arguments.data(),
                                    launch.by_mpirun ? settings.data() : environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw WorldError("[bench] cannot start {}: {}", program, std::strerror(failed));
  rusage usage{};
  const int status = end_of(id, usage, launch.seconds);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string output = read_file(log);
    if (output.size() > 500) output.erase(0, output.size() - 500);
    const bool late = launch.seconds > 0 && monotonic_seconds() > begin + launch.seconds;
    throw WorldError("[bench] strata {} {}:\n{}", verb,
                     late ? fmt::format("was stopped after {:.0f} s", launch.seconds) : "failed", output);
  }
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {monotonic_seconds() - begin, seconds(usage.ru_utime) + seconds(usage.ru_stime),
          int64_t{usage.ru_maxrss} * 1024};
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

namespace {

// Trains the configuration of a RUN.toml, whose data is in `folder`.
ChildRun train_in(const BenchFolder& folder, const std::string& run_toml, int64_t steps,
                  const Launch& launch) {
  write_file_atomically(posix_file_system(), folder.path() / "run.toml", run_toml);
  const Path run = folder.path() / "run";
  std::vector<std::string> words{"train", (folder.path() / "run.toml").string()};
  for (const std::string& set :
       {"run.folder=" + toml_text(run.string()), fmt::format("training.steps={}", steps),
        std::string("eval.interval=\"never\""), std::string("checkpoint.interval=\"never\"")}) {
    words.push_back("--set");
    words.push_back(set);
  }
  const SelfRun process = run_self(words, folder.path() / "log", launch);

  const observe::MetricsTable metrics = observe::read_metrics(run / "metrics.jsonl");
  ChildRun out;
  out.peak_resident_bytes = process.peak_resident_bytes;
  for (const auto& event : metrics.events()) {
    for (const auto& field : event.fields) {
      if (event.event == "start" && field.name == "process_seconds")
        out.instruction_seconds = std::get<double>(field.value);
    }
  }
  const auto waits = metrics.column("data_wait_ms"), times = metrics.column("step_ms");
  const auto ends = metrics.column("time");
  STRATA_CHECK(times.size() == static_cast<size_t>(steps) && waits.size() == times.size(),
               "a run of {} steps recorded {}", steps, times.size());
  out.instruction_seconds += waits[0] / 1e3;
  out.first_step_seconds = times[0] / 1e3;
  out.whole_step_seconds = (ends.back() - ends.front()) / static_cast<double>(steps - 1);
  out.steady_step_seconds = median(std::vector<double>(times.begin() + 1, times.end())) / 1e3;
  return out;
}

// A window of span corruption needs more source tokens than its row has places.
int64_t tokens_of_steps(const config::RunConfig& config, const models::ModelConfig& model, int64_t steps) {
  return (steps + 1) * config.training.global_batch_size * config::row_shape(config, model).window;
}

}  // namespace

ChildRun run_child(const std::vector<std::string>& sets, int64_t steps, const Launch& launch) {
  const BenchFolder folder(sets);
  const config::RunConfig config = bench_config(sets, folder.path());
  const models::ModelConfig model = config::resolve_model(config);
  if (makes_tokenizer(sets, model)) write_tokenizer(tokenizer_path(folder.path()), config, model);
  if (makes_tokens(sets))
    write_tokens(tokens_path(folder.path()), tokens_of_steps(config, model, steps), model.vocab_size);
  return train_in(folder, config::commented_toml(config, "strata bench"), steps, launch);
}

ChildRun run_child(const config::RunConfig& asked, int64_t steps, const Launch& launch) {
  const BenchFolder folder({});
  config::RunConfig config = asked;
  const config::DataTable& given = asked.data;
  config.data = {};
  config.data.train = {tokens_path(folder.path()).string()};
  config.data.pack = given.pack;
  config.data.objective = given.objective;
  config.data.mask_rate = given.mask_rate;
  config.data.mean_span = given.mean_span;
  config.tokenizer = {};
  config.eval = {};
  config.eval.sample_tokens = 0;
  config.training.tokens = std::nullopt;
  const models::ModelConfig model = config::resolve_model(config);
  if (makes_tokenizer({}, model)) {
    write_tokenizer(tokenizer_path(folder.path()), config, model);
    config.tokenizer.path = tokenizer_path(folder.path()).string();
  }
  write_tokens(tokens_path(folder.path()), tokens_of_steps(config, model, steps), model.vocab_size);
  return train_in(folder, config::short_toml(config, "strata bench"), steps, launch);
}

}  // namespace strata::benchmarks
