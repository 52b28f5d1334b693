// Runs that recover without a person: 100 faults, 100 clean runs, and 20 with the learning rate doubled; the table
// of docs/recovery.md. `make test` runs every tenth. With STRATA_ALL_TRIALS the program runs all of them;
// STRATA_TRIALS names a folder for the results of single runs, from which a program that was stopped goes on, and
// STRATA_WRITE_TRIALS="date, commit" writes the table (tools/recovery-trials.sh).
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

#ifdef STRATA_ALL_TRIALS
constexpr bool kAll = true;
#else
constexpr bool kAll = false;
#endif
constexpr int64_t kStepsOfRun = 300;
constexpr double kCounts = 1.05;    // a fault counts if it costs this much without rules
constexpr double kRecovers = 1.01;  // and recovers if it costs at most this much with them
constexpr const char* kBegin = "<!-- The table: written by the tests. -->\n";
constexpr const char* kEnd = "<!-- The end of the table. -->\n";

struct Kind {
  std::string name;
  bool has_experts = false;
  int ranks = 1;
  Sets parallel = {};
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kAllKinds{
      {"dense, 1 rank"},
      {"dense, 2 ranks", false, 2, {"parallel.shard=2"}},
      {"dense, 4 ranks", false, 4, {"parallel.shard=2", "parallel.tensor=2"}},
      {"experts, 1 rank", true},
      {"experts, 2 ranks", true, 2, {"parallel.shard=2", "parallel.expert=2"}},
      {"experts, 4 ranks", true, 4, {"parallel.replicate=2", "parallel.shard=2"}}};
  return kAllKinds;
}

constexpr const char* kDenseModel = R"([model]
family = "llama3"
vocab_size = 300
hidden_size = 32
intermediate_size = 96
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
max_position_embeddings = 128
)";
constexpr const char* kKeys = R"([training]
sequence_length = 32
global_batch_size = 8
micro_batch_size = 2
steps = 300
[optimizer]
lr = 1e-2
[schedule]
warmup_steps = 20
[precision]
compute = "fp32"
[device]
threads = 1
[checkpoint]
interval = "100 steps"
[eval]
interval = "1000 steps"
[memory]
budget = "2GB"
)";

// How a run ended.
struct Result {
  bool is_finished = false;
  double loss = 0;  // of held-out text
  int64_t interventions = 0, rollbacks = 0, lost_steps = 0;
};

// Documents in which each token has twelve equally likely successors: a loss of at least ln 12, of which 1 % is
// more than the order of the samples makes.
std::vector<uint16_t> trial_tokens(int64_t count, uint64_t seed) {
  std::vector<uint16_t> ids;
  for (uint64_t at = 0; static_cast<int64_t>(ids.size()) < count; ++at) {
    uint32_t id = 1 + philox({seed, 1}, at)[0] % (kTinyVocab - 1);
    for (uint32_t i = 0; i < 60; ++i) {
      ids.push_back(static_cast<uint16_t>(id));
      id = 1 + (id * 7 + philox({seed, 2 + i}, at)[0] % 12) % (kTinyVocab - 1);
    }
    ids.push_back(0);
  }
  ids.resize(static_cast<size_t>(count));
  return ids;
}

// Runs with results in files, so that each is made once.
class Trials {
 public:
  Trials() {
    set_log_level(LogLevel::kError);
    const char* const folder = std::getenv("STRATA_TRIALS");
    results_ = folder != nullptr ? Path(folder) : scratch_ / "results";
    std::filesystem::create_directories(results_);
    put_tokens(scratch_ / "train.bin", trial_tokens(kStepsOfRun * 8 * 64 + 2000, 7));
    put_tokens(scratch_ / "valid.bin", trial_tokens(20000, 11));
  }

