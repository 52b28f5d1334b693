// A text and a run small enough for dozens of trainings in a test.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fixtures/scratch_folder.h"
#include "strata/strata.h"

namespace strata {

inline constexpr const char* kSmallRun = R"([model]
family = "llama"
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
vocab_size = 300
max_position_embeddings = 64
[data]
valid_fraction = 0.1
[training]
sequence_length = 32
global_batch_size = 4
steps = 6
[eval]
interval = 3
sample_tokens = 4
sample_prompts = ["The number"]
[checkpoint]
interval = 2
[device]
threads = 1
)";

inline std::string sentences(int count) {
  std::string text;
  for (int i = 1; i <= count; ++i)
    text += "The number " + std::to_string(i) + " follows " + std::to_string(i - 1) + ".\n";
  return text;
}

class Library : public testing::Test {
 protected:
  Library() { put_file(text_, sentences(300)); }

  std::string quoted(const Path& path) const { return "\"" + path.string() + "\""; }
  Config config(const std::string& name, std::vector<std::string> sets = {}) const {
    sets.insert(sets.begin(), {"data.train=[" + quoted(text_) + "]", "run.folder=" + quoted(folder(name))});
    return Config::parse(kSmallRun, sets);
  }
  Path folder(const std::string& name) const { return scratch_.path() / name; }
  // A trained model's folder.
  std::string trained(const std::string& name, const std::vector<std::string>& sets = {}) const {
    return train(plan(config(name, sets))).folder;
  }
  template <typename Call>
  static Error error_of(const Call& call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return {ErrorKind::kInternal, ""};
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

  ScratchFolder scratch_;
  Path text_ = scratch_.path() / "text.txt";
};

}  // namespace strata
