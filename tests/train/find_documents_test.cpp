// strata data find against brute force: the batches that a run was trained on, filled again and compared with
// the texts that the answer names.
#include "train/find_documents.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "base/error.h"
#include "config/plan.h"
#include "fixtures/byte_tokenizer.h"
#include "fixtures/tiny_run.h"
#include "library/branch.h"
#include "train/past_run.h"
#include "train/run_store.h"

namespace strata::training {
namespace {

using nlohmann::json;

constexpr int32_t kEnd = 256;  // the byte tokenizer's end of text

std::vector<FoundDocument> find(const FindOptions& options, FindResult* result = nullptr) {
  std::vector<FoundDocument> all;
  const FindResult made = find_documents(options, [&](const FoundDocument& one) { all.push_back(one); });
  if (result != nullptr) *result = made;
  return all;
}
std::vector<FoundDocument> of_step(const Path& run, int64_t step) {
  return find({.run = run, .step = step});
}

// One range of an answer, without the step.
using Range = std::tuple<int64_t, std::string, int64_t, int64_t, int64_t>;
Range range_of(const SampleDocument& found) {
  return {found.sample, found.name.file, found.name.number, found.first_token, found.tokens};
}

// The samples of an answer in their order, each once.
std::vector<int64_t> samples_of(const std::vector<FoundDocument>& found) {
  std::vector<int64_t> samples;
  for (const FoundDocument& one : found)
    if (samples.empty() || samples.back() != one.what.sample) samples.push_back(one.what.sample);
  return samples;
}
std::vector<int64_t> consecutive(int64_t first, int64_t count) {
  std::vector<int64_t> samples(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) samples[static_cast<size_t>(i)] = first + i;
  return samples;
}

// A run on texts of which the test knows every byte: jsonl with and without ids, and plain text.
class TextRun {
 public:
  TextRun() {
    put_file(path("tokenizer.json"), data::byte_tokenizer_json());
    std::string web, math;
    for (int i = 0; i < 130; ++i) {
      if (i == 7) web += "\n{\"id\": \"none\", \"text\": \"\"}\n";  // lines without a document
      add(web, "web.jsonl", i, json{{"id", "w" + std::to_string(i)}});
    }
    for (int i = 0; i < 40; ++i)
      add(math, "math.jsonl", i, i % 2 == 0 ? json{{"id", 1000 + i}} : json::object());
    put_file(path("web.jsonl"), web);
    put_file(path("math.jsonl"), math);
    put_file(path("empty.txt"), "");
    texts_[{"plain.txt", 0}] = text(3, 400);
    put_file(path("plain.txt"), text(3, 400));
  }

  Path path(const std::string& name) const { return tiny_.path(name); }
  Path folder(const std::string& name = "run") const { return tiny_.folder(name); }

  config::RunConfig config(const Sets& sets = {}, const std::string& name = "run") const {
    const auto quoted = [&](const char* file) { return "\"" + path(file).string() + "\""; };
    std::string toml = tiny_.toml(name);
    const size_t train = toml.find("train = [");
    toml.erase(train, toml.find('\n', train) - train);
    toml += "[tokenizer]\npath = " + quoted("tokenizer.json") +
            "\n[[data.source]]\nname = \"web\"\npath = [" + quoted("web.jsonl") + ", " + quoted("empty.txt") +
            "]\nweight = 0.7\n[[data.source]]\nname = " + "\"math\"\npath = [" + quoted("math.jsonl") + ", " +
            quoted("plain.txt") + "]\nweight = 0.3\n";
    return config::parse_run_config(toml, "RUN.toml",
                                    Sets{"data.valid_fraction=0.0", "checkpoint.keep_last=100"} + sets);
  }
  void train(const Sets& sets = {}, int64_t steps = -1, const std::string& name = "run") const {
    tiny_.train_with({.config = config(sets, name), .accept_changes = true}, steps);
  }

