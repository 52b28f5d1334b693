#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "config/run_config.h"
#include "optim/adamw/adamw.h"

namespace strata::training {
namespace {

const std::string kMinimal = "[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"a.txt\"]\n";

std::string issues_in(const std::string& text, std::vector<std::string> sets = {}) {
  std::string out;
  for (const config::Issue& issue : config::validate(config::parse_run_config(text, "run.toml", sets)))
    out += issue.to_string() + "\n";
  return out;
}

std::string value_of(const config::RunConfig& config, const std::string& key) {
  for (const config::Setting& setting : config::settings(config)) {
    if (setting.key == key) return setting.value;
  }
  return "";
}

// The interface's sample names every table; apart from user-specific values, it shows the defaults.
TEST(RunConfigTest, DefaultsMatchTheInterface) {
  const Path path = Path(STRATA_TEST_DATA) / "train/interface.toml";
  const config::RunConfig shown = config::read_run_config(path);
  EXPECT_EQ(config::validate(shown).size(), 0u);
  const std::vector<std::string> own = {"run.name",       "run.folder", "model.preset",
                                        "tokenizer.path", "data.train", "data.valid"};
  const config::RunConfig defaults = config::parse_run_config("", "interface.toml");
  size_t compared = 0;
  for (const auto& [key, origin] : shown.origins) {
    if (std::find(own.begin(), own.end(), key) != own.end()) continue;
    EXPECT_EQ(value_of(shown, key), value_of(defaults, key)) << key;
    ++compared;
  }
  EXPECT_GE(compared, 48u);
}

// Keys reserved for later versions are "not yet" with any value, and never unknown.
TEST(RunConfigTest, KeysOfLaterVersionsAreNotYet) {
  for (const char* set : {"log.histograms=\"1 steps\"", "log.prometheus=\":9000\""}) {
    const std::string issues = issues_in(kMinimal, {set});
    const std::string key = std::string(set).substr(0, std::string(set).find('='));
    EXPECT_NE(issues.find(key + ": found"), std::string::npos) << set << "\n" << issues;
    EXPECT_NE(issues.find("not yet in this version"), std::string::npos) << set << "\n" << issues;
    EXPECT_EQ(std::count(issues.begin(), issues.end(), '\n'), 1) << issues;
  }
  // A former default, which has no effect on one rank.
  EXPECT_EQ(issues_in(kMinimal, {"parallel.zero=3"}), "");
  EXPECT_EQ(issues_in(kMinimal, {"parallel.zero=auto"}), "");
  EXPECT_NE(issues_in(kMinimal, {"moe.balanse=global"}).find("did you mean \"balance\"?"), std::string::npos);
  const config::RunConfig config = config::parse_run_config(kMinimal, "run.toml");
  EXPECT_EQ(config::resolved_toml(config, "").find("histograms"), std::string::npos);
}

TEST(RunConfigTest, NumbersOfDataHaveRanges) {
  for (const auto& [set, message] : std::vector<std::pair<std::string, std::string>>{
           {"data.mean_span=1e18", "expected a number from 1 to 10000"},
           {"data.epochs=9223372036854775807", "from 1 to 1000000000, or \"repeat\""},
           {"data.skip=[[0, 9223372036854775807]]", "data.skip: found"},
           {"data.temperature=1e300", "expected a number from 0.1 to 1000"},
           {"data.phase=[{from_step=9223372036854775807, weights={a=1}}]", "from 1 to 1e+15"}})
    EXPECT_NE(issues_in(kMinimal, {set}).find(message), std::string::npos)
        << set << issues_in(kMinimal, {set});
}

TEST(RunConfigTest, AnAutoWarmUpFollowsTheHorizon) {
  const auto warmup = [](std::vector<std::string> sets) {
    sets.push_back("schedule.warmup_steps=auto");
    return config::schedule_of(config::parse_run_config(kMinimal, "run.toml", sets)).warmup_steps;
  };
  EXPECT_EQ(warmup({}), 50);
  EXPECT_EQ(warmup({"training.steps=100"}), 10);
  EXPECT_EQ(warmup({"training.steps=8"}), 4);
  EXPECT_EQ(warmup({"training.steps=1"}), 0);
  EXPECT_EQ(warmup({"training.steps=100", "schedule.steps=4000"}), 200);
  for (const char* steps : {"1", "2", "19", "100"}) {
    const auto config = config::parse_run_config(
        kMinimal, "run.toml",
        std::vector<std::string>{"schedule.warmup_steps=auto", std::string("training.steps=") + steps});
    EXPECT_TRUE(config::warnings(config).empty()) << steps;
  }
}

TEST(RunConfigTest, WarnsOfTracesBeyondTheRun) {
  const auto warned = [](const char* steps) {
    const auto config = config::parse_run_config(kMinimal + "[profile]\nsteps = " + steps + "\n", "run.toml");
    const auto warnings = config::warnings(config);
    return warnings.empty() ? std::string() : warnings[0].to_string();
  };
  EXPECT_EQ(warned("[5, [10, 1000]]"), "");
  EXPECT_NE(
      warned("[5, [990, 1010]]").find("profile.steps: found 990 to 1010, but the run has steps 1 to 1000"),
      std::string::npos);
  EXPECT_NE(warned("[0]"), "");
}

// Those in comments of the interface's sample.
TEST(RunConfigTest, DefaultsMatchTheInterfacesComments) {
  const config::RunConfig config = config::parse_run_config(kMinimal, "run.toml");
  EXPECT_EQ(config.optimizer.constants_of(config::OptimizerKind::kAdamW).as<optim::AdamW>(),
            (optim::AdamW{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}));
  EXPECT_EQ(config.optimizer.weight_decay, 0.1);
  EXPECT_EQ(config.optimizer.state_dtype, config::StateDtype::kFp32);
  EXPECT_EQ(config.checkpoint.keep_best, 1);
  EXPECT_EQ(config.checkpoint.best_metric, "eval/valid/loss");
  EXPECT_EQ(config.parallel.schedule, "1f1b");
  EXPECT_EQ(config.parallel.virtual_stages, 1);
  EXPECT_EQ(config.data.fim_rate, 0.0);
}

TEST(RunConfigTest, ListsAllMistakesTogetherWithLineAndSuggestion) {
  const std::string issues = issues_in(
      "[model]\npreset = \"llama3-5m\"\n[data]\ntrain = [\"a.txt\"]\n"
      "[training]\nsequence_lenght = 8\nglobal_batch_size = -4\nsteps = \"many\"\n"
      "[optimiser]\nlr = 1\n[schedule]\nname = \"cosin\"\n[optimizer]\nbeta2 = 1.0\n[memory]\noffload = "
      "\"optimizer\"\n");
  EXPECT_NE(
      issues.find("run.toml:6: training.sequence_lenght: unknown key; did you mean \"sequence_length\"?"),
      std::string::npos)
      << issues;
  EXPECT_NE(
      issues.find(
          "run.toml:7: training.global_batch_size: found -4, expected a whole number from 1 to 1048576"),
      std::string::npos)
      << issues;
  EXPECT_NE(issues.find("run.toml:8: training.steps: found \"many\", expected a whole number"),
            std::string::npos);
  EXPECT_NE(issues.find("run.toml:9: optimiser: unknown table; did you mean \"optimizer\"?"),
            std::string::npos);
  EXPECT_NE(issues.find("run.toml:12: schedule.name: found \"cosin\", expected one of \"cosine\""),
            std::string::npos);
  EXPECT_NE(issues.find("did you mean \"cosine\"?"), std::string::npos);
  EXPECT_NE(
      issues.find("run.toml:14: optimizer.beta2: found 1.0, expected a number of at least 0 and below 1"),
      std::string::npos)
      << issues;
  EXPECT_NE(issues.find("run.toml:16: memory.offload: found \"optimizer\""), std::string::npos) << issues;
  EXPECT_EQ(std::count(issues.begin(), issues.end(), '\n'), 7) << issues;
}

TEST(RunConfigTest, ThrownAsOneConfigError) {
  const config::RunConfig config =
      config::parse_run_config(kMinimal + "[training]\nstep = 5\nsteps = 0\n", "run.toml");
  try {
    config::require_valid(config);
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("found 2 errors"), std::string::npos) << text;
    EXPECT_NE(text.find("run.toml:6"), std::string::npos) << text;
    EXPECT_NE(text.find("run.toml:7"), std::string::npos) << text;
  }
}

struct Mistake {
  std::string text;     // after the minimal configuration
  std::string message;  // a part of the only issue
};

class MistakeTest : public testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsTheOnlyError) {
  const std::string issues = issues_in(kMinimal + GetParam().text);
  EXPECT_NE(issues.find(GetParam().message), std::string::npos) << issues;
  EXPECT_EQ(std::count(issues.begin(), issues.end(), '\n'), 1) << issues;
}

