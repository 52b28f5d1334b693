// Divides a collective into slices, and assigns the work of each slice to members.
//
// Every range of bytes has an owner: the member whose shard it is (reduce-scatter, all-gather), that sums it
// (all-reduce) or that sends it (broadcast). A slice is one range of each owner. It has four phases:
//   gather   in each fast domain, members send their addends of a range to one of them, which sums them
//   reduce   the domains' sums are sent to the range's owner, which adds them in the order of the domains
//   return   the owner sends the result to one member of each other domain
//   spread   each of these, and the owner, sends it to the other members of its domain
// Reduce-scatter needs the first two phases, data without sums the last two. With one domain, the second and
// third have no messages. An exchange in which a member sends different bytes to different members is not
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

// The domains of a group, from the point of view of one member.
class DomainMap {
 public:
  DomainMap(const Domains& domains, int member);
  int count() const { return static_cast<int>(members_.size()); }
  int own() const { return domain_of(member_); }
  int domain_of(int member) const { return domain_of_[static_cast<size_t>(member)]; }
  const std::vector<int>& members(int domain) const { return members_[static_cast<size_t>(domain)]; }
  // The member of a domain that handles an owner's range: the owner itself in its own domain; in others, the
  // member at the owner's place in its domain, modulo the domain's size.
  int helper(int domain, int owner) const;

 private:
  int member_;
  std::vector<std::vector<int>> members_;
  std::vector<int> domain_of_, place_;
};

class Slices {
 public:
  // `staging`: approximate limit of staged bytes per slice; `limit`: bytes per message.
  Slices(const Plan& plan, const DomainMap& domains, int64_t staging, int64_t limit);

  bool pairwise() const { return pairwise_; }
  bool reduces() const { return reduces_; }
  bool spreads() const { return spreads_; }
  int64_t count() const { return count_; }
  // The most bytes of an owner's range in a slice, or of a message between a pair.
  int64_t chunk() const { return chunk_; }
  // The most bytes that a slice, or a pairwise exchange, stages.
  int64_t staging() const { return staging_; }
  const std::vector<int>& owners() const { return owners_; }
  Range range(int64_t slice, int owner) const;
  // The data for an owner in the send buffer, and the place of its result.
  const WireView& sent(int owner) const { return sent_[sent_.size() == 1 ? 0 : static_cast<size_t>(owner)]; }
  const WireView& received(int owner) const {
    return received_[received_.size() == 1 ? 0 : static_cast<size_t>(owner)];
  }

 private:
  bool pairwise_ = false, reduces_ = false, spreads_ = false, shared_ = false;
  int size_;
  int64_t count_ = 0, chunk_ = 0, staging_ = 0;
  std::vector<int> owners_;
  std::vector<WireView> sent_, received_;
};

// Messages of a pairwise exchange in flight at the same time, in each direction.
inline constexpr int kPairWindow = 4;

}  // namespace strata::comm
