// A fastText classifier from a file of the user's.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"

namespace strata::data {

class FasttextModel {
 public:
  // ConfigError if the file is missing, DataError if it is not a model. Reads quantised models too.
  explicit FasttextModel(const Path& path);
  ~FasttextModel();
  FasttextModel(FasttextModel&&) noexcept;
  FasttextModel& operator=(FasttextModel&&) noexcept;

  const std::vector<std::string>& labels() const { return labels_; }  // without "__label__"
  // Every label with its probability, largest first, as fastText's predict(k=-1) returns them. `line` holds
  // no newline. Safe from several threads.
  std::vector<std::pair<std::string, double>> predict(const std::string& line) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<std::string> labels_;
};

}  // namespace strata::data