INSTANTIATE_TEST_SUITE_P(
    CrossChecks, MistakeTest,
    testing::Values(
        Mistake{"[training]\nsteps = 10\ntokens = 5000\n", "training.tokens: found both steps and tokens"},
        Mistake{"[training]\nmicro_batch_size = 7\n",
                "found 7, which does not divide global_batch_size = 64"},
        Mistake{"[training]\nmicro_batch_size = 0\n",
                "expected a whole number from 1 to 1048576, or \"auto\""},
        Mistake{"[training]\nsequence_length = 1099511627776\n",
                "expected a whole number from 1 to 2147483647"},
        Mistake{"[training]\nsequence_length = 2147483647\nglobal_batch_size = 65536\n",
                "less than 2^40 tokens"},
        Mistake{"[training]\nsteps = 9223372036854775807\n", "from 1 to 1e+15"},
        Mistake{"[training]\nsteps = 999999999999999\n", "expected at most 1e+15 tokens in a run"},
        Mistake{"[training]\nclip_grad_norm = nan\n", "found nan, expected a number from 0 to 1e+30"},
        Mistake{"[optimizer]\nlr = inf\n", "found inf, expected a number from 1e-37 to 1e+30"},
        Mistake{"[optimizer]\neps = 1e-300\n", "expected a number from 1e-37 to 1"},
        Mistake{"[schedule]\nwarmup_steps = 9223372036854775807\n", "from 0 to 1e+15, or \"auto\""},
        Mistake{"[checkpoint]\nkeep_last = 9223372036854775807\n",
                "expected a whole number from 1 to 1000000"},
        Mistake{"[eval]\nmax_tokens = 1\n", "expected a whole number from 2 to 1e+15, or \"auto\""},
        Mistake{"[run]\nmax_time = \"1000000000000d\"\n", "expected a time such as \"10min\""},
        Mistake{"[device]\nthreads = 9223372036854775807\n", "expected a whole number from 1 to 4096"},
        Mistake{"[schedule]\nmin_lr_ratio = 1.5\n", "expected a number from 0 to 1"},
        Mistake{"[schedule]\nsteps = \"trainin\"\n", "or \"training\""},
        Mistake{"[optimizer]\nlr = 0\n", "expected a number from 1e-37 to 1e+30"},
        Mistake{"[optimizer]\nname = \"lyon\"\n", "did you mean \"lion\"?"},
        Mistake{"[optimizer]\nname = \"muon\"\nstate_dtype = \"bf16\"\n",
                "optimizer.state_dtype: found \"bf16\" with the optimizer muon, whose states have one type"},
        Mistake{"[optimizer]\nname = \"adamw8bit\"\nstate_dtype = \"fp8\"\n",
                "optimizer.state_dtype: found \"fp8\" with the optimizer adamw8bit"},
        Mistake{"[optimizer]\nstate_dtype = \"fp16\"\n", "expected one of \"fp32\", \"bf16\", \"fp8\""},
        Mistake{"[precision]\nweights = \"bf16\"\n[optimizer]\nname = \"adafactor\"\n",
                "precision.weights: found \"bf16\" with the optimizer adafactor, which needs fp32"},
        Mistake{
            "[precision]\nweights = \"bf16\"\n[[optimizer.group]]\nmatch = \"*q_proj*\"\nname = \"muon\"\n",
            "precision.weights: found \"bf16\" with the optimizer muon"},
        Mistake{"[precision]\nweights = \"bf16\"\n[device]\nkind = \"cuda\"\n",
                "precision.weights: found another type than fp32 with device.kind = \"cuda\": not yet"},
        Mistake{"[precision]\nweights = \"fp8\"\n", "precision.weights: found \"fp8\""},
        Mistake{"[precision]\naccumulation = \"fp22\"\n",
                "expected one of \"fp32\", \"hopper\", \"hopper_promoted\""},
        Mistake{
            "[precision]\ncompute = \"fp8\"\nhadamard = false\n",
            "precision.hadamard: found false with precision.recipe = \"block\", expected the recipe nvfp4"},
        Mistake{"[precision]\ngradient_rounding = \"nearest\"\n",
                "found \"nearest\" without precision.compute = \"fp8\" or \"fp4\""},
        Mistake{"[precision]\nrounding = \"up\"\n", "expected one of \"stochastic\", \"kahan\", \"nearest\""},
        Mistake{"[optimizer.lion]\nbeta2 = 1.0\n",
                "optimizer.lion.beta2: found 1.0, expected a number of at least 0 and below 1"},
        Mistake{"[optimizer.muon]\nns_steps = 0\n", "expected a whole number from 1 to 100"},
        Mistake{"[optimizer.muon]\nscale = \"rms\"\n", "original"},
        Mistake{"[optimizer.muon]\nqk_clip = -1\n", "expected a number of at least 0"},
        Mistake{"[optimizer.muon]\nqk_clip = nan\n", "expected a number of at least 0"},
        Mistake{"[optimizer.muon]\nqk_clip = inf\n", "expected a number of at least 0"},
        Mistake{"[optimizer.muon]\nqk_clip = 100\n",
                "optimizer.muon.qk_clip: found 100 with optimizer.name = \"adamw\", expected 0"},
        Mistake{"[optimizer]\nname = \"muon\"\n[optimizer.muon]\nqk_clip = 100\n[device]\nkind = \"cuda\"\n",
                "optimizer.muon.qk_clip: found 100 with device.kind = \"cuda\""},
        Mistake{"[optimizer.adafactor]\nbeta2_decay = 0.5\n", "expected a number from -1 to 0"},
        Mistake{"[optimizer.adamw8bits]\nmin_elements = 1\n", "did you mean \"adamw8bit\"?"},
        Mistake{"[[optimizer.group]]\nlr_scale = 0.1\n", "a group without match"},
        Mistake{"[optimizer.group]\nlr_scale = 0.1\n",
                "expected a list of tables; write [[optimizer.group]]"},
        Mistake{"[[optimizer.group]]\nmatch = \"*\"\nlrscale = 1.0\n", "did you mean \"lr_scale\"?"},
        Mistake{"[tokenizer]\npath = \"t.json\"\ntrain = { vocab_size = 300 }\n",
                "found both path and train"},
        Mistake{"[tokenizer]\ntrain = { vocab_size = 10 }\n", "tokenizer.train.vocab_size: found 10"},
        Mistake{"[parallel]\nexpert = -2\n", "parallel.expert: found -2"},
        Mistake{"[parallel]\nexpert_capacity = 0\n", "parallel.expert_capacity: found 0"},
        Mistake{"[parallel]\nbackend = \"nccl\"\n", "not yet"},
        Mistake{"[memory]\noffload = \"optimizer\"\n", "memory.offload: found \"optimizer\": not yet"},
        Mistake{"[log]\nprometheus = \":9000\"\n", "log.prometheus: found \":9000\": not yet"},
        Mistake{"[device]\nkind = \"rocm\"\n", "expected one of \"auto\", \"cpu\", \"cuda\""},
        Mistake{"[memory]\nbudget = \"lots\"\n", "expected a size such as \"4GB\", or \"auto\""},
        Mistake{"[checkpoint]\ninterval = \"10 parsecs\"\n", "expected \"200 steps\", \"10min\""},
        Mistake{"[eval]\ninterval = \"auto\"\n", "eval.interval: found \"auto\""},
        Mistake{"[[eval.set]]\nname = \"valid\"\npath = \"x\"\n", "found the name \"valid\" twice"},
        Mistake{"[run]\nname = \"a/b\"\n", "expected a name without \"/\""},
        Mistake{"[run]\nmax_time = \"soon\"\n", "expected a time such as \"10min\""},
        Mistake{"[profile]\nsteps = [[5, 2]]\n", "expected a list of numbers and pairs"},
        Mistake{"[profil]\nsteps = []\n", "unknown table; did you mean \"profile\"?"},
        Mistake{"[training]\nlr = 1.0\n", "unknown key; [optimizer] has a key of this name"},
        Mistake{"[debug]\nxyzzy = 1\n", "known here: reference_kernels"}));

