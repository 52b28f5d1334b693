#include "train/rank_report.h"

#include <algorithm>

namespace strata::training {

static_assert(sizeof(RankReport) % sizeof(double) == 0);

StepExchange::StepExchange(comm::Communicator& ranks)
    : ranks_(ranks), all_(static_cast<size_t>(ranks.size())) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(RankReport));
  comm::Transfer transfer{.dtype = DType::kF64, .send = {{{.offset = 0, .bytes = kBytes}}}};
  for (size_t i = 0; i < all_.size(); ++i)
    transfer.receive.push_back({{.offset = static_cast<int64_t>(i) * kBytes, .bytes = kBytes}});
  transfer.bytes = static_cast<int64_t>(all_.size()) * kBytes;
  prepared_ = ranks_.prepare(
      {.collective = comm::Collective::kExchange, .transfers = {transfer}, .label = "step report"});
}

const std::vector<RankReport>& StepExchange::exchange(const RankReport& mine) {
  const comm::Buffers buffers{.send = &mine, .receive = all_.data()};
  ranks_.wait(ranks_.start(*prepared_, {&buffers, 1}));
  return all_;
}

bool any(const std::vector<RankReport>& all, double RankReport::*flag) {
  return std::any_of(all.begin(), all.end(), [&](const RankReport& report) { return report.*flag != 0; });
}

}  // namespace strata::training
