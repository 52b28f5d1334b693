#include "comm/slices.h"

#include <algorithm>
#include <numeric>

namespace strata::comm {
namespace {

int64_t whole_lines(int64_t bytes) {
  return std::max<int64_t>(64, bytes / 64 * 64);
}

}  // namespace

DomainMap::DomainMap(const Domains& domains, int member)
    : member_(member), domain_of_(domains.members.size()), place_(domains.members.size()) {
  int begin = 0;
  for (const int end : domains.ends) {
    std::vector<int>& inside = members_.emplace_back();
    for (int i = begin; i < end; ++i) {
      const int one = domains.members[static_cast<size_t>(i)];
      domain_of_[static_cast<size_t>(one)] = static_cast<int>(members_.size()) - 1;
      place_[static_cast<size_t>(one)] = i - begin;
      inside.push_back(one);
    }
    begin = end;
  }
}

int DomainMap::helper(int domain, int owner) const {
  if (domain_of(owner) == domain) return owner;
  const std::vector<int>& inside = members(domain);
  return inside[static_cast<size_t>(place_[static_cast<size_t>(owner)]) % inside.size()];
}

Slices::Slices(const Plan& plan, const DomainMap& domains, int64_t staging, int64_t limit)
    : size_(plan.size) {
  using Side = WireView::Side;
  const bool exchange = plan.collective == Collective::kExchange;
  bool alike = true;  // all members receive the same data
  for (const TransferPlan& transfer : plan.transfers) alike = alike && transfer.send.size() == 1;
  pairwise_ = exchange && (domains.count() == 1 || !alike);
  reduces_ = plan.sums();
  spreads_ = !pairwise_ && plan.collective != Collective::kReduceScatter;
  shared_ = plan.collective == Collective::kAllReduce;

  const int sends = shared_ || plan.collective == Collective::kBroadcast || (exchange && alike) ? 1 : size_;
  for (int member = 0; member < sends; ++member) sent_.emplace_back(plan, Side::kSend, member);
  for (int member = 0; member < (exchange ? size_ : 1); ++member) {
    received_.emplace_back(plan, Side::kReceive, member);
  }
  if (plan.collective == Collective::kBroadcast) {
    owners_ = {plan.root};
  } else {
    owners_.resize(static_cast<size_t>(size_));
    std::iota(owners_.begin(), owners_.end(), 0);
  }
  if (pairwise_) {
    chunk_ = std::min(limit, whole_lines(staging / (2 * kPairWindow)));
    if (size_ > 1) staging_ = 2 * kPairWindow * chunk_;
    count_ = 1;
    return;
  }
  // The most ranges that this member has staged at the same time: packed data to send or forward, addends
  // from its domain, and sums.
  int64_t helped = 0, largest = 0, total = 0;
  for (const int owner : owners_) helped += domains.helper(domains.own(), owner) == plan.rank ? 1 : 0;
  const auto all = static_cast<int64_t>(owners_.size());
  const int64_t held =
      2 * all + helped * std::ssize(domains.members(domains.own())) + helped + domains.count() + 1;
  // All members must use the same chunk size, so it is derived from the largest number of ranges on any
  // member.
  const int64_t most = 2 * all + all * size_ / domains.count() + all + domains.count() + 1;
  chunk_ = std::min(limit, whole_lines(staging / most));
  staging_ = held * chunk_;
  for (const int owner : owners_) {
    const int64_t bytes = reduces_ ? sent(owner).bytes() : received(owner).bytes();
    largest = std::max(largest, bytes);
    total = bytes;
  }
  const int64_t each = shared_ ? chunk_ * size_ : chunk_;
  count_ = ((shared_ ? total : largest) + each - 1) / each;
}

Range Slices::range(int64_t slice, int owner) const {
  const int64_t bytes = reduces_ ? sent(owner).bytes() : received(owner).bytes();
  if (!shared_) return {std::min(bytes, slice * chunk_), std::min(bytes, (slice + 1) * chunk_)};
  // The last slice is also divided evenly, in whole cache lines.
  const int64_t begin = slice * chunk_ * size_;
  const int64_t lines = (std::min(bytes - begin, chunk_ * size_) + 63) / 64;
  const auto edge = [&](int64_t i) { return begin + lines * i / size_ * 64; };
  return {edge(owner), edge(owner + 1)};
}

}  // namespace strata::comm
