#include "data/text/text_view.h"

#include <array>

#include "base/error.h"
#include "data/text/characters.h"
#include "data/text/lines.h"
#include "data/text/spacy_words.h"

namespace strata::data {
namespace {

// A list that is made when it is first asked for.
template <typename T>
struct Lazy {
  std::vector<T> items;
  bool made = false;

  template <typename Make>
  std::span<const T> get(const Make& make) {
    if (!made) {
      items.clear();
      make(items);
      made = true;
    }
    return items;
  }
};

}  // namespace

struct TextView::State {
  std::string text;
  std::string simplified;
  bool has_simplified = false;
  int64_t code_points = -1;
  std::array<Lazy<Word>, 2> words, simplified_words;
  Lazy<std::string_view> split_lines, python_lines;
  WordSplitter splitter;
  Simplifier simplifier;
  std::unique_ptr<SpacyWords> spacy;  // its tables are made when they are first asked for
  std::vector<Word> other_words;
  std::vector<std::pair<const char*, std::shared_ptr<void>>> scratch;

  void forget() {
    has_simplified = false;
    code_points = -1;
    for (auto* list : {&words, &simplified_words}) {
      for (auto& of_rule : *list) of_rule.made = false;
    }
    split_lines.made = python_lines.made = false;
  }

  void split(std::string_view of, WordRule rule, std::vector<Word>& out) {
    if (rule == WordRule::kWhitespace) return splitter.split(of, out);
    if (!spacy) spacy = std::make_unique<SpacyWords>();
    spacy->split(of, out);
  }
};

TextView::TextView() : state_(std::make_unique<State>()) {}
TextView::~TextView() = default;
TextView::TextView(TextView&&) noexcept = default;
TextView& TextView::operator=(TextView&&) noexcept = default;

void TextView::reset(std::string& text) {
  STRATA_CHECK(text.size() < uint64_t{1} << 32, "a document of {} bytes", text.size());
  state_->text.swap(text);
  state_->forget();
}

void TextView::replace(std::string& text) {
  reset(text);
}

void TextView::release(std::string& text) {
  state_->text.swap(text);
  state_->forget();
}

std::string_view TextView::bytes() const {
  return state_->text;
}

int64_t TextView::code_points() {
  if (state_->code_points < 0) state_->code_points = count_code_points(state_->text);
  return state_->code_points;
}

std::span<const Word> TextView::words(WordRule rule) {
  return state_->words[static_cast<size_t>(rule)].get(
      [&](std::vector<Word>& out) { state_->split(state_->text, rule, out); });
}

std::span<const std::string_view> TextView::split_lines() {
  return state_->split_lines.get([&](auto& out) { split_newlines(state_->text, out); });
}

std::span<const std::string_view> TextView::python_lines() {
  return state_->python_lines.get([&](auto& out) { data::split_lines(state_->text, out); });
}

std::string_view TextView::simplified() {
  if (!state_->has_simplified) {
    state_->simplifier.simplify(state_->text, state_->simplified);
    state_->has_simplified = true;
  }
  return state_->simplified;
}

std::span<const Word> TextView::simplified_words(WordRule rule) {
  const std::string_view text = simplified();
  return state_->simplified_words[static_cast<size_t>(rule)].get(
      [&](std::vector<Word>& out) { state_->split(text, rule, out); });
}

int64_t TextView::count_sentences(std::string_view text, int64_t limit) {
  if (!state_->spacy) state_->spacy = std::make_unique<SpacyWords>();
  return state_->spacy->count_sentences(text, limit, state_->other_words);
}

void TextView::split_sentences(std::vector<std::string_view>& sentences) {
  sentences.clear();
  data::split_sentences(state_->text, words(WordRule::kSpacy), sentences);
}

std::shared_ptr<void>& TextView::scratch_of(const char* type) {
  for (auto& [known, object] : state_->scratch) {
    if (known == type) return object;
  }
  return state_->scratch.emplace_back(type, nullptr).second;
}

}  // namespace strata::data