  Result run(const std::string& name, const Kind& kind, const Sets& sets) {
    if (const auto known = find(name)) return *known;
    const Result result = train(kind, sets);
    const std::string text =
        dump_json(nlohmann::json{{"finished", result.is_finished},
                                 {"loss", std::isfinite(result.loss) ? nlohmann::json(result.loss) : nullptr},
                                 {"interventions", result.interventions},
                                 {"rollbacks", result.rollbacks},
                                 {"lost_steps", result.lost_steps}});
    write_file_atomically(posix_file_system(), results_ / (name + ".json"), text + "\n");
    return result;
  }
  std::optional<Result> find(const std::string& name) const {
    if (!std::filesystem::exists(results_ / (name + ".json"))) return std::nullopt;
    const auto json = parse_json<nlohmann::json>(read_file(results_ / (name + ".json")));
    return Result{json.at("finished"), json.at("loss").is_null() ? NAN : json.at("loss").get<double>(),
                  json.at("interventions"), json.at("rollbacks"), json.at("lost_steps")};
  }

 private:
  Result train(const Kind& kind, const Sets& sets) {
    const Path run = scratch_ / fmt::format("run-{}", ++runs_);
    const std::string toml = fmt::format(
        "[run]\nfolder = \"{0}\"\n{1}[data]\ntrain = [\"{2}/train.bin\"]\nvalid = [\"{2}/valid.bin\"]\n{3}",
        run.string(), kind.has_experts ? small_experts(4, 48) : kDenseModel, scratch_.path().string(), kKeys);
    FaultyFileSystem quick;  // without real syncs
    Result out;
    try {
      const auto config = config::parse_run_config(toml, "RUN.toml", kind.parallel + sets);
      const TrainResult result =
          train_on_threads({.config = config, .files = &quick}, kind.ranks, [] { return false; });
      out.is_finished = result.end == RunEnd::kFinished;
    } catch (const DivergedError&) {
    }
    const std::vector<double> losses = values_of_finite(run, "eval/valid/loss");
    out.loss = out.is_finished && !losses.empty() ? losses.back() : NAN;
    const std::string text = read_file(run / "metrics.jsonl");
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto json = parse_json<nlohmann::json>(line);
      if (json.value("event", "") != "intervention") continue;
      ++out.interventions;
      if (!json.contains("to_step")) continue;
      ++out.rollbacks;
      out.lost_steps += json.at("at_step").get<int64_t>() - json.at("to_step").get<int64_t>();
    }
    std::filesystem::remove_all(run);
    return out;
  }
  static std::vector<double> values_of_finite(const Path& run, const std::string& key) {
    std::vector<double> out;
    std::istringstream lines(read_file(run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = parse_json<nlohmann::json>(line);
      if (json.contains("step") && json.contains(key))
        out.push_back(json.at(key).is_number() ? json.at(key).get<double>() : NAN);
    }
    return out;
  }

  ScratchFolder scratch_;
  Path results_;
  int runs_ = 0;
};

struct Trial {
  std::string name;  // of its files
  size_t kind = 0;
  std::string what;  // nan, inf, spike, garbage
  Sets sets = {};
};

// 25 faults of every sort, over all kinds, phases, ranks and steps.
std::vector<Trial> faults() {
  std::vector<Trial> all;
  for (const char* sort : {"nan", "inf", "spike", "garbage"}) {
    for (int64_t i = 0; i < 25; ++i) {
      const size_t kind = all.size() % kinds().size();
      std::string fault;
      if (sort == std::string("spike")) {
        // Noise of 3, 10 or 30 times the root mean square of every matrix.
        const char* const factors[] = {"3", "10", "30"};
        fault = fmt::format("spike@step={},factor={}", 120 + i * 61 % 170, factors[i % 3]);
      } else if (sort == std::string("garbage")) {
        // Random tokens until the end or nearly so: earlier ones are forgotten.
        const int64_t step = 180 + i * 37 % 100;
        fault = fmt::format("garbage@step={},for_steps={}", step, kStepsOfRun - step - i % 3);
      } else {
        const char* const phases[] = {"fwd", "bwd", "update"};
        fault = fmt::format("{}@step={},phase={},rank={}", sort, 4 + i * 53 % 285, phases[(i / 6 + i) % 3],
                            i % kinds()[kind].ranks);
      }
      all.push_back(
          {fmt::format("fault-{:03}", all.size()), kind, sort, {"debug.inject=[\"" + fault + "\"]"}});
    }
  }
  return all;
}

