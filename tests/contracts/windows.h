// Finds which windows of its token files a run trained on, by their losses under constant weights.
#pragma once

#include "contracts/lab.h"

namespace strata::contracts {

class Windows {
 public:
  static constexpr int64_t kLength = 16;

  // Writes files NAME.bin, each with the given number of windows plus one token.
  Windows(Lab& lab, const std::vector<std::pair<std::string, int64_t>>& files);

  // The mean loss of these tokens according to `strata eval`.
  double loss(const std::vector<uint16_t>& ids) const;
  std::vector<uint16_t> ids(const std::string& file, int64_t window) const;  // kLength + 1
  // Sets for a run with constant weights and one window per step in file order; later sets override.
  Sets sets() const;
  // The window of each step: "a0", "b3".
  std::vector<std::string> seen(const Sets& sets, const std::string& more = "");
  std::string name_of(double loss) const;

 private:
  Lab& lab_;
  std::map<std::string, std::vector<uint16_t>> files_;
  std::map<std::string, double> losses_;
  Path model_;
};

}  // namespace strata::contracts
