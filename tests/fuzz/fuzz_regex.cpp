// Any expression, a NUL and any text: Oniguruma accepts every expression that Strata's engine accepts, and
// both find the same matches.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "data/tokenizer/oniguruma.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::data;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view pattern = input.substr(0, input.find('\0'));
  const std::string_view text = input.substr(std::min(input.size(), pattern.size() + 1));
  std::vector<Match> pieces;
  try {
    find_matches(Regex(pattern), text, pieces);
  } catch (const strata::DataError&) {
    return 0;
  }
  const auto expected = oniguruma_matches(pattern, text);
  std::vector<Piece> found;
  for (const Match& piece : pieces) {
    if (piece.is_match) found.push_back(piece.at);
  }
  const auto same = [](const Piece& a, const Piece& b) { return a.begin == b.begin && a.end == b.end; };
  if (!expected || !std::equal(found.begin(), found.end(), expected->begin(), expected->end(), same)) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(pattern.size()), pattern.data());
    std::abort();
  }
  return 0;
}
