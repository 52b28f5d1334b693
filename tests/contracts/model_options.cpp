// Contracts of the options of `strata eval` and `strata generate`, checked by losses composed from other
// windows and by tokens chosen from logits.
#include <algorithm>
#include <cmath>
#include <set>

#include "contracts/contract.h"
#include "contracts/options.h"
#include "inference/generate.h"
#include "inference/model_runtime.h"

namespace strata::contracts {
namespace {

const std::string kFp32 = " --set precision.compute=\"fp32\" --set device.threads=1 --json";

struct Trained : Desk {
  Trained() { train(); }
  json eval(const std::string& words) const { return object("eval --model run " + words + kFp32); }
  // The sum of the losses of these tokens in one window.
  double summed(const std::vector<uint16_t>& ids) const {
    training::put_tokens(path("part.bin"), ids);
    const json found = eval("--tokens part.bin --sequence-length " + std::to_string(ids.size() - 1));
    return found["loss"].get<double>() * found["tokens"].get<double>();
  }
  json generate(const std::string& prompt, const std::string& words) const {
    return object("generate --model run " + words + kFp32, {"--prompt", prompt});
  }
};
std::vector<uint16_t> part(const std::vector<uint16_t>& ids, size_t begin, size_t end) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(begin),
          ids.begin() + static_cast<std::ptrdiff_t>(std::min(end, ids.size()))};
}

void eval_model(const std::string&) {
  const Trained desk;
  const std::string words = " --tokens held.bin --sequence-length 16" + kFp32;
  const json newest = desk.object("eval --model run" + words);
  EXPECT_EQ(desk.object("eval --model run@latest" + words), newest);
  EXPECT_EQ(desk.object("eval --model run/checkpoints/step-00000002" + words), newest);
  EXPECT_NE(desk.object("eval --model run/checkpoints/step-00000001" + words), newest);
  EXPECT_NEAR(desk.object("eval --model run/final" + words)["loss"].get<double>(),
              newest["loss"].get<double>(), 0.02)
      << "the same in bf16";
  desk.refused("eval --model nowhere --tokens held.bin --sequence-length 16");
}

// Windows of N targets start every N tokens; the last window is shorter.
void sequence_length(const std::string&) {
  const Trained desk;
  const auto ids = training::tiny_tokens(60, 99);
  for (const size_t length : {59u, 16u, 7u}) {
    double sum = 0;
    for (size_t begin = 0; begin + 1 < ids.size(); begin += length)
      sum += desk.summed(part(ids, begin, begin + length + 1));
    const json found = desk.eval("--tokens held.bin --sequence-length " + std::to_string(length));
    EXPECT_EQ(found["tokens"], 59);
    EXPECT_NEAR(found["loss"].get<double>(), sum / 59, 1e-5);
    EXPECT_NEAR(found["perplexity"].get<double>(), std::exp(sum / 59), 1e-2);
  }
  EXPECT_TRUE(has(desk.refused("eval --model run --tokens held.bin --sequence-length 65"), "64 positions"));
  desk.refused("eval --model run --tokens held.bin");
}

// Each later window counts only the targets that no earlier window contains: the sum over the window minus
// the sum over its first tokens.
void stride(const std::string&) {
  const Trained desk;
  const auto ids = training::tiny_tokens(60, 99);
  const size_t length = 12, step = 5;
  double sum = desk.summed(part(ids, 0, length + 1));
  for (size_t begin = step; begin + length - step + 1 < ids.size(); begin += step)
    sum += desk.summed(part(ids, begin, begin + length + 1)) -
           desk.summed(part(ids, begin, begin + length - step + 1));
  const json found = desk.eval("--tokens held.bin --sequence-length 12 --stride 5");
  EXPECT_EQ(found["tokens"], 59);
  EXPECT_NEAR(found["loss"].get<double>(), sum / 59, 1e-5);
  EXPECT_EQ(desk.eval("--tokens held.bin --sequence-length 12 --stride 12"),
            desk.eval("--tokens held.bin --sequence-length 12"));
  EXPECT_TRUE(
      has(desk.refused("eval --model run --tokens held.bin --sequence-length 12 --stride 13"), "--stride"));
}

