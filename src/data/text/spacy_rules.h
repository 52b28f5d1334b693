// How spaCy's blank English tokenizer (3.8) cuts one run of characters without white space: the slow, exact
// rule. Patterns and exceptions are spaCy's (spacy_tables.inc).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace strata::data {

// Compiled patterns and exceptions, one for the process and read only, with what one thread needs to match.
class SpacyRules {
 public:
  SpacyRules();
  ~SpacyRules();
  SpacyRules(SpacyRules&&) noexcept;
  SpacyRules& operator=(SpacyRules&&) noexcept;

  // Sizes in bytes of the consecutive tokens of `run`, which cover it.
  void cut(std::string_view run, std::vector<uint32_t>& sizes);

  // The exceptions that are made of ASCII letters only. All other runs of ASCII letters are one token, and
  // all runs of ASCII digits.
  std::vector<std::string_view> letter_exceptions() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::data