// Other seeds, sizes and rates.
std::vector<Trial> clean_runs() {
  std::vector<Trial> all;
  for (int64_t i = 0; i < 100; ++i) {
    const auto choice = [&](int64_t stride, const std::vector<std::string>& of) {
      return of[static_cast<size_t>(i / stride) % of.size()];
    };
    const size_t kind = static_cast<size_t>(i) % kinds().size();
    all.push_back({fmt::format("clean-{:03}", i),
                   kind,
                   "",
                   {fmt::format("run.seed={}", 100 + i),
                    "optimizer.lr=" + choice(2, {"0.001", "0.002", "0.004", "0.008"}),
                    "training.global_batch_size=" + choice(3, {"8", "16", "8"}),
                    "training.sequence_length=" + choice(5, {"32", "16", "64"}),
                    "schedule.warmup_steps=" + choice(7, {"20", "5", "60"}),
                    "schedule.name=" + choice(4, {"\"cosine\"", "\"wsd\"", "\"constant\""}),
                    (kinds()[kind].has_experts ? "model.override.hidden_size=" : "model.hidden_size=") +
                        choice(6, {"32", "48", "64"})}});
  }
  return all;
}

std::vector<Trial> doubled() {
  std::vector<Trial> all;
  for (int64_t i = 0; i < 20; ++i) {
    const size_t kind = static_cast<size_t>(i) % kinds().size();
    const char* const rates[] = {"0.008", "0.016", "0.032", "0.064"};
    all.push_back({fmt::format("doubled-{:03}", i),
                   kind,
                   "",
                   {fmt::format("run.seed={}", 300 + i), fmt::format("optimizer.lr={}", rates[i / 6])}});
  }
  return all;
}

const Sets kNone{"recovery.rules=\"none\""};

struct FaultResults {
  Result clean, none, usual;
  bool counts() const {
    return !none.is_finished || !std::isfinite(none.loss) || none.loss >= kCounts * clean.loss;
  }
  bool recovers() const { return usual.is_finished && usual.loss <= kRecovers * clean.loss; }
};
FaultResults results_of(Trials& trials, const Trial& fault) {
  const Kind& kind = kinds()[fault.kind];
  return {trials.run(fmt::format("kind-{}", fault.kind), kind, {}),
          trials.run(fault.name + "-none", kind, fault.sets + kNone),
          trials.run(fault.name, kind, fault.sets)};
}

// The trials of a kind, or every tenth of all.
class RecoveryTrials : public testing::TestWithParam<size_t> {
 protected:
  static std::vector<Trial> mine(const std::vector<Trial>& all) {
    std::vector<Trial> out;
    for (size_t i = 0; i < all.size(); ++i)
      if (kAll ? all[i].kind == GetParam() : i % 10 == 7) out.push_back(all[i]);
    return out;
  }
};

TEST_P(RecoveryTrials, AFaultNeedsNoPerson) {
  Trials trials;
  for (const Trial& fault : mine(faults())) {
    const FaultResults found = results_of(trials, fault);
    const std::string what = fmt::format(
        "{}, {}: clean {}, without rules {}, with rules {} ({} interventions)", kinds()[fault.kind].name,
        fault.sets[0], found.clean.loss, found.none.loss, found.usual.loss, found.usual.interventions);
    EXPECT_TRUE(found.counts()) << what;
    EXPECT_TRUE(found.recovers()) << what;
    EXPECT_GT(found.usual.interventions, 0) << what;
  }
}

TEST_P(RecoveryTrials, ACleanRunIsLeftToItself) {
  Trials trials;
  for (const Trial& clean : mine(clean_runs())) {
    const Result found = trials.run(clean.name, kinds()[clean.kind], clean.sets);
    EXPECT_TRUE(found.is_finished) << fmt::format("{}", fmt::join(clean.sets, " "));
    EXPECT_EQ(found.interventions, 0)
        << kinds()[clean.kind].name << fmt::format(" {}", fmt::join(clean.sets, " "));
  }
}