void eval_text(const std::string&) {
  const Trained desk;
  desk.put("a.txt", "the cat number 5 sat on the mat");
  const auto tokenizer = data::Tokenizer::load(desk.path("tokenizer.json"));
  auto ids = tokenizer.encode("the cat number 5 sat on the mat");
  ids.push_back(*tokenizer.end_of_text_id());  // ends each document, as in training
  const double sum = desk.summed({ids.begin(), ids.end()});
  const json found = desk.eval("--text a.txt --sequence-length 60");
  EXPECT_EQ(found["tokens"], ids.size() - 1);
  EXPECT_NEAR(found["loss"].get<double>(), sum / static_cast<double>(ids.size() - 1), 1e-5);
  EXPECT_NEAR(found["bits_per_byte"].get<double>(), sum / std::log(2.0) / 31, 1e-5);
  EXPECT_TRUE(
      has(desk.refused("eval --model run --text a.txt --tokens held.bin --sequence-length 8"), "--text"));
}

// --set data.pack="documents" restricts attention to a document.
void eval_set(const std::string&) {
  const Trained desk;
  training::put_tokens(desk.path("two.bin"), {5, 6, 7, 0, 8, 9, 10});
  const double sum = desk.summed({5, 6, 7, 0}) + desk.summed({8, 9, 10});
  const json found = desk.eval("--tokens two.bin --sequence-length 6 --set data.pack=\"documents\"");
  EXPECT_EQ(found["tokens"], 5);
  EXPECT_NEAR(found["loss"].get<double>(), sum / 5, 1e-5);
  EXPECT_EQ(desk.eval("--tokens two.bin --sequence-length 6")["tokens"], 6);
  EXPECT_TRUE(
      has(desk.refused("eval --model run --tokens two.bin --sequence-length 6 --set data.pak=1"), "pack"));
}

void eval_json(const std::string&) {
  const Trained desk;
  const json found = desk.eval("--tokens held.bin --sequence-length 16");
  const std::string text =
      desk.strata("eval --model run --tokens held.bin --sequence-length 16 --set precision.compute=\"fp32\"")
          .out;
  char loss[32];
  std::snprintf(loss, sizeof loss, "loss %.6f ", found["loss"].get<double>());
  EXPECT_TRUE(has(text, loss) && has(text, "tokens 59")) << text;
}

