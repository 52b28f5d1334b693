// How a collective is cut into slices, and who does what for a slice.
//
// Every range of bytes has an owner: a member whose shard it is (reduce-scatter, all-gather), that sums it
// (all-reduce) or that sends it (broadcast). A slice is a range of each owner, and passes four phases:
//   gather   in each fast domain, the members' parts of a range go to one of them, which sums it
//   reduce   the sums of domains go to the range's owner, which adds them in the domains' order
//   return   the result goes to one member of each other domain
//   spread   which sends it to the others of its domain, as the owner does in its own
// Sums that stay at their owners need the first two, data without sums the last two. In one domain the
// second and third have no messages. An exchange in which members send each other different bytes is not
// sliced: each pair has separate messages.
#pragma once

#include <vector>

#include "comm/plan.h"
#include "comm/wire_view.h"

namespace strata::comm {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t bytes() const { return end - begin; }
};

// The domains of a group, seen from one member.
class DomainMap {
 public:
  DomainMap(const Domains& domains, int member);
  int count() const { return static_cast<int>(members_.size()); }
  int own() const { return domain_of(member_); }
  int domain_of(int member) const { return domain_of_[static_cast<size_t>(member)]; }
  const std::vector<int>& members(int domain) const { return members_[static_cast<size_t>(domain)]; }
  // Who acts in a domain for an owner's range: the owner in its own, in others a member by the owner's place
  // in its own.
  int helper(int domain, int owner) const;

 private:
  int member_;
  std::vector<std::vector<int>> members_;
  std::vector<int> domain_of_, place_;
};

class Slices {
 public:
  // `staging`: bytes that a slice may stage, roughly; `limit`: of one message.
  Slices(const Plan& plan, const DomainMap& domains, int64_t staging, int64_t limit);

  bool pairwise() const { return pairwise_; }
  bool reduces() const { return reduces_; }
  bool spreads() const { return spreads_; }
  int64_t count() const { return count_; }
  int64_t piece() const { return piece_; }      // of an owner's range in a slice; of a message between a pair
  int64_t staging() const { return staging_; }  // bytes that a slice, or a pairwise exchange, stages at most
  const std::vector<int>& owners() const { return owners_; }
  Range range(int64_t slice, int owner) const;
  // The send buffer's data for an owner, and the place of its result.
  const WireView& sent(int owner) const { return sent_[sent_.size() == 1 ? 0 : static_cast<size_t>(owner)]; }
  const WireView& received(int owner) const {
    return received_[received_.size() == 1 ? 0 : static_cast<size_t>(owner)];
  }

 private:
  bool pairwise_ = false, reduces_ = false, spreads_ = false, shared_ = false;
  int size_;
  int64_t count_ = 0, piece_ = 0, staging_ = 0;
  std::vector<int> owners_;
  std::vector<WireView> sent_, received_;
};

// Messages of a pairwise exchange that are in flight at a time, each way.
inline constexpr int kPairWindow = 4;

}  // namespace strata::comm
