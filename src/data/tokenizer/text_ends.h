// The tokens that begin and end a text, as a model's files declare them, not as a vocabulary happens to hold
// them.
// Training, evaluation, tasks, samples, objectives and exports all take them from here (Tokenizer::ends).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace strata::data {

class Tokenizer;

struct TextEnds {
  std::vector<int32_t> begin = {};  // before a text; empty: nothing declares any
  std::optional<int32_t> end = {};  // after a text, between documents
  std::string begin_from = {};      // what declares them, for people: "tokenizer_config.json", …
  std::string end_from = {};
  bool end_is_guess = true;         // `end` is known only by a usual name, or not at all
  bool begin_of_tokenizer = false;  // `begin` is declared by the tokenizer's own files, not by config.json
  bool adds_begin = false;  // a prompt begins with `begin` though the template adds nothing (add_bos_token)
  std::vector<std::string> notes = {};  // where the files disagree, a sentence each

  // One token begins and ends texts.
  bool same_token() const { return end && begin.size() == 1 && begin.front() == *end; }
};

// By the first of these that names a token of the tokenizer:
//   the end    tokenizer_config.json and special_tokens_map.json (eos_token), config.json and
//              generation_config.json (eos_token_id; of a list the first), the template of
//              tokenizer.json, sep_token, usual names
//   the begin  the template of tokenizer.json (of a tekken or SentencePiece file its begin-of-text token),
//              tokenizer_config.json and special_tokens_map.json (bos_token; null: none), config.json and
//              generation_config.json (bos_token_id), cls_token
// Ids of config.json count if the tokenizer has added tokens of these ids: others are some family's defaults.
// `folder`: where these files are; empty: of the tokenizer only.
TextEnds declared_ends(const Tokenizer& tokenizer, const Path& folder);

// All ids by which generation_config.json of a folder ends a text; empty where it names none. DataError for a
// file that is not JSON.
std::vector<int64_t> generation_ends(const Path& folder);

// What a template adds to a text and documents lack, as a sentence for people; empty: nothing. `table`: where
// add_bos and add_eos are set, "tokenizer" for example.
std::string template_difference(const Tokenizer& tokenizer, bool add_bos, bool add_eos,
                                std::string_view table);

}  // namespace strata::data