// Accuracies from the log-likelihoods of every choice.
void task(const std::string&) {
  const Trained desk;
  desk.put("piqa.jsonl", R"({"goal": "the cat", "sol1": "number 5 sat", "sol2": "mat", "label": 0}
{"goal": "the", "sol1": "mat mat mat", "sol2": "cat", "label": 0}
{"goal": "number", "sol1": "sat", "sol2": "the warm", "label": 1}
)");
  const json found = desk.eval("--task piqa --jsonl piqa.jsonl --samples scores.jsonl");
  double right = 0, right_by_length = 0;
  const auto samples = desk.lines("scores.jsonl");
  ASSERT_EQ(samples.size(), 3u);
  for (const json& one : samples) {
    const auto scores = one["loglikelihoods"].get<std::vector<double>>();
    const auto choices = one["choices"].get<std::vector<std::string>>();
    const size_t gold = one["gold"], other = 1 - gold;
    right += scores[gold] > scores[other];
    const auto by_length = [&](size_t i) { return scores[i] / static_cast<double>(choices[i].size()); };
    right_by_length += by_length(gold) > by_length(other);
  }
  EXPECT_NEAR(found["acc"].get<double>(), right / 3, 1e-9);
  EXPECT_NEAR(found["acc_norm"].get<double>(), right_by_length / 3, 1e-9);
  // Each log-likelihood is that of the choice's tokens after the question's.
  const auto tokenizer = data::Tokenizer::load(desk.path("tokenizer.json"));
  const auto context = tokenizer.encode(samples[0]["context"].get<std::string>());
  const auto whole = tokenizer.encode(samples[0]["context"].get<std::string>() + " " +
                                      samples[0]["choices"][0].get<std::string>());
  EXPECT_NEAR(samples[0]["loglikelihoods"][0].get<double>(),
              desk.summed({context.begin(), context.end()}) - desk.summed({whole.begin(), whole.end()}),
              1e-3);
  EXPECT_EQ(found["samples"], 3);
  EXPECT_EQ(desk.eval("--task piqa --jsonl piqa.jsonl --limit 2 --samples two.jsonl")["samples"], 2);
  EXPECT_TRUE(
      has(desk.refused("eval --model run --task piqa --jsonl piqa.jsonl --samples scores.jsonl"), "--force"));
  EXPECT_EQ(desk.lines("scores.jsonl").size(), 3u);
  desk.eval("--task piqa --jsonl piqa.jsonl --limit 1 --samples scores.jsonl --force");
  EXPECT_EQ(desk.lines("scores.jsonl").size(), 1u);
  const auto two = desk.lines("two.jsonl");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1]["context"], samples[1]["context"]);
  EXPECT_TRUE(has(desk.refused("eval --model run --task pika --jsonl piqa.jsonl"), "piqa"));
  desk.refused("eval --model run --task piqa");
  desk.refused("eval --model run --limit 2 --tokens held.bin --sequence-length 8");
}

// Logits of the next token after given ids, from the run's weights.
class Logits {
 public:
  explicit Logits(const Path& model) : runtime_(inference::open_model(model.string())) {
    inference::load_runtime(runtime_, {.compute = {.dtype = DType::kF32, .threads = 1},
                                       .requests = inference::generation_requests(inference::kPrefillChunk)});
  }
  std::vector<double> after(const std::vector<int32_t>& ids) {
    std::vector<int32_t> tokens(inference::kPrefillChunk), positions;
    std::copy(ids.begin(), ids.end(), tokens.begin());
    for (int64_t i = 0; i < inference::kPrefillChunk; ++i)
      positions.push_back(static_cast<int32_t>(std::min<int64_t>(i, 63)));
    runtime_.executor->upload_column(0, Column::kTokens, 0, tokens);
    runtime_.executor->upload_column(0, Column::kPositions, 0, positions);
    runtime_.executor->write("cache_position", int32_t{0});
    runtime_.executor->write("last_row", static_cast<int32_t>(ids.size()) - 1);
    runtime_.executor->run_script(0);
    const auto logits = runtime_.executor->read_all<float>("logits");
    return {logits.begin(), logits.begin() + 280};  // of the tokenizer's entries
  }

 private:
  inference::ModelRuntime runtime_;
};

// Every token must be the most probable one, after the penalty for tokens that precede it.
void expect_greedy(const Trained& desk, const json& made, const std::string& prompt, double penalty) {
  Logits logits(desk.path("run"));
  auto ids = data::Tokenizer::load(desk.path("tokenizer.json")).encode(prompt);
  ASSERT_FALSE(made["ids"].empty());
  for (const json& id : made["ids"]) {
    auto scores = logits.after(ids);
    for (const int32_t seen : std::set<int32_t>(ids.begin(), ids.end())) {
      double& score = scores[static_cast<size_t>(seen)];
      score = score > 0 ? score / penalty : score * penalty;
    }
    const double best = *std::max_element(scores.begin(), scores.end());
    EXPECT_NEAR(scores[id.get<size_t>()], best, 1e-4) << made;
    ids.push_back(id);
  }
}

