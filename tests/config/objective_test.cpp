#include "config/objective.h"

#include <algorithm>

#include "base/error.h"
#include "config/resolve.h"
#include "data/samples/loader.h"
#include "fixtures/tiny_run.h"

namespace strata::training {
namespace {

using models::Architecture;

models::ModelConfig model_of(const config::RunConfig& config, Architecture architecture) {
  models::ModelConfig model = config::resolve_model(config);
  model.architecture = architecture;
  return model;
}

std::string errors_of(const TinyRun& tiny, Architecture architecture, const std::vector<std::string>& sets) {
  const config::RunConfig config = tiny.config(sets);
  std::vector<config::Issue> issues = config.reading_issues;
  config::check_objective(config, model_of(config, architecture), issues);
  std::string text;
  for (const config::Issue& issue : issues) text += issue.to_string() + "\n";
  return text;
}

void expect_error(const TinyRun& tiny, Architecture architecture, const std::vector<std::string>& sets,
                  const std::vector<std::string>& words) {
  const std::string text = errors_of(tiny, architecture, sets);
  for (const std::string& word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

std::string refusal(const std::function<void()>& run) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ObjectiveOfARun, MatchesTheModel) {
  const TinyRun tiny;
  const auto decoder = Architecture::kDecoder, encoder = Architecture::kEncoder,
             both = Architecture::kEncoderDecoder;
  for (const auto& [architecture, name] :
       {std::pair{decoder, "causal"}, {encoder, "masked"}, {both, "span_corruption"}}) {
    EXPECT_EQ(errors_of(tiny, architecture, {}), "");
    EXPECT_EQ(errors_of(tiny, architecture, {std::string("data.objective=") + name}), "");
    for (const char* other : {"causal", "masked", "span_corruption"}) {
      if (std::string(other) == name) continue;
      expect_error(tiny, architecture, {std::string("data.objective=") + other},
                   {"data.objective", other, name, "llama3"});
    }
    const config::RunConfig asked = tiny.config();
    const config::RunConfig config =
        config::with(asked, config::choose_objective(asked, model_of(asked, architecture)));
    const auto all = config::settings(config);
    const auto found = std::find_if(all.begin(), all.end(),
                                    [](const config::Setting& each) { return each.key == "data.objective"; });
    EXPECT_EQ(found->value, '"' + std::string(name) + '"');
  }
  expect_error(tiny, decoder, {"data.objective=bert"}, {"data.objective", "\"masked\""});
  expect_error(tiny, encoder, {"data.mask_rate=1"}, {"data.mask_rate", "below 1"});
  expect_error(tiny, encoder, {"data.mask_rate=0"}, {"data.mask_rate", "above 0"});
  expect_error(tiny, both, {"data.mean_span=0.5"}, {"data.mean_span", "from 1 to 10000"});
  expect_error(tiny, both, {"training.sequence_length=2147483647"},
               {"training.sequence_length", "at most 4096 spans"});
  expect_error(tiny, both, {"data.mask_rate=0.8"}, {"data.mean_span", "at least 4.00"});
  expect_error(tiny, decoder, {"data.mask_rate=0.3"}, {"data.mask_rate", "causal"});
  expect_error(tiny, encoder, {"data.mean_span=5.0"}, {"data.mean_span", "masked"});
  EXPECT_EQ(errors_of(tiny, encoder, {"data.mask_rate=0.3", "data.pack=best_fit"}), "");
  EXPECT_EQ(errors_of(tiny, both, {"data.mask_rate=0.3", "data.mean_span=5"}), "");
  expect_error(tiny, encoder, {"data.fim_rate=0.5"}, {"data.fim_rate", "masked"});
  expect_error(tiny, both, {"data.fim_rate=0.5"}, {"data.fim_rate", "span_corruption"});
  expect_error(tiny, both, {"training.sequence_length=2"}, {"training.sequence_length", "at least 3"});
  expect_error(tiny, both, {R"(eval.set=[{name="a", path="a.jsonl", task="piqa"}])"},
               {"eval.set.0.task", "piqa", "an encoder-decoder"});
  expect_error(tiny, encoder, {"eval.sample_prompts=[\"a\"]"}, {"eval.sample_prompts", "an encoder"});
}

TEST(ObjectiveOfARun, SpanCorruptionPacksTheStream) {
  const TinyRun tiny;
  const auto both = Architecture::kEncoderDecoder;
  for (const char* pack : {"documents", "best_fit"})
    expect_error(tiny, both, {std::string("data.pack=") + pack}, {"data.pack", pack, "\"stream\""});
  EXPECT_EQ(errors_of(tiny, both, {"data.pack=stream"}), "");
  const config::RunConfig asked = tiny.config();
  const config::RunConfig config =
      config::with(asked, config::choose_objective(asked, model_of(asked, both)));
  EXPECT_EQ(config.data.pack, data::Pack::kStream);
  // A resumed run keeps it and still rejects another.
  EXPECT_TRUE(config::compare_for_resume(config, tiny.config()).empty());
  EXPECT_EQ(config::compare_for_resume(config, tiny.config({"data.pack=documents"})).size(), 1u);
  const auto changed = config::compare_for_resume(config, tiny.config({"data.objective=masked"}));
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed[0].resume, config::ResumeClass::kRefused);
}

TEST(ObjectiveOfARun, TokenFilesNeedTheirTokenizer) {
  const TinyRun tiny;
  for (const auto architecture : {Architecture::kEncoder, Architecture::kEncoderDecoder}) {
    config::RunConfig config = tiny.config();
    const models::ModelConfig model = model_of(config, architecture);
    const std::string message =
        refusal([&] { config::resolve_data(config, model, nullptr, posix_file_system()); });
    for (const char* word : {"data.objective", "token files", "tokenizer.path"})
      EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

class OwnTokenizer : public testing::Test {
 protected:
  OwnTokenizer() {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += "some words " + std::to_string(i * 7 % 100) + " and others\n";
    for (const char* name : {"a.txt", "b.txt", "c.txt"}) put_file(tiny_.path(name), text);
  }
  config::RunConfig config(std::vector<std::string> sets = {}) const {
    sets.push_back("data.train=[\"" + tiny_.path("?.txt").string() + "\"]");
    sets.push_back("model.vocab_size=500");
    return tiny_.config(sets);
  }
  static std::string token(const data::Tokenizer& tokenizer, int32_t id) {
    return std::string(tokenizer.id_to_token(id));
  }
  TinyRun tiny_;
};

// DeepSeek-V3's vocabulary begins and ends texts with the tokens 0 and 1, ordinary tokens in other
// vocabularies.
TEST_F(OwnTokenizer, OfADecoderBeginsAndEndsItsTexts) {
  const config::RunConfig config = this->config();
  models::ModelConfig model = model_of(config, Architecture::kDecoder);
  const auto tokenizer = config::resolve_tokenizer(config, model, posix_file_system()).tokenizer;
  ASSERT_TRUE(tokenizer);
  ASSERT_EQ(tokenizer->end_of_text_id(), 0);
  model.bos_id = 3;
  model.eos_id = 1;
  config::take_ids(model, *tokenizer);
  EXPECT_EQ(model.eos_id, 0);
  EXPECT_EQ(model.bos_id, 0) << "after the end of another text";
}

TEST_F(OwnTokenizer, OfAnEncoderHasItsMask) {
  config::RunConfig config = this->config({"tokenizer.add_bos=true"});
  const models::ModelConfig model = model_of(config, Architecture::kEncoder);
  const config::RunTokenizer made = config::resolve_tokenizer(config, model, posix_file_system());
  const auto& tokenizer = made.tokenizer;
  ASSERT_TRUE(tokenizer);
  config = config::with(config, made.choices);
  EXPECT_EQ(config.tokenizer.train.special, (std::vector<std::string>{"[PAD]", "[CLS]", "[SEP]", "[MASK]"}));
  EXPECT_EQ(tokenizer->encode("", {.add_special_tokens = true}), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(tokenizer->end_of_text_id(), 2);
  const auto data = config::resolve_data(config, model, &*tokenizer, posix_file_system());
  const data::SampleSource source(data.sources, config::sample_options(config, model, &*tokenizer));
  data::HostBatch batch;
  batch.resize(source.shape(), 200);
  data::BatchScratch scratch;
  const int64_t counted = source.fill(0, 200, batch.view(), scratch);
  EXPECT_NEAR(static_cast<double>(counted), 0.15 * 200 * 16, 100);
  EXPECT_GT(std::count(batch[Column::kTokens].begin(), batch[Column::kTokens].end(), 3), counted / 2);
  for (const int32_t target : batch[Column::kTargets]) EXPECT_TRUE(target == -1 || target >= 4) << target;
}

TEST_F(OwnTokenizer, OfAnEncoderDecoderHasSentinels) {
  config::RunConfig config = this->config({"tokenizer.train.min_frequency=2"});
  const models::ModelConfig model = model_of(config, Architecture::kEncoderDecoder);
  config = config::with(config, config::choose_objective(config, model));
  const config::RunTokenizer made = config::resolve_tokenizer(config, model, posix_file_system());
  const auto& tokenizer = made.tokenizer;
  ASSERT_TRUE(tokenizer);
  config = config::with(config, made.choices);
  EXPECT_EQ(config.tokenizer.train.special.size(), 102u);
  EXPECT_EQ(token(*tokenizer, 0), "<pad>");
  EXPECT_EQ(token(*tokenizer, 1), "</s>");
  EXPECT_EQ(token(*tokenizer, 101), "<extra_id_99>");
  EXPECT_EQ(tokenizer->encode("", {.add_special_tokens = true}), std::vector<int32_t>{1});
  const auto data = config::resolve_data(config, model, &*tokenizer, posix_file_system());
  const data::SampleSource source(data.sources, config::sample_options(config, model, &*tokenizer));
  EXPECT_EQ(source.shape().encoder_length, 16);
  data::HostBatch batch;
  batch.resize(source.shape(), 8);
  data::BatchScratch scratch;
  source.fill(0, 8, batch.view(), scratch);
  EXPECT_EQ(batch[Column::kTokens][0], 0);
  EXPECT_EQ(batch[Column::kTargets][0], 2);  // <extra_id_0>
  EXPECT_EQ(batch[Column::kEncoderTokens][15], 1);
  // The special tokens were not set, so a resume keeps those that the objective added.
  EXPECT_TRUE(config::compare_for_resume(config, this->config({"tokenizer.train.min_frequency=2"})).empty());
}

TEST_F(OwnTokenizer, KeepsGivenTokens) {
  const config::RunConfig config =
      this->config({"tokenizer.train.special=[\"<|endoftext|>\", \"<extra_id_0>\"]",
                    "training.sequence_length=64", "data.mask_rate=0.5", "data.mean_span=1"});
  const auto masked = config::special_tokens(config, model_of(config, Architecture::kEncoder));
  EXPECT_EQ(masked.tokens,
            (std::vector<std::string>{"<|endoftext|>", "<extra_id_0>", "[PAD]", "[CLS]", "[SEP]", "[MASK]"}));
  EXPECT_EQ(masked.begin + masked.end, "");
  const auto spans = config::special_tokens(config, model_of(config, Architecture::kEncoderDecoder));
  EXPECT_EQ(spans.tokens.size(), 2u + 1 + 99);
  EXPECT_EQ(spans.tokens[2], "<pad>");
  EXPECT_EQ(config::special_tokens(config, model_of(config, Architecture::kDecoder)).tokens.size(), 2u);
  const config::RunConfig roberta =
      this->config({"tokenizer.train.special=[\"<s>\", \"<pad>\", \"</s>\", \"<mask>\"]"});
  const auto given = config::special_tokens(roberta, model_of(roberta, Architecture::kEncoder));
  EXPECT_EQ(given.tokens.size(), 4u);
  EXPECT_EQ(given.begin + given.end, "<s></s>");
}

TEST_F(OwnTokenizer, RejectsMissingTokens) {
  const config::RunConfig causal = config();
  const auto tokenizer =
      config::resolve_tokenizer(causal, model_of(causal, Architecture::kDecoder), posix_file_system())
          .tokenizer;
  for (const auto& one :
       {std::pair{Architecture::kEncoder, "[MASK]"}, {Architecture::kEncoderDecoder, "<extra_id_0>"}}) {
    const std::string message =
        refusal([&] { config::objective_options(causal, model_of(causal, one.first), &*tokenizer); });
    EXPECT_NE(message.find(one.second), std::string::npos) << message;
    EXPECT_NE(message.find("tokenizer.path"), std::string::npos) << message;
  }
}

TEST(ObjectiveOfARun, RejectsMaskedTrainingOfADecoder) {
  const TinyRun tiny;
  const std::string message = refusal([&] { tiny.train({"data.objective=masked"}); });
  for (const char* word : {"data.objective", "\"masked\"", "a decoder", "\"causal\""})
    EXPECT_NE(message.find(word), std::string::npos) << message;
  tiny.train({"training.steps=2"});
  EXPECT_NE(read_file(tiny.folder() / "run.toml").find("objective = \"causal\""), std::string::npos);
}

// A graph's inputs have one element for each position of a row.
TEST(BatchColumns, AreTheInputsOfGraphs) {
  for (const int64_t encoder : {0, 5}) {
    for (const auto mode : {layers::Mode::kSequences, layers::Mode::kCached, layers::Mode::kEncoderPrefill}) {
      if (mode == layers::Mode::kEncoderPrefill && encoder == 0) continue;
      graph::Graph graph;
      layers::Context context{
          .graph = graph, .mode = mode, .rows = {.length = 3, .sequences = 2, .encoder_length = encoder}};
      layers::add_batch(context);
      int inputs = 0;
      for (const ColumnInfo& column : kColumns) {
        const graph::ValueId input = graph.column(column.column);
        EXPECT_EQ(input, graph.find_value(column.name)) << column.name;
        if (input == graph::kNone) continue;
        EXPECT_EQ(graph.value(input).shape, Shape{2 * (RowPlaces{3, encoder}.of(column.column))});
        EXPECT_EQ(graph.value(input).role, graph::Role::kInput);
        ++inputs;
      }
      EXPECT_GE(inputs, 2);
    }
  }
}

}  // namespace
}  // namespace strata::training
