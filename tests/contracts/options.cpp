#include "contracts/options.h"

#include <filesystem>
#include <sstream>

#include "base/json.h"

namespace strata::contracts {

Desk::Desk() {
  std::filesystem::create_directories(lab_.path("desk"));
}

Outcome Desk::strata(const std::string& words, const std::vector<std::string>& more) const {
  std::istringstream stream(words);
  std::vector<std::string> arguments;
  for (std::string word; stream >> word;) arguments.push_back(word);
  arguments.insert(arguments.end(), more.begin(), more.end());
  return contracts::strata(lab_.path("desk"), arguments);
}

json Desk::object(const std::string& words, const std::vector<std::string>& more) const {
  const Outcome outcome = strata(words, more);
  EXPECT_EQ(outcome.code, 0) << words << "\n" << outcome.err;
  return outcome.parsed();
}

std::string Desk::refused(const std::string& words, const std::vector<std::string>& more) const {
  const Outcome outcome = strata(words, more);
  EXPECT_EQ(outcome.code, 2) << words << "\n" << outcome.out << outcome.err;
  EXPECT_EQ(outcome.out, "");
  return outcome.err;
}

void Desk::write_texts() const {
  std::string records, texts;
  for (int i = 0; i < 30; ++i) {
    const std::string text = "the cat number " + std::to_string(i % 10) +
                             " sat on the mat and said that it was warm there, which it was.";
    texts += text + "\n";
    records += dump_json(json{{"id", "d" + std::to_string(i)},
                              {"text", text},
                              {"key", "k" + std::to_string(i)},
                              {"body", "body " + std::to_string(i)}}) +
               "\n";
  }
  put("corpus.jsonl", records);
  put("corpus.txt", texts);
  const Outcome made = strata("tokenizer train --input corpus.txt --vocab-size 280 --output tokenizer.json");
  EXPECT_EQ(made.code, 0) << made.err;
}

void Desk::write_run() const {
  put("run.toml", std::string("[run]\nfolder = \"run\"\n") + training::kTinyModel + R"([tokenizer]
path = "tokenizer.json"
[data]
train = ["corpus.jsonl"]
pack = "stream"
[training]
sequence_length = 16
global_batch_size = 2
micro_batch_size = 2
steps = 2
[optimizer]
lr = 1e-2
[schedule]
warmup_steps = 0
[precision]
compute = "fp32"
[device]
threads = 1
[checkpoint]
interval = "1 steps"
[memory]
budget = "2GB"
)");
}

void Desk::train() const {
  write_texts();
  write_run();
  const Outcome made = strata("train run.toml");
  EXPECT_EQ(made.code, 0) << made.err;
  training::put_tokens(path("held.bin"), training::tiny_tokens(60, 99));
}

std::vector<json> Desk::lines(const std::string& name) const {
  return Outcome{.code = 0, .out = read(name), .err = ""}.lines();
}

}  // namespace strata::contracts