void temperature(const std::string&) {
  const Trained desk;
  const json greedy = desk.generate("the cat", "--max-tokens 8 --temperature 0");
  expect_greedy(desk, greedy, "the cat", 1);
  EXPECT_EQ(desk.generate("the cat", "--max-tokens 8 --temperature 0 --seed 9"), greedy);
  EXPECT_EQ(desk.generate("the cat", "--max-tokens 8 --temperature 0.00001 --seed 9"), greedy);
  EXPECT_NE(desk.generate("the cat", "--max-tokens 8 --temperature 5"), greedy);
  desk.refused("generate --model run --prompt a --temperature -1");
}

// With the values `tight` only the most probable token remains.
void narrowed(const std::string& name) {
  const Trained desk;
  const std::map<std::string, std::string> tight{{"--top-k", "1"}, {"--top-p", "0.000001"}, {"--min-p", "1"}},
      wide{{"--top-k", "0"}, {"--top-p", "1"}, {"--min-p", "0"}},
      wrong{{"--top-k", "-1"}, {"--top-p", "1.5"}, {"--min-p", "-0.5"}};
  const std::string option = name.substr(name.find("--"));
  const json greedy = desk.generate("the cat", "--max-tokens 8 --temperature 0");
  const json free = desk.generate("the cat", "--max-tokens 8");
  EXPECT_NE(free, greedy);
  EXPECT_EQ(desk.generate("the cat", "--max-tokens 8 " + option + " " + tight.at(option)), greedy);
  EXPECT_EQ(desk.generate("the cat", "--max-tokens 8 " + option + " " + wide.at(option)), free);
  desk.refused("generate --model run --prompt a " + option + " " + wrong.at(option));
  // With other values the `left` most probable tokens remain.
  Logits logits(desk.path("run"));
  const auto scores = logits.after(data::Tokenizer::load(desk.path("tokenizer.json")).encode("the cat"));
  auto sorted = scores;
  std::sort(sorted.rbegin(), sorted.rend());
  double total = 0, sum = 0;
  for (const double score : scores) total += std::exp(score - sorted[0]);
  size_t left = 3;
  std::string value = " 3";
  if (option == "--top-p") {
    value = " 0.05";
    for (left = 0; sum < 0.05 * total; ++left) sum += std::exp(sorted[left] - sorted[0]);
  } else if (option == "--min-p") {
    value = " 0.7";
    for (left = 0; std::exp(sorted[left] - sorted[0]) >= 0.7;) ++left;
  }
  for (int trial = 1; trial <= 12; ++trial) {
    const json made =
        desk.generate("the cat", "--max-tokens 1 --seed " + std::to_string(trial) + " " + option + value);
    EXPECT_GE(scores[made["ids"].at(0).get<size_t>()], sorted[left - 1] - 1e-4) << trial;
  }
}

void repetition_penalty(const std::string&) {
  const Trained desk;
  for (const double penalty : {1.0, 1.7, 40.0}) {
    expect_greedy(desk,
                  desk.generate("the cat sat", "--max-tokens 10 --temperature 0 --repetition-penalty " +
                                                   std::to_string(penalty)),
                  "the cat sat", penalty);
  }
  desk.refused("generate --model run --prompt a --repetition-penalty 0");
}

void generate_model(const std::string&) {
  const Trained desk;
  const std::string words = " --prompt cat --max-tokens 6 --temperature 0" + kFp32;
  EXPECT_EQ(desk.object("generate --model run/checkpoints/step-00000002" + words),
            desk.object("generate --model run" + words));
  desk.refused("generate --model nowhere" + words);
}

void max_tokens(const std::string&) {
  const Trained desk;
  for (const size_t most : {1u, 5u}) {
    const json made = desk.generate("the cat", "--temperature 0 --max-tokens " + std::to_string(most));
    EXPECT_LE(made["ids"].size(), most);
    if (made["finish_reason"] == "length") {
      EXPECT_EQ(made["ids"].size(), most);
    }
  }
  desk.refused("generate --model run --prompt a --max-tokens 0");
}

