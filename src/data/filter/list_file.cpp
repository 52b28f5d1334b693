#include "data/filter/list_file.h"

#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "data/text/characters.h"

namespace strata::data {

Path recipe_path(const StageParameters& parameters, const std::string& path) {
  return parameters.folder() / path;  // an absolute path is unchanged
}

std::vector<std::string> list_entries(const StageParameters& parameters, const std::string& name,
                                      const std::string& file_name) {
  std::vector<std::string> out = parameters.get<std::vector<std::string>>(name);
  const auto& file = parameters.get<std::string>(file_name);
  if (file.empty()) return out;
  const std::string content = read_file(recipe_path(parameters, file));
  std::string_view rest = content;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = strip(rest.substr(0, end));
    if (!line.empty() && line.front() != '#') out.emplace_back(line);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return out;
}

std::vector<std::pair<std::string, double>> labelled_numbers(std::string_view kind, const std::string& name,
                                                             const std::vector<std::string>& entries) {
  std::vector<std::pair<std::string, double>> out;
  for (const std::string& entry : entries) {
    const size_t colon = entry.rfind(':');
    double value = 0;
    const char* end = entry.data() + entry.size();
    if (colon == std::string::npos || colon == 0 ||
        std::from_chars(entry.data() + colon + 1, end, value).ptr != end || colon + 1 == entry.size()) {
      throw ConfigError("[{}] {}: found \"{}\", expected \"LABEL:SCORE\"", kind, name, entry);
    }
    out.emplace_back(entry.substr(0, colon), value);
  }
  return out;
}

}  // namespace strata::data
