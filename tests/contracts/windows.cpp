#include "contracts/windows.h"

#include <cmath>

namespace strata::contracts {
namespace {

// With the usual initial weights the losses of all windows would be nearly equal.
const char* const kFarApart = "model.init_std=0.2";

}  // namespace

Windows::Windows(Lab& lab, const std::vector<std::pair<std::string, int64_t>>& files) : lab_(lab) {
  uint64_t seed = 100;
  for (const auto& [name, windows] : files) {
    files_[name] = training::tiny_tokens(windows * kLength + 1, ++seed);
    training::put_tokens(lab.path(name + ".bin"), files_[name]);
  }
  model_ = lab.run(kStill + Sets{kFarApart, "training.steps=1"}).checkpoint(1);
  for (const auto& [name, windows] : files) {
    for (int64_t i = 0; i < windows; ++i) losses_[name + std::to_string(i)] = loss(ids(name, i));
  }
}

double Windows::loss(const std::vector<uint16_t>& ids) const {
  training::put_tokens(lab_.path("window.bin"), ids);
  const Outcome found = strata(
      lab_.path("eval"), {"eval", "--model", model_.string(), "--tokens", lab_.path("window.bin").string(),
                          "--sequence-length", std::to_string(ids.size() - 1), "--set", "device.threads=1",
                          "--set", "precision.compute=\"fp32\"", "--json"});
  const json result = found.parsed();
  EXPECT_EQ(result["tokens"], ids.size() - 1);
  return result["loss"];
}

std::vector<uint16_t> Windows::ids(const std::string& file, int64_t window) const {
  const auto begin = files_.at(file).begin() + window * kLength;
  return {begin, begin + kLength + 1};
}

Sets Windows::sets() const {
  return kStill + Sets{kFarApart,
                       "data.shuffle=false",
                       "data.pack=\"stream\"",
                       "training.global_batch_size=1",
                       "training.micro_batch_size=1",
                       "checkpoint.interval=\"99 steps\""};
}

std::string Windows::name_of(double loss) const {
  std::string found = "none";
  for (const auto& [name, value] : losses_) {
    if (std::abs(value - loss) < 1e-4) found = found == "none" ? name : "several";
  }
  return found;
}

std::vector<std::string> Windows::seen(const Sets& sets, const std::string& more) {
  std::vector<std::string> out;
  for (const double loss : lab_.run(this->sets() + sets, more).values("loss")) out.push_back(name_of(loss));
  return out;
}

}  // namespace strata::contracts