// Batching does not change the generated texts.
void prompts(const std::string&) {
  const Trained desk;
  desk.put("prompts.jsonl",
           "{\"prompt\": \"the cat\"}\n{\"prompt\": \"mat\"}\n{\"prompt\": \"warm there\"}\n");
  std::vector<json> singly;
  for (const char* prompt : {"the cat", "mat", "warm there"})
    singly.push_back(desk.generate(prompt, "--temperature 0 --max-tokens 5"));
  for (const char* batch : {"1", "2", "8"}) {
    const auto made =
        desk.strata("generate --model run --prompts prompts.jsonl --temperature 0 --max-tokens 5 --batch " +
                    std::string(batch) + kFp32)
            .lines();
    EXPECT_EQ(made, singly) << batch;
  }
  EXPECT_TRUE(has(desk.refused("generate --model run --prompts prompts.jsonl --batch 33"), "1 to 32"));
  desk.refused("generate --model run --prompts prompts.jsonl --prompt a");
  desk.refused("generate --model run");
}

void stop(const std::string&) {
  const Trained desk;
  const json whole = desk.generate("the cat", "--temperature 0 --max-tokens 20");
  const std::string text = whole["text"];
  // Any two consecutive ASCII characters.
  const size_t at = static_cast<size_t>(
      std::adjacent_find(text.begin() + 3, text.end(),
                         [](unsigned char a, unsigned char b) { return a < 128 && b < 128; }) -
      text.begin());
  ASSERT_LT(at, text.size());
  const json cut =
      desk.object("generate --model run --temperature 0 --max-tokens 20" + kFp32,
                  {"--prompt", "the cat", "--stop", "never there", "--stop", text.substr(at, 2)});
  EXPECT_EQ(cut["text"], text.substr(0, text.find(text.substr(at, 2))));
  EXPECT_EQ(cut["finish_reason"], "stop");
}

void seed(const std::string&) {
  const Trained desk;
  const json one = desk.generate("the cat", "--max-tokens 10 --seed 5");
  EXPECT_EQ(desk.generate("the cat", "--max-tokens 10 --seed 5"), one);
  EXPECT_NE(desk.generate("the cat", "--max-tokens 10 --seed 6"), one);
}

// The fp64 reference kernels generate the same text; recipes of training are rejected.
void generate_set(const std::string&) {
  const Trained desk;
  expect_greedy(desk,
                desk.generate("the cat", "--max-tokens 4 --temperature 0 --set debug.reference_kernels=true"),
                "the cat", 1);
  EXPECT_TRUE(has(desk.refused("generate --model run --prompt a --set precision.compute=\"fp8\""),
                  "recipes are for training"));
  EXPECT_TRUE(
      has(desk.refused("generate --model run --prompt a --set precision.computes=\"fp32\""), "compute"));
}

void generate_json(const std::string&) {
  const Trained desk;
  const json made = desk.generate("the cat", "--max-tokens 6 --temperature 0");
  const auto tokenizer = data::Tokenizer::load(desk.path("tokenizer.json"));
  EXPECT_EQ(tokenizer.decode_text(made["ids"].get<std::vector<int32_t>>()), made["text"]);
  EXPECT_EQ(made["prompt"], "the cat");
  const Outcome text =
      desk.strata("generate --model run --max-tokens 6 --temperature 0 --set precision.compute=\"fp32\"",
                  {"--prompt", "the cat"});
  EXPECT_EQ(text.out, "the cat" + made["text"].get<std::string>() + "\n");
}

