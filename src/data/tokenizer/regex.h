// Regular expressions of tokenizer files, with the syntax and meaning of the Oniguruma library that Hugging
// Face tokenizers uses, on this module's Unicode tables. A backtracking matcher: leftmost, first alternative
// first. Unknown constructs are refused by name (DataError), never reinterpreted.
//
// Known: literals, '.', classes with ranges, nested classes and &&, \p{…} \P{…} \s \S \w \W \d \D \h \H,
// \t \n \r \f \v \a \e \xHH \x{H…} \uHHHH, groups ((?:…), (…), (?>…), (?i:…), (?i)), look-ahead and
// look-behind of one character's width, alternation, greedy, lazy and possessive repeats, ^ $ \A \z \Z.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace strata::data {

class Regex {
 public:
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // How many steps all searches of one text may take together: what a part of a second takes, and for each
  // byte more than any search in one pass needs.
  struct Budget {
    explicit Budget(std::string_view text) : steps(20'000'000 + 1024 * uint64_t{text.size()}) {}
    uint64_t steps;
  };

  // The first match that starts at or after `from`. DataError where the text's budget is used up: the
  // searches go back so often that they would seem to hang.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end, Budget& budget) const;
  const std::string& pattern() const { return pattern_; }

 private:
  struct Program;
  std::string pattern_;
  std::unique_ptr<const Program> program_;
};

}  // namespace strata::data
