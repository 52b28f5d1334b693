#include "data/filter/fasttext_model.h"

#include <fasttext/fasttext.h>

#include <filesystem>
#include <sstream>

#include "base/error.h"

namespace strata::data {
namespace {

std::string plain_label(const std::string& label) {
  constexpr std::string_view kPrefix = "__label__";
  return label.starts_with(kPrefix) ? label.substr(kPrefix.size()) : label;
}

}  // namespace

struct FasttextModel::State {
  fasttext::FastText model;
};

FasttextModel::FasttextModel(const Path& path) : state_(std::make_unique<State>()) {
  if (!std::filesystem::is_regular_file(path))
    throw ConfigError("[fasttext] there is no model file {}", path.string());
  try {
    state_->model.loadModel(path.string());
    const auto dictionary = state_->model.getDictionary();
    for (int32_t i = 0; i < dictionary->nlabels(); ++i)
      labels_.push_back(plain_label(dictionary->getLabel(i)));
  } catch (const std::exception& error) {
    throw DataError("[fasttext] found {} in {}, expected a fastText model", error.what(), path.string());
  }
  if (labels_.empty()) throw DataError("[fasttext] {} has no labels, expected a classifier", path.string());
}
FasttextModel::~FasttextModel() = default;
FasttextModel::FasttextModel(FasttextModel&&) noexcept = default;
FasttextModel& FasttextModel::operator=(FasttextModel&&) noexcept = default;

std::vector<std::pair<std::string, double>> FasttextModel::predict(const std::string& line) const {
  std::istringstream in(line + "\n");
  std::vector<std::pair<fasttext::real, std::string>> found;
  state_->model.predictLine(in, found, static_cast<int32_t>(labels_.size()), 0);
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [score, label] : found) out.emplace_back(plain_label(label), score);
  return out;
}

}  // namespace strata::data
