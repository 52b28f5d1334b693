// Contracts of [data], checked by the losses of the tokens that a run reads and by the rows of its batches.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "config/plan.h"
#include "contracts/contract.h"
#include "contracts/windows.h"
#include "data/samples/loader.h"
#include "data/samples/sample_source.h"

namespace strata::contracts {
namespace {

using Names = std::vector<std::string>;

std::string count(int64_t steps) {
  return "training.steps=" + std::to_string(steps);
}

// Files are concatenated in the order of the list.
void train(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 2}, {"b", 2}});
  EXPECT_EQ(windows.seen({"data.train=" + lab.list({"b.bin"}), count(3)}), (Names{"b0", "b1", "b0"}));
  const Seen run = lab.run(windows.sets() + Sets{"data.train=" + lab.list({"a.bin", "b.bin"}), count(3)});
  auto across = windows.ids("b", 0);
  across.insert(across.begin(), windows.ids("a", 1).back());
  across.pop_back();
  EXPECT_NEAR(run.values("loss").at(2), windows.loss(across), 1e-5);
  EXPECT_EQ(windows.seen({"data.train=" + lab.list({"[b]*.bin"}), count(1)}), Names{"b0"}) << "a glob";
  EXPECT_TRUE(has(lab.refusal({"data.train=" + lab.list({"none.bin"})}), "none.bin"));
}

void build(const std::string&) {
  Lab lab;
  lab.text();
  const auto run = [&](const std::vector<std::string>& words) {
    EXPECT_EQ(strata(lab.path("work"), words).code, 0) << words[1];
  };
  run({"tokenizer", "train", "--input", lab.path("corpus.txt").string(), "--vocab-size", "290", "--output",
       "t.json"});
  run({"data", "tokenize", lab.path("corpus.jsonl").string(), "--tokenizer", "t.json", "-o", "built"});
  const std::string built = lab.path("work/built").string();
  const Seen of_build = lab.run({"data.train=[]", "data.build=\"" + built + "\""});
  const Seen by_hand =
      lab.run({"data.train=[\"" + built + "/tokens\"]", "tokenizer.path=\"" + built + "/tokenizer.json\""});
  EXPECT_TRUE(same(of_build.weights(2), by_hand.weights(2)));
  EXPECT_EQ(read_file(of_build.folder / "final/tokenizer.json"), read_file(lab.path("work/t.json")));
}

void text_field(const std::string&) {
  Lab lab;
  std::string both, single;
  for (int i = 0; i < 60; ++i) {
    const std::string body = "the text of record " + std::to_string(i);
    both += dump_json(json{{"text", "text of the other field"}, {"body", body}}) + "\n";
    single += dump_json(json{{"text", body}}) + "\n";
  }
  lab.put("both.jsonl", both);
  lab.put("single.jsonl", single);
  const Sets one{"training.steps=1"};
  const Seen named =
      lab.run(one + Sets{"data.train=" + lab.list({"both.jsonl"}), "data.text_field=\"body\""});
  const Seen usual = lab.run(one + Sets{"data.train=" + lab.list({"single.jsonl"})});
  EXPECT_EQ(lab.ids_of(named), lab.ids_of(usual));
  EXPECT_EQ(read_file(named.folder / "final/tokenizer.json"),
            read_file(usual.folder / "final/tokenizer.json"));
}

void valid(const std::string&) {
  Lab lab;
  training::put_tokens(lab.path("held.bin"), training::tiny_tokens(200, 55));
  const Seen run =
      lab.run({"data.valid=" + lab.list({"held.bin"}), "data.pack=\"stream\"", "eval.max_tokens=1000"});
  EXPECT_NEAR(run.last("eval/valid/loss"), evaluated(lab, run, "held.bin"), 1e-5);
  EXPECT_TRUE(
      has(lab.refusal({"data.valid=" + lab.list({"held.bin"}), "data.valid_fraction=0.1"}), "both valid"));
}