TEST(RunConfigTest, WarnsOfAScheduleWithTooFewSteps) {
  const auto warned = [](const std::string& text) {
    const config::RunConfig config = config::parse_run_config(kMinimal + text, "run.toml");
    EXPECT_TRUE(config::validate(config).empty());
    const auto found = config::warnings(config);
    return found.empty() ? "" : found[0].to_string();
  };
  EXPECT_EQ(warned("[schedule]\nwarmup_steps = 1000\n"), "");
  EXPECT_NE(warned("[schedule]\nwarmup_steps = 2000\n").find("more than the horizon of 1000 steps"),
            std::string::npos);
  EXPECT_NE(warned("[schedule]\nname = \"wsd\"\ndecay_ratio = 0.95\n").find("leaves 900"), std::string::npos);
  EXPECT_EQ(warned("[schedule]\nname = \"wsd\"\ndecay_ratio = 0.9\n"), "");
}

TEST(RunConfigTest, OneModelAndSomeData) {
  EXPECT_NE(issues_in("[data]\ntrain = \"a.txt\"\n").find("model: found no model"), std::string::npos);
  EXPECT_NE(issues_in("[model]\npreset = \"x\"\nfrom = \"y\"\n[data]\ntrain = \"a\"\n")
                .find("found both preset and from"),
            std::string::npos);
  EXPECT_NE(
      issues_in("[model]\npreset = \"x\"\nhidden_size = 8\n[data]\ntrain = \"a\"\n").find("[model.override]"),
      std::string::npos);
  EXPECT_EQ(issues_in("[model]\nfamily = \"llama3\"\nhidden_size = 8\n[data]\ntrain = \"a\"\n"), "");
  EXPECT_NE(issues_in("[model]\npreset = \"x\"\n").find("data.train: found no training data"),
            std::string::npos);
  EXPECT_NE(
      issues_in("[model]\npreset = \"x\"\n[data]\ntrain = [\"\"]\n").find("an empty path at position 1"),
      std::string::npos);
}

