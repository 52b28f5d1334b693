// Finds personal data in a text and replaces it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

struct Found {
  size_t begin = 0, end = 0;
};

// E-mail addresses by datatrove's pattern. Safe to use from several threads.
class EmailPattern {
 public:
  EmailPattern();
  ~EmailPattern();
  EmailPattern(const EmailPattern&) = delete;
  EmailPattern& operator=(const EmailPattern&) = delete;
  // Leftmost first, without overlap.
  void find(std::string_view text, std::vector<Found>& out) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

// IPv4 addresses by datatrove's pattern: no border of a word is asked for.
void find_ipv4(std::string_view text, std::vector<Found>& out);

// Whether Python's ipaddress takes the text, and (public_only) finds it global.
bool is_masked_ipv4(std::string_view address, bool public_only);

// US telephone numbers by dolma's pattern, without the white space before them, and not if "isbn", "doi" or
// "#" is within 100 bytes.
void find_phones(std::string_view text, std::vector<Found>& out);

}  // namespace strata::data
