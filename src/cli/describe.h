// The command tree as data, for completions and manual pages.
#pragma once

#include <string>
#include <vector>

namespace strata::cli {

struct OptionText {
  std::vector<std::string> names;  // "--set", "-h"; a positional: only its name
  std::string value;               // "KEY=VALUE"; empty: a flag
  std::string help;
  bool positional = false;
  std::vector<std::string> choices = {};  // what shells offer as its value
};

struct VerbText {
  std::string path;  // "", "config", "config show"
  std::string help;
  std::string example;
  std::vector<OptionText> options;
  std::vector<std::string> verbs;  // names of the verbs below
};

// The root first, each verb before those below it.
std::vector<VerbText> describe_commands();

std::string bash_completion(const std::vector<VerbText>& verbs);
std::string zsh_completion(const std::vector<VerbText>& verbs);
std::string fish_completion(const std::vector<VerbText>& verbs);
// A page for section 1: of the root ("strata") or of one verb with all below it ("strata-config").
std::string manual_page(const std::vector<VerbText>& verbs, const std::string& verb);

}  // namespace strata::cli