// Initialization keys apply only to random weights.
TEST(RunConfigTest, InitializationIsChecked) {
  const std::string data = "[data]\ntrain = \"a\"\n";
  const auto of_preset = [&](const std::string& keys) {
    return issues_in("[model]\npreset = \"x\"\n" + keys + data);
  };
  const auto of_weights = [&](const std::string& keys) {
    return issues_in("[model]\nfrom = \"x\"\n" + keys + data);
  };
  EXPECT_EQ(of_preset("init_scheme = \"truncated_normal\"\ninit_std = 0.01\n"), "");
  EXPECT_EQ(of_preset("mup_base_hidden_size = 256\nmup_base_head_dim = 32\n"), "");
  EXPECT_EQ(of_weights("init = \"random\"\ninit_scheme = \"normal\"\n"), "");
  EXPECT_EQ(of_weights("mup_base_hidden_size = 256\n"), "");
  for (const char* keys : {"init_scheme = \"normal\"\n", "init_std = 0.01\n"})
    EXPECT_NE(of_weights(keys).find("model.init = \"random\""), std::string::npos) << keys;
  EXPECT_NE(of_preset("init_scheme = \"trunc\"\n").find("model.init_scheme: found \"trunc\""),
            std::string::npos);
  EXPECT_NE(of_preset("init_std = 0.0\n").find("model.init_std: found 0"), std::string::npos);
  EXPECT_NE(of_preset("init_scheme = \"mitchell\"\ninit_std = 0.01\n").find("only on the sizes"),
            std::string::npos);
  EXPECT_NE(of_preset("init_std = 0.01\noverride = { initializer_range = 0.02 }\n").find("found both"),
            std::string::npos);
  EXPECT_NE(of_preset("mup_base_head_dim = 32\n").find("without mup_base_hidden_size"), std::string::npos);
}

