#include "train/step_news.h"

#include <algorithm>

namespace strata::train {

static_assert(sizeof(StepNews) % sizeof(double) == 0);

StepExchange::StepExchange(const program::Ranks* ranks) : ranks_(ranks), all_(1) {
  if (ranks_ == nullptr) return;
  constexpr auto kBytes = static_cast<int64_t>(sizeof(StepNews));
  all_.resize(static_cast<size_t>(ranks_->all().size()));
  comm::Transfer transfer{.dtype = DType::kF64, .send = {{{.offset = 0, .bytes = kBytes}}}};
  for (size_t i = 0; i < all_.size(); ++i)
    transfer.receive.push_back({{.offset = static_cast<int64_t>(i) * kBytes, .bytes = kBytes}});
  transfer.bytes = static_cast<int64_t>(all_.size()) * kBytes;
  prepared_ = ranks_->all().prepare(
      {.collective = comm::Collective::kExchange, .transfers = {transfer}, .label = "news of a step"});
}

const std::vector<StepNews>& StepExchange::exchange(const StepNews& mine) {
  if (ranks_ == nullptr) {
    all_[0] = mine;
    return all_;
  }
  const comm::Buffers buffers{.send = &mine, .receive = all_.data()};
  ranks_->all().wait(ranks_->all().start(*prepared_, {&buffers, 1}));
  return all_;
}

bool any(const std::vector<StepNews>& all, double StepNews::*flag) {
  return std::any_of(all.begin(), all.end(), [&](const StepNews& one) { return one.*flag != 0; });
}

}  // namespace strata::train