// Identical tokens all go to the same two experts, so the shares of the experts determine all other figures.
void eval_experts(const std::string&) {
  const Desk desk;
  desk.write_texts();
  desk.write_run();
  for (const auto& [name, id] : {std::pair{"fives.bin", uint16_t{5}}, {"nines.bin", uint16_t{9}}})
    training::put_tokens(desk.path(name), std::vector<uint16_t>(600, id));
  desk.put("moe.toml", R"([run]
folder = "moe"
)" + small_experts(8) + R"([data]
pack = "stream"
[[data.source]]
name = "fives"
path = ["fives.bin"]
[[data.source]]
name = "nines"
path = ["nines.bin"]
[training]
sequence_length = 16
global_batch_size = 2
steps = 1
[precision]
compute = "fp32"
[device]
threads = 1
)");
  ASSERT_EQ(desk.strata("train moe.toml").code, 0);
  const std::string words = " --sequence-length 16" + kFp32;
  const json found = desk.object("eval --experts --model moe --max-tokens 100" + words);
  EXPECT_EQ(found["tokens"], 2 * 99);
  ASSERT_EQ(found["sources"].size(), 2u);
  EXPECT_EQ(found["sources"][0]["name"], "fives");
  EXPECT_EQ(found["sources"][1]["tokens"], 99);
  ASSERT_EQ(found["layers"].size(), 2u);
  double specialisation = 0, most = 0;
  int64_t dead = 0;
  for (const json& layer : found["layers"]) {
    double information = 0;
    for (size_t expert = 0; expert < 8; ++expert) {
      double mean = 0;
      for (const json& shares : layer["shares_by_source"]) {
        const double share = shares[expert];
        EXPECT_TRUE(share == 0 || share == 0.5) << layer;
        mean += share / 2;
        information += share > 0 ? share / 2 * std::log2(share) : 0;
      }
      EXPECT_NEAR(layer["shares"][expert].get<double>(), mean, 1e-12);
      information -= mean > 0 ? mean * std::log2(mean) : 0;
      most = std::max(most, mean * 8 - 1);
      dead += mean == 0;
    }
    EXPECT_NEAR(layer["information_bits"].get<double>(), information, 1e-9);
    specialisation += information / 2;
  }
  EXPECT_NEAR(found["specialisation"].get<double>(), specialisation, 1e-9);
  EXPECT_NEAR(found["max_vio"].get<double>(), most, 1e-9);
  EXPECT_EQ(found["dead_experts"], dead);
  // Routing statistics for files instead of the run's sources, and for all tokens.
  const std::string files = " --tokens fives.bin --tokens nines.bin --max-tokens 0";
  const json all = desk.object("eval --experts --model moe/final" + files + words);
  EXPECT_EQ(all["tokens"], 2 * 599);
  EXPECT_EQ(all["sources"][1]["name"], "nines.bin");
  EXPECT_TRUE(has(desk.strata("eval --experts --model moe").out, "specialisation by source"));
  EXPECT_FALSE(
      desk.object("eval --experts --model moe --tokens fives.bin" + words).contains("specialisation"));
  desk.refused("eval --model moe --tokens fives.bin --tokens nines.bin --sequence-length 16");
  desk.refused("eval --model moe --tokens fives.bin --max-tokens 5 --sequence-length 16");
}

}  // namespace

Contracts model_options() {
  return {{"eval --model", eval_model},
          {"eval --tokens", sequence_length},
          {"eval --text", eval_text},
          {"eval --sequence-length", sequence_length},
          {"eval --stride", stride},
          {"eval --task", task},
          {"eval --jsonl", task},
          {"eval --limit", task},
          {"eval --samples", task},
          {"eval --force", task},
          {"eval --experts", eval_experts},
          {"eval --max-tokens", eval_experts},
          {"eval --set", eval_set},
          {"eval --json", eval_json},
          {"generate --model", generate_model},
          {"generate --prompt", generate_json},
          {"generate --prompts", prompts},
          {"generate --batch", prompts},
          {"generate --max-tokens", max_tokens},
          {"generate --temperature", temperature},
          {"generate --top-k", narrowed},
          {"generate --top-p", narrowed},
          {"generate --min-p", narrowed},
          {"generate --repetition-penalty", repetition_penalty},
          {"generate --stop", stop},
          {"generate --seed", seed},
          {"generate --set", generate_set},
          {"generate --json", generate_json}};
}

}  // namespace strata::contracts