  // The ids of the tokens that an answer names.
  std::vector<int32_t> ids(const SampleDocument& found) const {
    const std::string file = Path(found.name.file).filename();
    const auto known = texts_.find({file, found.name.number});
    if (known == texts_.end()) return {};
    std::vector<int32_t> all;
    for (const char byte : known->second) all.push_back(static_cast<uint8_t>(byte));
    all.push_back(kEnd);
    if (found.first_token + found.tokens > std::ssize(all)) return {};
    return {all.begin() + found.first_token, all.begin() + found.first_token + found.tokens};
  }
  const auto& texts() const { return texts_; }

 private:
  static std::string text(uint64_t seed, size_t length) {
    std::string out;
    for (uint64_t at = 0; out.size() < length; ++at)
      out += static_cast<char>('a' + philox({seed, 77}, at)[0] % 26);
    return out;
  }
  void add(std::string& lines, const char* file, int number, json record) {
    const uint64_t seed = (file[0] == 'w' ? 100U : 5000U) + static_cast<uint64_t>(number);
    record["text"] = text(seed, 5 + philox({seed, 78}, 0)[0] % 50);
    texts_[{file, number}] = record["text"];
    lines += dump_json(record) + "\n";
  }

  TinyRun tiny_;
  std::map<std::pair<std::string, int64_t>, std::string> texts_;
};

// Samples by their global numbers, in an order that begins at `origin`.
class Batches {
 public:
  Batches(const Path& run, const config::RunConfig& config, data::DataOrigin origin = {})
      : plan_(plan_of_run(posix_file_system(), run, config, {})),
        samples_(plan_->data.sources, options_of(*plan_, std::move(origin))) {
    row_.resize(samples_.shape(), 1);
  }
  // The tokens of a row, without padding.
  std::vector<int32_t> tokens(int64_t sample) {
    samples_.fill(sample, 1, row_.view(), scratch_);
    std::vector<int32_t> ids = row_[Column::kTokens];
    // Padding attends only to itself, as the first token of a document does, and predicts nothing.
    while (!ids.empty() && ids.back() == 0) ids.pop_back();
    return ids;
  }

