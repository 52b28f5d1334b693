// Which windows of its token files a run saw: losses of a model that does not move tell them apart.
#pragma once

#include "contracts/lab.h"

namespace strata::contracts {

class Windows {
 public:
  static constexpr int64_t kLength = 16;

  // Files NAME.bin of so many windows each, and one token more.
  Windows(Lab& lab, const std::vector<std::pair<std::string, int64_t>>& files);

  // The mean loss of these tokens, each from those before it in its text: by `strata eval`.
  double loss(const std::vector<uint16_t>& ids) const;
  std::vector<uint16_t> ids(const std::string& file, int64_t window) const;  // kLength + 1
  // Sets of a run that does not move, of one window a step in file order; later sets win.
  Sets sets() const;
  // "a0", "b3": what each step saw.
  std::vector<std::string> seen(const Sets& sets, const std::string& more = "");
  std::string name_of(double loss) const;

 private:
  Lab& lab_;
  std::map<std::string, std::vector<uint16_t>> files_;
  std::map<std::string, double> losses_;
  Path model_;
};

}  // namespace strata::contracts
