#include "parallel/stage_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace strata::parallel {
namespace {

constexpr size_t kMostLetters = 1 << 16;  // of an expanded string

// A letter of the expanded string, and its position in the original.
struct Letter {
  char letter;
  size_t at;
};

class LayoutReader {
 public:
  LayoutReader(std::string_view text, const Words& words) : text_(text), words_(words) {}

  std::vector<Letter> read() {
    while (next()) {
      if (text_[at_] == '(') {
        read_group();
      } else {
        read_letter();
      }
    }
    return std::move(letters_);
  }

  [[noreturn]] void fail(size_t at, const std::string& problem) const {
    throw ConfigError(
        "[{}] \"{}\", character {}: {}; expected letters E, t, m, L and |, such as Et|(tt|)*30mL",
        words_.stage_layers, text_, at + 1, problem);
  }

 private:
  // Skips separators. Returns whether anything is left, at at_.
  bool next() {
    while (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ' ')) ++at_;
    return at_ < text_.size();
  }

  void read_group() {
    const size_t begin = letters_.size(), opens = at_++;
    while (next() && text_[at_] != ')') {
      if (text_[at_] == '(') fail(at_, "a group within a group");
      read_letter();
    }
    if (!next()) fail(opens, "no ) closes this (");
    ++at_;
    if (!next() || text_[at_] != '*') fail(at_ - 1, "no *n after the )");
    repeat(begin);
  }

  void read_letter() {
    constexpr std::string_view kLetters = "EtmL|";
    const char letter = text_[at_];
    if (kLetters.find(letter) == std::string_view::npos) fail(at_, fmt::format("found '{}'", letter));
    add({letter, at_++});
    if (next() && text_[at_] == '*') repeat(letters_.size() - 1);
  }

  void add(Letter letter) {
    if (letters_.size() == kMostLetters) fail(at_, fmt::format("more than {} parts", kMostLetters));
    letters_.push_back(letter);
  }

  // Repeats the letters from `begin` on, n times in total.
  void repeat(size_t begin) {
    const size_t star = at_++;
    next();
    const size_t digits = at_;
    size_t count = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      count = std::min(kMostLetters + 1, 10 * count + static_cast<size_t>(text_[at_] - '0'));
    if (at_ == digits || count == 0) fail(star, "no positive number after the *");
    const size_t end = letters_.size();
    for (size_t n = 1; n < count && end > begin; ++n) {
      for (size_t i = begin; i < end; ++i) add(letters_[i]);
    }
  }

  std::string_view text_;
  const Words& words_;
  size_t at_ = 0;
  std::vector<Letter> letters_;
};

void check_stages(size_t found, int32_t stages, const char* what, const Words& words) {
  if (std::cmp_equal(found, stages)) return;
  throw ConfigError("[{}] found {} {}, expected {}: pipeline ranks x stages per rank", words.stage_layers,
                    found, what, stages);
}

}  // namespace

StageLayout layout_of_list(std::span<const int64_t> layers, const ModelParts& model, int32_t stages,
                           const Words& words) {
  check_stages(layers.size(), stages, "numbers", words);
  StageLayout layout(layers.size());
  int64_t first = 0;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    if (layers[stage] < 0 || layers[stage] > model.layers)
      throw ConfigError("[{}] stage {}: found {} layers, but the model has {}", words.stage_layers, stage,
                        layers[stage], model.layers);
    layout[stage].first_layer = static_cast<int32_t>(std::min<int64_t>(first, model.layers));
    layout[stage].layers = static_cast<int32_t>(layers[stage]);
    first += layers[stage];
  }
  if (first != model.layers) {
    throw ConfigError("[{}] found {} layers in total, but the model has {}. {} {}", words.stage_layers, first,
                      model.layers, first < model.layers ? "Add" : "Remove", std::abs(first - model.layers));
  }
  layout.front().has_embedding = true;
  layout.back().has_head = true;
  layout.back().prediction_layers = model.prediction_layers;
  return layout;
}

StageLayout parse_layout(std::string_view text, const ModelParts& model, int32_t stages, const Words& words) {
  LayoutReader reader(text, words);
  const std::vector<Letter> letters = reader.read();
  StageLayout layout(1);
  int32_t layers = 0, prediction_layers = 0;
  bool has_embedding = false, has_head = false;
  for (const Letter& each : letters) {
    if (has_head) reader.fail(each.at, fmt::format("found {} after L, which must be last", each.letter));
    if (each.letter == '|') {
      layout.push_back({.first_layer = layers});
      continue;
    }
    if (!has_embedding && (each.letter != 'E' || layout.size() > 1))
      reader.fail(each.at, "the first stage does not begin with E");
    StageParts& stage = layout.back();
    switch (each.letter) {
      case 'E':
        if (has_embedding) reader.fail(each.at, "a second E");
        has_embedding = stage.has_embedding = true;
        break;
      case 't':
        if (prediction_layers > 0) reader.fail(each.at, "found t after m");
        ++stage.layers;
        ++layers;
        break;
      case 'm':
        ++stage.prediction_layers;
        ++prediction_layers;
        break;
      default:
        has_head = stage.has_head = true;
    }
  }
  if (!has_head) reader.fail(text.size(), "no L at the end");
  check_stages(layout.size(), stages, "stages", words);
  if (layers != model.layers || prediction_layers != model.prediction_layers) {
    throw ConfigError(
        "[{}] \"{}\": found {} t and {} m, but the model has {} layers and {} prediction layers",
        words.stage_layers, text, layers, prediction_layers, model.layers, model.prediction_layers);
  }
  return layout;
}

std::string layout_text(const StageLayout& layout) {
  std::string text;
  for (const StageParts& stage : layout) {
    if (!text.empty()) text += '|';
    if (stage.has_embedding) text += 'E';
    text.append(static_cast<size_t>(stage.layers), 't');
    text.append(static_cast<size_t>(stage.prediction_layers), 'm');
    if (stage.has_head) text += 'L';
  }
  return text;
}

SharedTables shared_tables(const StageLayout& layout, const ModelParts& model) {
  SharedTables tables;
  for (size_t s = 0; s < layout.size(); ++s) {
    const StageParts& stage = layout[s];
    const auto number = static_cast<int32_t>(s);
    const int32_t first_of_decoder = model.encoder_layers;
    const bool starts_decoder = model.encoder_layers > 0 && stage.first_layer <= first_of_decoder &&
                                first_of_decoder < stage.first_layer + stage.layers;
    const bool predicts = stage.prediction_layers > 0;
    if (stage.has_embedding || starts_decoder || predicts) tables.embedding.push_back(number);
    if (stage.has_head || predicts) tables.head.push_back(number);
  }
  if (model.tied_embeddings) {
    std::vector<int32_t> both;
    std::set_union(tables.embedding.begin(), tables.embedding.end(), tables.head.begin(), tables.head.end(),
                   std::back_inserter(both));
    tables = {both, both};
  }
  return tables;
}

Boundary boundary_after(const StageLayout& layout, const ModelParts& model, int32_t stage) {
  const StageParts& before = layout[static_cast<size_t>(stage)];
  const int32_t done = before.first_layer + before.layers;
  if (model.encoder_layers == 0 || done < model.encoder_layers || done == model.layers) return {};
  return {.hidden = done > model.encoder_layers, .encoder_output = true};
}

}  // namespace strata::parallel
