// Fixture for contracts of options: texts, a tokenizer, a run and a token file in the program's folder.
#pragma once

#include "contracts/lab.h"

namespace strata::contracts {

class Desk {
 public:
  Desk();

  // Runs `strata WORDS` in the folder; `words` are split at spaces, `more` are appended unchanged.
  Outcome strata(const std::string& words, const std::vector<std::string>& more = {}) const;
  // Like strata(), but it must succeed and print one JSON object.
  json object(const std::string& words, const std::vector<std::string>& more = {}) const;
  // Like strata(), but it must reject arguments or configuration: exit code 2 and empty standard output.
  // Returns the message.
  std::string refused(const std::string& words, const std::vector<std::string>& more = {}) const;

  Path path(const std::string& name) const { return lab_.path("desk") / name; }
  void put(const std::string& name, const std::string& text) const { put_file(path(name), text); }
  std::string read(const std::string& name) const { return read_file(path(name)); }
  bool exists(const std::string& name) const { return std::filesystem::exists(path(name)); }

  // corpus.jsonl: 30 documents with 10 different texts, each three times, and the fields id, text, key and
  // body. corpus.txt: their texts. tokenizer.json: 280 entries, trained on them.
  void write_texts() const;
  // run.toml: two steps of two sequences on corpus.jsonl into `run`, with a checkpoint after each.
  void write_run() const;
  // write_texts(), write_run(), then trains the run and writes held.bin with 60 tokens.
  void train() const;
  // The lines of a file, each a JSON object.
  std::vector<json> lines(const std::string& name) const;

 private:
  Lab lab_;
};

}  // namespace strata::contracts