// Holds out the last tokens if there are fewer than a hundred documents, else whole documents.
void valid_fraction(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 8}});
  const Sets sets{"data.train=" + lab.list({"a.bin"}), "data.valid_fraction=0.25", "data.epochs=1", count(99),
                  "eval.max_tokens=1000"};
  const Seen run = lab.run(windows.sets() + sets);
  EXPECT_EQ(run.result.step, 6) << "96 of 129 tokens";
  auto held = windows.ids("a", 6);
  const auto last = windows.ids("a", 7);
  held.insert(held.end(), last.begin() + 1, last.end());
  held.erase(held.begin());
  training::put_tokens(lab.path("held.bin"), held);
  EXPECT_NEAR(run.last("eval/valid/loss"), evaluated(lab, run, "held.bin"), 1e-3);

  // The smallest fraction still has a token to predict and one before it.
  EXPECT_GT(
      lab.run({"data.train=" + lab.list({"a.bin"}), "data.valid_fraction=0.0001"}).last("eval/valid/loss"),
      0);

  std::string records;
  for (int i = 0; i < 200; ++i) records += dump_json(json{{"text", "document " + std::to_string(i)}}) + "\n";
  lab.put("many.jsonl", records);
  const auto plan =
      config::make_plan(lab.config({"data.train=" + lab.list({"many.jsonl"}), "data.valid_fraction=0.2"}),
                        {.files = posix_file_system(), .places = {}});
  std::multiset<std::string> documents;
  size_t held_documents = 0;
  const auto add = [&](const data::TokenCorpus& corpus) {
    int64_t begin = 0;
    for (const int64_t end : corpus.document_ends()) {
      std::vector<int32_t> ids(static_cast<size_t>(end - begin));
      corpus.read(begin, end - begin, ids.data());
      documents.insert(plan->tokenizer->decode(ids, {.skip_special = true}));
      begin = end;
    }
    return corpus.document_ends().size();
  };
  held_documents = add(plan->data.held_out.at(0).corpus);
  add(plan->data.sources.at(0).corpus);
  EXPECT_NEAR(static_cast<double>(held_documents), 40, 15);
  EXPECT_EQ(documents.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(documents.count("document " + std::to_string(i)), 1u) << i;
}

// Every window appears once per epoch, in an order that depends on the seed, or in file order.
void shuffle(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 8}});
  const Sets sets{"data.train=" + lab.list({"a.bin"}), count(16)};
  const Names straight{"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7"};
  Names twice = straight;
  twice.insert(twice.end(), straight.begin(), straight.end());
  EXPECT_EQ(windows.seen(sets), twice);
  const Names mixed = windows.seen(sets + Sets{"data.shuffle=true"});
  std::vector<Names> epochs;
  for (const int64_t begin : {0, 8}) {
    Names epoch(mixed.begin() + begin, mixed.begin() + begin + 8);
    epochs.push_back(epoch);
    EXPECT_NE(epoch, straight);
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, straight);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

// The losses of rows, for documents of 7, 16, 9 and 1 tokens including their end.
void pack(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 4}});
  std::vector<std::vector<uint16_t>> documents;
  std::vector<uint16_t> all;
  for (const size_t length : {7u, 16u, 9u, 1u}) {
    std::vector<uint16_t> ids;
    for (size_t i = 0; i + 1 < length; ++i)
      ids.push_back(static_cast<uint16_t>(20 + 13 * documents.size() + i * 3));
    ids.push_back(0);
    all.insert(all.end(), ids.begin(), ids.end());
    documents.push_back(ids);
  }
  training::put_tokens(lab.path("d.bin"), all);
  const Sets sets{"data.train=" + lab.list({"d.bin"}), count(2)};
  const auto losses = [&](const std::string& kind) {
    return lab.run(windows.sets() + sets + Sets{"data.pack=\"" + kind + "\""}).values("loss");
  };
  // A plain window: attention crosses documents.
  const std::vector<uint16_t> first(all.begin(), all.begin() + 17);
  EXPECT_NEAR(losses("stream").at(0), windows.loss(first), 1e-5);
  // By document: the 6 targets of the first document, and the 9 targets in 10 tokens of the second.
  const std::vector<uint16_t> begin_of_second(documents[1].begin(), documents[1].begin() + 10);
  EXPECT_NEAR(losses("documents").at(0),
              (6 * windows.loss(documents[0]) + 9 * windows.loss(begin_of_second)) / 15, 1e-5);
  // Whole documents: the second in one row, the first and third in another.
  auto best = losses("best_fit");
  std::sort(best.begin(), best.end());
  std::vector<double> wanted{windows.loss(documents[1]),
                             (6 * windows.loss(documents[0]) + 8 * windows.loss(documents[2])) / 14};
  std::sort(wanted.begin(), wanted.end());
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(best.at(i), wanted[i], 1e-5);
}

