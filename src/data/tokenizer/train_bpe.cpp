#include "data/tokenizer/train_bpe.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/json_writer.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
TrainedTokenizer train_bpe(TextSource texts, const TrainOptions& options) {
  const auto split = split_preset(options.pattern);
  if (!split) {
    throw ConfigError("[tokenizer] found the pattern '{}', expected one of {}", options.pattern,
                      kSplitPresetNames);
  }
  std::vector<std::string> specials;
  for (const std::string& token : options.special_tokens) {
    if (token.empty()) throw ConfigError("[tokenizer] a special token is empty, expected some text");
    if (!is_valid_utf8(token)) throw ConfigError("[tokenizer] the special token '{}' is not UTF-8", token);
    if (std::find(specials.begin(), specials.end(), token) == specials.end()) specials.push_back(token);
  }
  const auto special = [&](const std::string& token) {
    const auto at = std::find(specials.begin(), specials.end(), token);
    STRATA_CHECK(token.empty() || at != specials.end(), "'{}' is not a special token", token);
    return TokenName{token, token.empty() ? -1 : static_cast<int32_t>(at - specials.begin())};
  };
  const TemplateEnds ends{special(options.begin_of_text), special(options.end_of_text)};
  const int64_t least = 256 + static_cast<int64_t>(specials.size());
  if (options.vocab_size < least || options.vocab_size > (int64_t{1} << 24)) {
    throw ConfigError(
        "[tokenizer] found a vocabulary size of {}, expected {} (all bytes and {} special tokens) to {}",
        options.vocab_size, least, specials.size(), int64_t{1} << 24);
  }
  CorpusCounts corpus = count_words(texts, *split, options.check);
  if (corpus.bytes == 0)
    throw DataError("[tokenizer] the training text is empty; give files with text in them");
  const size_t distinct_pieces = corpus.words.size();
  const BpeVocabulary vocabulary = learn_merges(std::move(corpus.words), options.vocab_size,
                                                options.min_frequency, specials, options.check);
  std::vector<TokenName> tokens;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    tokens.push_back({vocabulary.tokens[id], static_cast<int32_t>(id)});
  }
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  for (const auto& [left, right] : vocabulary.merges) {
    merges.emplace_back(vocabulary.tokens[static_cast<size_t>(left)],
                        vocabulary.tokens[static_cast<size_t>(right)]);
  }
  return {.json = write_byte_level_json(tokens, merges, specials.size(), *split, false, ends),
          .vocab_size = static_cast<int64_t>(vocabulary.tokens.size()),
          .merges = static_cast<int64_t>(vocabulary.merges.size()),
          .distinct_pieces = static_cast<int64_t>(distinct_pieces),
          .bytes = corpus.bytes};
}

}  // namespace strata::data
