// A small corpus with something for every stage, and builds of it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "comm/world.h"
#include "data/build/engine.h"
#include "data/tokenizer/train_bpe.h"
#include "fixtures/faulty_file_system.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {

class BuildFixture {
 public:
  BuildFixture() {
    std::string lines;
    for (int i = 0; i < 60; ++i) {
      // Document 3k is repeated with one more word as 3k + 1: a near duplicate.
      const std::string text = i % 3 == 1 ? text_of(i - 1) + " again" : text_of(i);
      lines += dump_json(nlohmann::json{{"id", "doc" + std::to_string(i)}, {"text", text}, {"n", i}}) + "\n";
    }
    lines +=
        "{\"id\":\"short\",\"text\":\"too short\"}\n{\"id\":\"null\",\"text\":null}\nno "
        "json\n{\"id\":\"none\"}\n";
    folder_.write("a.jsonl", lines);
    folder_.write("b.jsonl", dump_json(nlohmann::json{{"text", text_of(0)}, {"url", "http://b/"}}) + "\n");
    std::string texts = lines;
    bool given = false;
    folder_.write("tokenizer.json", train_bpe(
                                        [&](std::string_view& text) {
                                          text = texts;
                                          return !std::exchange(given, true);
                                        },
                                        {.vocab_size = 400})
                                        .json);
  }

  static std::string recipe(const std::string& more = "") {
    return R"(
[build]
folder = "out"
[[source]]
name = "a"
path = "a.jsonl"
[[source]]
name = "b"
path = ["b.jsonl"]
[[stage]]
kind = "gopher_quality"
min_doc_words = 20
min_stop_words = 0
[[stage]]
kind = "minhash"
[[stage]]
kind = "fineweb_quality"
short_line_thr = 1.0
line_punct_thr = 0.0
new_line_ratio = 10.0
char_duplicates_ratio = 1.0
[output]
clusters = true
tokens = { tokenizer = "tokenizer.json" }
)" + more;
  }

  std::unique_ptr<BuildJob> job(const std::string& text, FileSystem& files = no_sync(),
                                std::function<bool()> stop = {}) {
    const Path path = folder_.write("recipe.toml", text);
    Recipe read = read_recipe(read_recipe_tree(path, {}), path);
    read.memory_limit = int64_t{64} << 20;
    return make_job(std::move(read), files, std::move(stop), 8000);  // several parts of one file
  }
  BuildResult build(const std::string& text = recipe(), FileSystem& files = no_sync()) {
    return run_build(*job(text, files), *comm::single_process_world(), {});
  }

  Path out() const { return folder_.path() / "out"; }
  const TemporaryFolder& folder() const { return folder_; }

  // All files under `out` with their bytes.
  std::map<std::string, std::string> files_of(const std::string& name = "out") const {
    std::map<std::string, std::string> files;
    for (const Path& path : expand_glob((folder_.path() / name).string()))
      if (path.filename() != ".lock")
        files[path.lexically_relative(folder_.path() / name).string()] = read_file(path);
    return files;
  }
  // Prints only the names of files that differ.
  void expect_files(const std::map<std::string, std::string>& expected, const std::string& what) const {
    const auto found = files_of();
    for (const auto& [name, bytes] : expected)
      EXPECT_TRUE(found.count(name) && found.at(name) == bytes) << what << ": " << name << " is not the same";
    for (const auto& [name, bytes] : found)
      EXPECT_TRUE(expected.count(name)) << what << ": " << name << " is left over";
  }
  std::vector<nlohmann::json> lines_of(const std::string& kind) const {
    std::vector<nlohmann::json> out;
    for (const Path& path : expand_glob((this->out() / kind).string())) {
      std::istringstream lines(read_file(path));
      for (std::string line; std::getline(lines, line);) out.push_back(parse_json<nlohmann::json>(line));
    }
    return out;
  }

  // About 120 words that no other document has in this order.
  static std::string text_of(int i) {
    static const std::vector<std::string> kWords = {"river",   "stone",  "the",    "house", "garden", "under",
                                                    "morning", "light",  "and",    "of",    "bread",  "water",
                                                    "old",     "window", "travel", "small", "voice",  "to",
                                                    "letter",  "with",   "winter"};
    std::string text;
    uint32_t state = static_cast<uint32_t>(i) * 7919u + 17u;
    for (int w = 0; w < 120; ++w) {
      state = state * 1664525u + 1013904223u;
      text += (w == 0 ? "" : " ") + kWords[(state >> 16) % kWords.size()];
    }
    return text + ".";
  }

 private:
  // A killed process keeps the page cache: tests need no real sync.
  static FileSystem& no_sync() {
    static FaultyFileSystem files;
    return files;
  }

  TemporaryFolder folder_;
};

}  // namespace strata::data