void epochs(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 3}});
  const Sets sets{"data.train=" + lab.list({"a.bin"})};
  EXPECT_EQ(windows.seen(sets + Sets{"data.epochs=2", count(50)}),
            (Names{"a0", "a1", "a2", "a0", "a1", "a2"}));
  EXPECT_EQ(windows.seen(sets + Sets{"data.epochs=\"repeat\"", count(7)}).size(), 7u);
  EXPECT_EQ(windows.seen(sets + Sets{"data.epochs=2", count(4)}).size(), 4u);
}

void skip(const std::string&) {
  Lab lab;
  Windows windows(lab, {{"a", 6}});
  const Sets sets{"data.train=" + lab.list({"a.bin"}), "data.skip=[1, [3, 4], \"7-8\"]", count(5)};
  // Global samples 0, 2, 5, 6 and 9.
  EXPECT_EQ(windows.seen(sets), (Names{"a0", "a2", "a5", "a0", "a3"}));
}

// The rows that the training loop copies to the device.
struct Rows {
  data::RowShape shape{};
  data::HostBatch batch;
  int64_t counted = 0;
  data::Tokenizer tokenizer;
};
Rows rows_of(const config::RunConfig& config, int64_t sequences) {
  const auto plan = config::make_plan(config, {.files = posix_file_system(), .places = {}});
  const data::SampleSource source(plan->data.sources,
                                  config::sample_options(plan->config, plan->model, plan->tokens()));
  Rows rows{.shape = source.shape(), .batch = {}, .counted = 0, .tokenizer = *plan->tokenizer};
  rows.batch.resize(source.shape(), sequences);
  data::BatchScratch scratch;
  rows.counted = source.fill(0, sequences, rows.batch.view(), scratch);
  return rows;
}

constexpr const char* kSizes =
    "hidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 1\nnum_attention_heads = 4\nvocab_size = "
    "420\n"
    "max_position_embeddings = 64\n";
std::string toml_of(const Lab& lab, const std::string& family) {
  return lab.toml("[model]\nfamily = \"" + family + "\"\n" + kSizes);
}
Sets on_text(const Lab& lab, int64_t length = 64) {
  return {"data.train=" + lab.list({"corpus.txt"}), "training.sequence_length=" + std::to_string(length),
          "training.global_batch_size=2", "training.steps=2"};
}
config::RunConfig config_of(Lab& lab, const std::string& toml, const Sets& sets) {
  return config::parse_run_config(toml, "RUN.toml",
                                  Sets{"run.folder=\"" + lab.next_folder().string() + "\""} + sets);
}

// The objective of each kind of model, by name or chosen by the program.
void objective(const std::string&) {
  Lab lab;
  lab.text();
  const std::map<std::string, std::string> of{
      {"llama3", "causal"}, {"bert", "masked"}, {"t5", "span_corruption"}};
  for (const auto& [family, kind] : of) {
    const auto usual = lab.run_toml(toml_of(lab, family), on_text(lab)).weights(2);
    EXPECT_TRUE(same(
        lab.run_toml(toml_of(lab, family), on_text(lab) + Sets{"data.objective=\"" + kind + "\""}).weights(2),
        usual));
    for (const auto& [other_family, other] : of) {
      if (other == kind) continue;
      EXPECT_TRUE(has(
          lab.refusal_of_toml(toml_of(lab, family), on_text(lab) + Sets{"data.objective=\"" + other + "\""}),
          "data.objective"));
    }
  }
}

void mask_rate(const std::string&) {
  Lab lab;
  lab.text();
  for (const double rate : {0.15, 0.4}) {
    const Sets sets = on_text(lab) + Sets{"data.mask_rate=" + std::to_string(rate)};
    const Rows masked = rows_of(config_of(lab, toml_of(lab, "bert"), sets), 40);
    EXPECT_NEAR(static_cast<double>(masked.counted), rate * 40 * 64, 0.03 * 40 * 64);
    // Four in five of the chosen tokens are masked.
    const auto hidden = std::count(masked.batch[Column::kTokens].begin(), masked.batch[Column::kTokens].end(),
                                   *masked.tokenizer.token_to_id("[MASK]"));
    EXPECT_NEAR(static_cast<double>(hidden) / static_cast<double>(masked.counted), 0.8, 0.1);
    // This fraction of a window's tokens moves to the target.
    const Rows spans = rows_of(config_of(lab, toml_of(lab, "t5"), sets), 10);
    const auto is_text = [&](int32_t id) { return id > 101; };
    const auto moved =
        std::count_if(spans.batch[Column::kTargets].begin(), spans.batch[Column::kTargets].end(), is_text);
    const auto stayed = std::count_if(spans.batch[Column::kEncoderTokens].begin(),
                                      spans.batch[Column::kEncoderTokens].end(), is_text);
    EXPECT_NEAR(static_cast<double>(moved) / static_cast<double>(moved + stayed), rate, 0.02);
  }
  EXPECT_TRUE(has(lab.refusal({"data.mask_rate=0.3"}), "data.mask_rate"));
}