 private:
  static data::SampleOptions options_of(const config::RunPlan& plan, data::DataOrigin origin) {
    data::SampleOptions options =
        config::sample_options(plan.config, plan.model, plan.tokens(), std::move(origin));
    options.skip.clear();  // the numbers are then global
    return options;
  }
  std::shared_ptr<const config::RunPlan> plan_;
  data::SampleSource samples_;
  data::HostBatch row_;
  data::BatchScratch scratch_;
};

void expect_found_in(Batches& batches, const TextRun& run, const std::vector<FoundDocument>& found) {
  std::map<int64_t, std::vector<int32_t>> rows;
  for (const FoundDocument& one : found) {
    const std::vector<int32_t> ids = run.ids(one.what);
    EXPECT_EQ(std::ssize(ids), one.what.tokens) << one.what.name.file << " " << one.what.name.number;
    auto& row = rows[one.what.sample];
    row.insert(row.end(), ids.begin(), ids.end());
  }
  for (const auto& row : rows)
    EXPECT_EQ(row.second, batches.tokens(row.first))
        << "step " << found.front().step << " sample " << row.first;
}

class FindsTheTexts : public testing::TestWithParam<std::string> {};

// Every step of a run, made or planned, and every document the other way round.
TEST_P(FindsTheTexts, OfEveryStepAndTheStepsOfEveryText) {
  const TextRun run;
  const config::RunConfig config = run.config({GetParam(), "training.steps=9"});
  run.train({GetParam(), "training.steps=9"}, 5);
  Batches batches(run.folder(), config::read_stored_config(run.folder()).value());
  const std::vector<double> firsts = values_of(run.folder(), "first_sample");
  ASSERT_EQ(firsts.size(), 5u);
  std::map<std::pair<std::string, int64_t>, std::set<std::pair<int64_t, Range>>> by_document;
  for (int64_t step = 1; step <= 9; ++step) {
    const auto found = of_step(run.folder(), step);
    EXPECT_EQ(samples_of(found), consecutive(8 * (step - 1), 8));
    if (step <= 5) {
      EXPECT_EQ(samples_of(found).front(), firsts[static_cast<size_t>(step - 1)]);
    }
    expect_found_in(batches, run, found);
    for (const FoundDocument& one : found) {
      EXPECT_EQ(one.step, step);
      EXPECT_EQ(one.is_trained, step <= 5);
      const std::string file = Path(one.what.name.file).filename();
      EXPECT_EQ(one.what.source, file == "web.jsonl" ? "web" : "math");
      const int64_t number = one.what.name.number;
      std::optional<data::RecordId> id;
      if (file == "web.jsonl") id = {"w" + std::to_string(number), false};
      if (file == "math.jsonl" && number % 2 == 0) id = {std::to_string(1000 + number), true};
      EXPECT_EQ(one.what.name.id, id);
      by_document[{one.what.name.file, number}].insert({step, range_of(one.what)});
    }
  }
  for (const auto& [name, number, id] :
       {std::tuple("web.jsonl", 3, std::string("w3")), std::tuple("math.jsonl", 4, std::string("1004")),
        std::tuple("math.jsonl", 5, std::string()), std::tuple("plain.txt", 0, std::string())}) {
    const std::string file = run.path(name).string();
    const auto found =
        find({.run = run.folder(), .document = id.empty() ? file + ":" + std::to_string(number) : id});
    std::set<std::pair<int64_t, Range>> ranges;
    for (const FoundDocument& one : found) ranges.insert({one.step, range_of(one.what)});
    EXPECT_EQ(ranges.size(), found.size());
    EXPECT_EQ(ranges, (by_document[{file, number}])) << name << " " << number;
  }
}

INSTANTIATE_TEST_SUITE_P(Packs, FindsTheTexts,
                         testing::Values("data.pack=documents", "data.pack=best_fit", "data.shuffle=false"));

// A document that is held out is in no step.
TEST(FindDocuments, KnowsWhatIsHeldOut) {
  const TextRun run;
  run.train({"data.valid_fraction=0.2", "training.steps=60"}, 1);
  int held_out = 0, trained = 0;
  for (int i = 0; i < 40; ++i) {
    FindResult result;
    const bool any = !find({.run = run.folder(), .document = "w" + std::to_string(i)}, &result).empty();
    EXPECT_NE(any, result.is_held_out) << i;
    (any ? trained : held_out) += 1;
  }
  EXPECT_GT(held_out, 0);
  EXPECT_GT(trained, held_out);
}

// One epoch contains every token once, except for the remainder that fills no window.
TEST(FindDocuments, FindsEveryTokenOfAnEpochOnce) {
  const TextRun run;
  run.train({"data.epochs=1", "training.steps=10000"}, 1);
  std::map<std::pair<std::string, int64_t>, std::set<int64_t>> seen;
  int64_t tokens = 0;
  for (int64_t step = 1;; ++step) {
    FindResult result;
    for (const FoundDocument& one : find({.run = run.folder(), .step = step}, &result)) {
      auto& places = seen[{Path(one.what.name.file).filename(), one.what.name.number}];
      for (int64_t at = 0; at < one.what.tokens; ++at)
        EXPECT_TRUE(places.insert(one.what.first_token + at).second);
      tokens += one.what.tokens;
    }
    EXPECT_EQ(result.last_step, step);
    try {
      of_step(run.folder(), step + 1);
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("ends with step " + std::to_string(step)), std::string::npos);
      break;
    }
  }
  int64_t all = 0;
  for (const auto& text : run.texts()) all += std::ssize(text.second) + 1;
  EXPECT_LE(tokens, all);
  EXPECT_GE(tokens, all - 2 * 17);
}

// A run that changes its length, batch and skipped samples on the way: the samples of each step are those of
// the order that held then.
TEST(FindDocuments, FollowsChangesOfAResume) {
  const TextRun run;
  run.train({}, 4);
  const config::RunConfig before = config::read_stored_config(run.folder()).value();
  const Sets changed{"training.sequence_length=24", "training.global_batch_size=4", "data.skip=[[40, 43]]",
                     "data.source.0.weight=0.4", "training.steps=12"};
  run.train(changed, 4);
  const config::RunConfig after = config::read_stored_config(run.folder()).value();
  const Path newest = checkpoint::list_checkpoints(run.folder() / "checkpoints").front().path;
  const TrainingState state = training_state_from_json(read_file(newest / "state.json"), newest.string());
  EXPECT_EQ(state.origin.sample, 32);
  Batches first(run.folder(), before), second(run.folder(), after, state.origin);
  const std::vector<double> firsts = values_of(run.folder(), "first_sample");
  ASSERT_EQ(firsts.size(), 8u);
  for (int64_t step = 1; step <= 12; ++step) {
    const auto found = of_step(run.folder(), step);
    const auto samples = samples_of(found);
    ASSERT_EQ(samples.size(), step <= 4 ? 8u : 4u) << step;
    if (step <= 8) {
      EXPECT_EQ(samples.front(), firsts[static_cast<size_t>(step - 1)]) << step;
    }
    for (const int64_t sample : samples) EXPECT_FALSE(sample >= 40 && sample <= 43);
    expect_found_in(step <= 4 ? first : second, run, found);
  }
}

// A run that goes back: the samples of undone steps are in no step, unless another one has them.
TEST(FindDocuments, LeavesOutStepsThatWereUndone) {
  const TinyRun tiny;
  tiny.train(
      {"training.steps=16", "recovery.snapshot=\"5 steps\"", "debug.inject=[\"nan@step=6,phase=update\"]"});
  const std::vector<double> firsts = values_of(tiny.folder(), "first_sample");
  ASSERT_EQ(firsts.size(), 16u);
  EXPECT_EQ(firsts[5], 72) << "goes back from step 9 to 5";
  for (int64_t step = 1; step <= 16; ++step) {
    EXPECT_EQ(samples_of(of_step(tiny.folder(), step)),
              consecutive(static_cast<int64_t>(firsts[static_cast<size_t>(step - 1)]), 8))
        << step;
  }
  // Documents between the end-of-text ids of a file without a table.
  const auto found = of_step(tiny.folder(), 6);
  const std::vector<uint16_t> ids = tiny_tokens(6000);
  for (const FoundDocument& one : found) {
    EXPECT_EQ(one.what.name.file, tiny.path("train.bin").string());
    int64_t begin = 0;
    for (int64_t d = 0; d < one.what.name.number; ++d)
      begin = std::find(ids.begin() + begin, ids.end(), 0) - ids.begin() + 1;
    const auto end = std::find(ids.begin() + begin + one.what.first_token, ids.end(), 0) - ids.begin();
    EXPECT_LE(begin + one.what.first_token + one.what.tokens, end + 1);
  }
}

void expect_recorded_samples(const Path& run, int64_t sequences, int64_t from = 1) {
  const std::vector<double> firsts = values_of(run, "first_sample");
  for (int64_t step = from; step <= std::ssize(firsts); ++step) {
    const auto first = static_cast<int64_t>(firsts[static_cast<size_t>(step - 1)]);
    EXPECT_EQ(samples_of(of_step(run, step)), consecutive(first, sequences)) << step;
  }
}

// Killed after a rollback, and resumed with another batch from a checkpoint between.
TEST(FindDocuments, FollowsAResumeAfterARollback) {
  const TinyRun tiny;
  const Sets sets{"training.steps=16", "recovery.snapshot=\"5 steps\"", "checkpoint.interval=\"4 steps\"",
                  "debug.inject=[\"nan@step=6,phase=update\"]"};
  int64_t made = 0;
  RunOptions killed{.config = tiny.config(sets)};
  killed.observer.step = [&](const StepRecord&) {
    if (++made == 14) throw WorldError("[test] killed");
  };
  EXPECT_THROW(tiny.train_with(killed), WorldError);
  expect_recorded_samples(tiny.folder(), 8);
  const size_t before = values_of(tiny.folder(), "first_sample").size();
  EXPECT_EQ(before, 10u) << "4 of the 14 steps were undone";
  tiny.train_with({.config = tiny.config(sets + Sets{"training.global_batch_size=4", "data.shuffle=false"}),
                   .accept_changes = true});
  const std::vector<double> firsts = values_of(tiny.folder(), "first_sample");
  EXPECT_EQ(firsts.size(), 16u);
  for (const int64_t step : {1, 8}) EXPECT_EQ(samples_of(of_step(tiny.folder(), step)).size(), 8u);
  expect_recorded_samples(tiny.folder(), 4, 9);
}

// A run that starts from a checkpoint of another one knows its samples from there on.
TEST(FindDocuments, BeginsAtTheCheckpointOfAnotherRun) {
  const TinyRun tiny;
  tiny.train({"training.batch_ramp=[[0, 4], [192, 8]]"});
  const Path checkpoint = checkpoint::list_checkpoints(tiny.folder() / "checkpoints").back().path;
  ASSERT_EQ(checkpoint.filename(), "step-00000002");
  tiny.train_with(
      {.config = tiny.config({}, "other"), .resume = checkpoint.string(), .accept_changes = true});
  const Path other = tiny.folder("other");
  EXPECT_EQ(values_of(other, "first_sample"), (std::vector<double>{8, 16, 24, 32}));
  EXPECT_THROW(of_step(other, 2), ConfigError);
  for (int64_t step = 3; step <= 6; ++step)
    EXPECT_EQ(samples_of(of_step(other, step)), consecutive(8 * (step - 2), 8)) << step;
}

// A ramp of batch and length, and a branch: its first steps belong to another run.
TEST(FindDocuments, FollowsARampAndABranch) {
  const TinyRun tiny;
  tiny.train({"training.batch_ramp=[[0, 4], [192, 8]]", "training.length_warmup=[[0, 8], [400, 16]]"});
  const std::vector<double> firsts = values_of(tiny.folder(), "first_sample");
  for (int64_t step = 1; step <= 6; ++step) {
    const auto samples = samples_of(of_step(tiny.folder(), step));
    EXPECT_EQ(samples,
              consecutive(static_cast<int64_t>(firsts[static_cast<size_t>(step - 1)]), step <= 3 ? 4 : 8));
  }
  library::make_branch(tiny.folder().string() + "@4", tiny.folder("other"), {"training.steps=8"});
  const auto planned = of_step(tiny.folder("other"), 5);
  EXPECT_EQ(samples_of(planned), samples_of(of_step(tiny.folder(), 5)));
  EXPECT_FALSE(planned.front().is_trained);
  EXPECT_THROW(of_step(tiny.folder("other"), 4), ConfigError);
  tiny.train_with({.config = *config::read_asked_config(tiny.folder("other"))}, 2);
  EXPECT_TRUE(of_step(tiny.folder("other"), 6).front().is_trained);
}

TEST(FindDocuments, RefusesWhatItDoesNotKnow) {
  const TextRun run;
  run.train({}, 2);
  EXPECT_THROW(of_step(run.folder(), 7), ConfigError);
  EXPECT_THROW(of_step(run.path("nowhere"), 1), ConfigError);
  for (const char* document : {"w999", "web.jsonl:3", "17", ""})
    EXPECT_THROW(find({.run = run.folder(), .document = document}), ConfigError) << document;
  // Records of another run.
  const std::string metrics = read_file(run.folder() / "metrics.jsonl");
  std::string other = metrics;
  other.replace(other.find("\"first_sample\":8"), 16, "\"first_sample\":9");
  put_file(run.folder() / "metrics.jsonl", other);
  EXPECT_THROW(of_step(run.folder(), 2), DataError);
  put_file(run.folder() / "metrics.jsonl", metrics);
  // Other texts than those that the run was trained on.
  put_file(run.path("web.jsonl"), read_file(run.path("math.jsonl")));
  EXPECT_THROW(of_step(run.folder(), 1), DataError);
}

}  // namespace
}  // namespace strata::training
