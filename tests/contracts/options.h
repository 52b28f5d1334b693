// Where options are checked: texts, a tokenizer, a run and a token file in the folder where the program runs.
#pragma once

#include "contracts/lab.h"

namespace strata::contracts {

class Desk {
 public:
  Desk();

  // `strata WORDS` there; words as a shell without quotes would split them, then `more` as they are.
  Outcome strata(const std::string& words, const std::vector<std::string>& more = {}) const;
  // The same, which must succeed and print one JSON object.
  json object(const std::string& words, const std::vector<std::string>& more = {}) const;
  // A refusal of arguments or configuration: exit code 2, nothing on standard output; what was said.
  std::string refused(const std::string& words, const std::vector<std::string>& more = {}) const;

  Path path(const std::string& name) const { return lab_.path("desk") / name; }
  void put(const std::string& name, const std::string& text) const { put_file(path(name), text); }
  std::string read(const std::string& name) const { return read_file(path(name)); }
  bool exists(const std::string& name) const { return std::filesystem::exists(path(name)); }

  // corpus.jsonl: 30 documents, every tenth the same, with the fields id, text, key and body; corpus.txt:
  // their texts. tokenizer.json of 280 entries, trained on them.
  void write_texts() const;
  // run.toml: two steps of two sequences on corpus.jsonl into `run`, saved at each.
  void write_run() const;
  // write_texts, write_run and the run itself; held.bin with 60 tokens.
  void train() const;
  // Lines of a file, each a JSON object.
  std::vector<json> lines(const std::string& name) const;

 private:
  Lab lab_;
};

}  // namespace strata::contracts