void mean_span(const std::string&) {
  Lab lab;
  lab.text();
  for (const double mean : {2.0, 5.0}) {
    const Rows rows = rows_of(
        config_of(lab, toml_of(lab, "t5"),
                  on_text(lab) + Sets{"data.mask_rate=0.3", "data.mean_span=" + std::to_string(mean)}),
        10);
    // <extra_id_0> … follow <pad> and </s>.
    const auto is_sentinel = [](int32_t id) { return id >= 2 && id <= 101; };
    const auto spans = std::count_if(rows.batch[Column::kEncoderTokens].begin(),
                                     rows.batch[Column::kEncoderTokens].end(), is_sentinel);
    const auto moved = std::count_if(rows.batch[Column::kTargets].begin(), rows.batch[Column::kTargets].end(),
                                     [](int32_t id) { return id > 101; });
    EXPECT_NEAR(static_cast<double>(moved) / static_cast<double>(spans), mean, 0.3);
  }
  EXPECT_TRUE(has(lab.refusal({"data.mean_span=4.0"}), "data.mean_span"));
}

// Counts documents that begin with the prefix sentinel; with SPM the suffix sentinel follows it.
void fill_in_the_middle(const std::string&) {
  Lab lab;
  lab.text(600);
  const auto share = [&](double rate, double spm_rate) {
    const Rows rows = rows_of(
        config_of(
            lab, lab.toml(),
            Sets{
                "data.train=" + lab.list({"corpus.jsonl"}), "training.sequence_length=64",
                R"(tokenizer.train.special=["<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>"])",
                "data.fim_rate=" + std::to_string(rate), "data.fim_spm_rate=" + std::to_string(spm_rate)}),
        60);
    double documents = 0, changed = 0, suffix_first = 0;
    for (size_t i = 0; i < rows.batch[Column::kTokens].size(); ++i) {
      const bool begins = i % 64 == 0 || rows.batch[Column::kTokens][i - 1] == 0;
      size_t end = i;
      while (end < rows.batch[Column::kTokens].size() && (end == i || end % 64 != 0) &&
             rows.batch[Column::kTokens][end] != 0)
        ++end;
      if (!begins || end - i < 8) continue;
      ++documents;
      changed += rows.batch[Column::kTokens][i] == 1;
      suffix_first += rows.batch[Column::kTokens][i] == 1 && rows.batch[Column::kTokens][i + 1] == 3;
    }
    EXPECT_GT(documents, 100);
    return std::pair(changed / documents, changed > 0 ? suffix_first / changed : 0);
  };
  EXPECT_EQ(share(0, 0.5).first, 0);
  EXPECT_EQ(share(1, 1), std::pair(1.0, 1.0));
  const auto [changed, none_first] = share(0.5, 0);
  EXPECT_NEAR(changed, 0.5, 0.15);
  EXPECT_LT(none_first, 0.3) << "only if the prefix is empty";
  EXPECT_TRUE(has(lab.refusal({"data.fim_rate=0.5"}), "data.fim_rate")) << "tokens without a tokenizer";
}

}  // namespace

Contracts data_keys() {
  return {{"data.train", train},
          {"data.build", build},
          {"data.text_field", text_field},
          {"data.valid", valid},
          {"data.valid_fraction", valid_fraction},
          {"data.shuffle", shuffle},
          {"data.pack", pack},
          {"data.objective", objective},
          {"data.mask_rate", mask_rate},
          {"data.mean_span", mean_span},
          {"data.fim_rate", fill_in_the_middle},
          {"data.fim_spm_rate", fill_in_the_middle},
          {"data.epochs", epochs},
          {"data.skip", skip}};
}

}  // namespace strata::contracts