TEST(RunConfigTest, MixturesAreChecked) {
  const std::string sources =
      "[model]\npreset = \"x\"\n[[data.source]]\nname = \"web\"\npath = \"w\"\nweight = 0.7\nmax_epochs = 2\n"
      "[[data.source]]\nname = \"math\"\npath = [\"m1\", \"m2\"]\nweight = 0.3\n";
  const config::RunConfig config = config::parse_run_config(sources, "run.toml");
  ASSERT_EQ(config.data.source.size(), 2u);
  EXPECT_EQ(config.data.source[0].max_epochs, config::OrWord<int64_t>(2));
  EXPECT_TRUE(config.data.source[1].max_epochs.is_word());
  EXPECT_EQ(config.data.source[1].path.size(), 2u);
  EXPECT_EQ(issues_in(sources + "[[data.phase]]\nfrom_step = 5\nweights = { web = 0.3, math = 0.7 }\n"), "");
  EXPECT_NE(
      issues_in(sources + "[[data.phase]]\nfrom_step = 5\nweights = { wbe = 0.3 }\n").find("found \"wbe\""),
      std::string::npos);
}

TEST(RunConfigTest, UnionsAndUnits) {
  const config::RunConfig config = config::parse_run_config(
      kMinimal +
          "epochs = 3\nskip = [[10, 20], \"30-40\", 7]\n"
          "[training]\ntokens = \"2M\"\n[memory]\nbudget = \"4GB\"\n[run]\nmax_time = \"1:30:00\"\n"
          "[checkpoint]\ninterval = \"500M tokens\"\nkeep_every = 1000\n[eval]\ninterval = \"10 min\"\n",
      "run.toml");
  EXPECT_TRUE(config::validate(config).empty()) << config::validate(config)[0].to_string();
  EXPECT_EQ(config.data.epochs, config::OrWord<int64_t>(3));
  EXPECT_EQ(config.data.skip, (std::vector<config::Range>{{10, 20}, {30, 40}, {7, 7}}));
  EXPECT_EQ(config.training.tokens, 2'000'000);
  EXPECT_EQ(config::total_steps(config), 62);  // 2,000,000 / (64 · 512) = 61.04
  EXPECT_EQ(config.memory.budget, config::Auto<config::Bytes>(config::Bytes{4'000'000'000}));
  EXPECT_EQ(config.run.max_time, config::Auto<config::Duration>(config::Duration{5400}));
  EXPECT_EQ(config.checkpoint.interval.kind, config::Interval::Kind::kTokens);
  EXPECT_EQ(config.checkpoint.interval.count, 500'000'000);
  EXPECT_EQ(config.checkpoint.keep_every, config::every_steps(1000));
  EXPECT_EQ(config.eval.interval.seconds, 600);
}

// A run's sets and tasks determine its metrics.
TEST(RunConfigTest, TheBestMetricIsMeasured) {
  const std::string sets =
      "[[eval.set]]\nname = \"words\"\npath = \"w.jsonl\"\ntask = \"lambada_openai\"\n[[eval.set]]\nname = "
      "\"swag\"\npath = \"s.jsonl\"\ntask = \"hellaswag\"\n[[eval.set]]\nname = \"code\"\npath = \"c.txt\"\n";
  const auto issues = [&](const std::string& metric, const std::string& more = "") {
    return issues_in(kMinimal + sets,
                     {"checkpoint.best_metric=" + metric, more.empty() ? "run.seed=1" : more});
  };
  for (const char* metric : {"loss", "eval/valid/loss", "eval/valid/bits_per_byte", "eval/words/acc",
                             "eval/words/perplexity", "eval/swag/acc_norm", "eval/code/loss"})
    EXPECT_EQ(issues(metric), "") << metric;
  for (const char* metric : {"eval/nowhere/loss", "eval/words/loss", "eval/words/acc_norm",
                             "eval/swag/perplexity", "eval/code/acc", "valid", "grad_norm", "lr"})
    EXPECT_NE(issues(metric).find("checkpoint.best_metric"), std::string::npos) << metric;
  EXPECT_NE(issues("eval/vlaid/loss").find("did you mean \"eval/valid/loss\""), std::string::npos);
  // Without held-out data the default means no best checkpoint; a greater number is an explicit request.
  EXPECT_EQ(issues("eval/valid/loss", "data.valid_fraction=0"), "");
  EXPECT_NE(issues("eval/valid/bits_per_byte", "data.valid_fraction=0"), "");
  EXPECT_NE(issues_in(kMinimal, {"checkpoint.keep_best=2", "data.valid_fraction=0"}), "");
}

TEST(RunConfigTest, NameAndFolderFollowTheFile) {
  const config::RunConfig config = config::parse_run_config(kMinimal, "conf/poems.toml");
  EXPECT_EQ(config.run.name, "poems");
  EXPECT_EQ(config.run.folder, "runs/poems");
}

TEST(RunConfigTest, SetsOverrideAndShowTheirOrigin) {
  const std::vector<std::string> sets = {"training.steps=7", "model.preset=gpt2-124m", "data.train=b/*.txt",
                                         "model.override.hidden_size=96"};
  const config::RunConfig config = config::parse_run_config(kMinimal, "run.toml", sets);
  EXPECT_EQ(config.training.steps, 7);
  EXPECT_EQ(config.model.preset, "gpt2-124m");
  EXPECT_EQ(config.data.train, std::vector<std::string>{"b/*.txt"});
  EXPECT_EQ(to_toml(config.model.overrides), "{ hidden_size = 96 }");
  EXPECT_EQ(strata::to_string(config.origin_of("training.steps")), "--set training.steps");
  EXPECT_EQ(strata::to_string(config.origin_of("optimizer.lr")), "default");
  EXPECT_NE(issues_in(kMinimal, {"training.stepz=7"})
                .find("--set training.stepz: training.stepz: unknown key; did you mean"),
            std::string::npos);
}

TEST(RunConfigTest, HooksAddTheirErrors) {
  const config::RunConfig config = config::parse_run_config(kMinimal, "run.toml");
  const config::IssueHook hook = [](const config::RunConfig& given, std::vector<config::Issue>& issues) {
    issues.push_back({"model.preset", given.origin_of("model.preset"), "found no such preset"});
  };
  const auto issues = config::validate(config, std::span(&hook, 1));
  ASSERT_EQ(issues.size(), 1u);
  EXPECT_EQ(issues[0].to_string(), "run.toml:2: model.preset: found no such preset");
}

}  // namespace
}  // namespace strata::training