// Rules must not harm a run that learns too fast.
bool is_not_worse(const Result& usual, const Result& none) {
  return !none.is_finished || (usual.is_finished && (usual.loss <= none.loss || !std::isfinite(none.loss)));
}
TEST_P(RecoveryTrials, ADoubledRateIsNotWorseThanWithoutRules) {
  if (!kAll) GTEST_SKIP() << "in the long tests";
  Trials trials;
  for (const Trial& fast : mine(doubled())) {
    const Result usual = trials.run(fast.name, kinds()[fast.kind], fast.sets),
                 none = trials.run(fast.name + "-none", kinds()[fast.kind], fast.sets + kNone);
    EXPECT_TRUE(is_not_worse(usual, none))
        << fmt::format("{} {}: {} with {} interventions, {} without rules", kinds()[fast.kind].name,
                       fmt::join(fast.sets, " "), usual.loss, usual.interventions, none.loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecoveryTrials, testing::Range<size_t>(0, kAll ? kinds().size() : 1));

TEST(RecoveryTable, ThereAreAHundredFaults) {
  EXPECT_EQ(faults().size(), 100u);
  EXPECT_EQ(clean_runs().size(), 100u);
  EXPECT_EQ(doubled().size(), 20u);
}

// The results of STRATA_TRIALS as a table; every run must be there.
TEST(RecoveryTable, IsWritten) {
  const char* const when = std::getenv("STRATA_WRITE_TRIALS");
  if (!kAll || when == nullptr) GTEST_SKIP() << "tools/recovery-trials.sh writes it";
  Trials trials;
  std::string table = fmt::format(
      "\n{}\n\n| fault | kind | ends with exit 5 | loss without rules | loss with rules | interventions | "
      "rollbacks | within 1 % |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
      when);
  const std::vector<Trial> all = faults();
  int recovered = 0, counted = 0;
  for (const char* sort : {"nan", "inf", "spike", "garbage"}) {
    for (size_t kind = 0; kind < kinds().size(); ++kind) {
      int count = 0, failed = 0, within = 0;
      double without = 0, with = 0, worst = 0, interventions = 0, rollbacks = 0;
      for (const Trial& fault : all) {
        if (fault.what != sort || fault.kind != kind) continue;
        const auto clean = trials.find(fmt::format("kind-{}", kind)),
                   none = trials.find(fault.name + "-none"), usual = trials.find(fault.name);
        ASSERT_TRUE(clean && none && usual) << fault.name << " has not been run";
        const FaultResults found{*clean, *none, *usual};
        ++count;
        if (!none->is_finished) ++failed;
        if (none->is_finished) without = std::max(without, none->loss / clean->loss);
        with += usual->loss / clean->loss;
        worst = std::max(worst, usual->loss / clean->loss);
        interventions += static_cast<double>(usual->interventions);
        rollbacks += static_cast<double>(usual->rollbacks);
        within += found.recovers() ? 1 : 0;
        counted += found.counts() ? 1 : 0;
      }
      recovered += within;
      table += fmt::format(
          "| {} | {} | {} of {} | {} | × {:.3f}, at most {:.3f} | {:.1f} | {:.1f} | {} of {} |\n", sort,
          kinds()[kind].name, failed, count, without > 0 ? fmt::format("× at most {:.2f}", without) : "–",
          with / count, worst, interventions / count, rollbacks / count, within, count);
    }
  }
  int left = 0, not_worse = 0, intervened = 0;
  for (const Trial& clean : clean_runs()) {
    const auto found = trials.find(clean.name);
    ASSERT_TRUE(found) << clean.name << " has not been run";
    left += found->is_finished && found->interventions == 0 ? 1 : 0;
  }
  for (const Trial& fast : doubled()) {
    const auto usual = trials.find(fast.name), none = trials.find(fast.name + "-none");
    ASSERT_TRUE(usual && none) << fast.name << " has not been run";
    not_worse += is_not_worse(*usual, *none) ? 1 : 0;
    intervened += usual->interventions > 0 ? 1 : 0;
  }
  table += fmt::format(
      "\n{} of 100 faults recovered, {} of 100 count. {} of 100 clean runs had no intervention. {} of 20 runs with the "
      "rate doubled were not worse than without rules; rules acted in {}.\n",
      recovered, counted, left, not_worse, intervened);
  const Path path = STRATA_RECOVERY_PAGE;
  const std::string text = read_file(path);
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_TRUE(begin != text.npos && end != text.npos) << path;
  write_file_atomically(posix_file_system(), path,
                        text.substr(0, begin) + kBegin + table + "\n" + text.substr(end));
}

}  // namespace
}  // namespace strata::training
