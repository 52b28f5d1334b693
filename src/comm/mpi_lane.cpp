#include "comm/mpi_lane.h"

#include <algorithm>

#include "base/error.h"

namespace strata::comm {

MpiLane::MpiLane(MpiCalls& calls, const std::vector<int>& ranks, const DomainMap& domains, int member,
                 int tag)
    : calls_(calls), ranks_(ranks), domains_(domains), member_(member), tag_(tag) {
  addends_.resize(ranks.size());
  sums_.resize(ranks.size());
  results_.resize(ranks.size());
}

void MpiLane::begin(MpiWork& work, int64_t slice) {
  work_ = &work;
  slice_ = slice;
  used_ = 0;
  if (slices().pairwise()) {
    sends_ = receives_ = {};
    copy_own();
    return;
  }
  if (std::ssize(staging_) < slices().staging()) staging_.resize(static_cast<size_t>(slices().staging()));
  phase_ = kGather;
  post();
}

bool MpiLane::advance() {
  if (work_ == nullptr) return false;
  if (slices().pairwise()) return advance_pairs();
  bool moved = false;
  for (;;) {
    while (!requests_.empty() && calls_.done(requests_.back())) {
      requests_.pop_back();
      moved = true;
    }
    if (!requests_.empty()) return moved;
    finish();
    moved = true;
    if (++phase_ == kPhases) break;
    post();
  }
  --work_->remaining;
  work_ = nullptr;
  return true;
}

void MpiLane::cancel() {
  for (MpiRequest& request : requests_) calls_.cancel(request);
  for (Pairs* pairs : {&sends_, &receives_}) {
    for (Pairs::Open& open : pairs->window) {
      if (open.busy) calls_.cancel(open.request);
    }
  }
  requests_.clear();
  work_ = nullptr;
}

std::byte* MpiLane::stage(int64_t bytes) {
  STRATA_CHECK(used_ + bytes <= std::ssize(staging_), "[{}] stages more than {} bytes",
               work_->shape->plan.label, staging_.size());
  std::byte* at = staging_.data() + used_;
  used_ += bytes;
  return at;
}

void MpiLane::send(const std::byte* from, int64_t bytes, int to) {
  requests_.push_back(calls_.send(from, bytes, ranks_[static_cast<size_t>(to)], tag_));
}

void MpiLane::receive(std::byte* to, int64_t bytes, int from) {
  requests_.push_back(calls_.receive(to, bytes, ranks_[static_cast<size_t>(from)], tag_));
}

const std::byte* MpiLane::outgoing(int owner, const Range& range) {
  const WireView& view = slices().sent(owner);
  if (const std::byte* at = view.direct(work_->buffers, range.begin, range.end)) return at;
  std::byte* packed = stage(range.bytes());
  view.pack(packed, work_->buffers, range.begin, range.end);
  return packed;
}

std::byte* MpiLane::place_of_result(int owner, const Range& range) {
  std::byte* at = slices().received(owner).direct(work_->buffers, range.begin, range.end);
  return at != nullptr ? at : stage(range.bytes());
}

void MpiLane::post() {
  switch (phase_) {
    case kGather:
      if (slices().reduces()) post_gather();
      return;
    case kReduce:
      if (slices().reduces() && domains_.count() > 1) post_reduce();
      return;
    case kReturn:
      if (slices().spreads()) post_return();
      return;
    case kSpread:
      if (slices().spreads()) post_spread();
      return;
    default:
      return;
  }
}

void MpiLane::finish() {
  if (phase_ == kGather && slices().reduces()) finish_gather();
  if (phase_ == kReduce && slices().reduces() && domains_.count() > 1) finish_reduce();
  if (phase_ == kSpread && slices().spreads()) finish_spread();
}

void MpiLane::post_gather() {
  const std::vector<int>& mates = domains_.members(domains_.own());
  for (const int owner : slices().owners()) {
    const Range range = slices().range(slice_, owner);
    if (range.bytes() == 0) continue;
    if (!helps(owner)) {
      send(outgoing(owner, range), range.bytes(), domains_.helper(domains_.own(), owner));
      continue;
    }
    std::vector<const std::byte*>& addends = addends_[static_cast<size_t>(owner)];
    addends.clear();
    for (const int mate : mates) {
      if (mate == member_) {
        addends.push_back(outgoing(owner, range));
      } else {
        std::byte* at = stage(range.bytes());
        addends.push_back(at);
        receive(at, range.bytes(), mate);
      }
    }
  }
}

void MpiLane::finish_gather() {
  for (const int owner : slices().owners()) {
    const Range range = slices().range(slice_, owner);
    if (range.bytes() == 0 || !helps(owner)) continue;
    const std::vector<const std::byte*>& addends = addends_[static_cast<size_t>(owner)];
    if (domains_.count() == 1) {
      set_result(addends);
    } else {
      std::byte* sum = stage(range.bytes());
      slices().sent(owner).sum_packed(sum, addends, range.begin, range.end);
      sums_[static_cast<size_t>(owner)] = sum;
    }
  }
}

void MpiLane::post_reduce() {
  for (const int owner : slices().owners()) {
    const Range range = slices().range(slice_, owner);
    if (range.bytes() == 0) continue;
    const std::byte* sum = sums_[static_cast<size_t>(owner)];
    if (owner != member_) {
      if (helps(owner)) send(sum, range.bytes(), owner);
      continue;
    }
    std::vector<const std::byte*>& addends = addends_[static_cast<size_t>(owner)];
    addends.clear();
    for (int domain = 0; domain < domains_.count(); ++domain) {
      if (domain == domains_.own()) {
        addends.push_back(sum);
      } else {
        std::byte* at = stage(range.bytes());
        addends.push_back(at);
        receive(at, range.bytes(), domains_.helper(domain, owner));
      }
    }
  }
}

void MpiLane::finish_reduce() {
  if (slices().range(slice_, member_).bytes() > 0) set_result(addends_[static_cast<size_t>(member_)]);
}

// Computes the complete sum of this member's own range.
void MpiLane::set_result(const std::vector<const std::byte*>& addends) {
  const Range range = slices().range(slice_, member_);
  if (!slices().spreads()) {
    slices().received(member_).sum(addends, work_->buffers, range.begin, range.end);
    return;
  }
  std::byte* result = place_of_result(member_, range);
  slices().sent(member_).sum_packed(result, addends, range.begin, range.end);
  results_[static_cast<size_t>(member_)] = result;
}

void MpiLane::post_return() {
  for (const int owner : slices().owners()) {
    const Range range = slices().range(slice_, owner);
    if (range.bytes() == 0) continue;
    const std::byte*& result = results_[static_cast<size_t>(owner)];
    if (owner == member_) {
      if (!slices().reduces()) result = outgoing(owner, range);
      for (int domain = 0; domain < domains_.count(); ++domain) {
        if (domain != domains_.own()) send(result, range.bytes(), domains_.helper(domain, owner));
      }
    } else if (helps(owner)) {
      std::byte* at = place_of_result(owner, range);
      result = at;
      receive(at, range.bytes(), owner);
    }
  }
}

void MpiLane::post_spread() {
  for (const int owner : slices().owners()) {
    const Range range = slices().range(slice_, owner);
    if (range.bytes() == 0) continue;
    const std::byte*& result = results_[static_cast<size_t>(owner)];
    if (helps(owner)) {
      for (const int mate : domains_.members(domains_.own())) {
        if (mate != member_) send(result, range.bytes(), mate);
      }
    } else {
      std::byte* at = place_of_result(owner, range);
      result = at;
      receive(at, range.bytes(), domains_.helper(domains_.own(), owner));
    }
  }
}

void MpiLane::finish_spread() {
  for (const int owner : slices().owners()) {
    const Range range = slices().range(slice_, owner);
    if (range.bytes() == 0) continue;
    const WireView& view = slices().received(owner);
    const std::byte* result = results_[static_cast<size_t>(owner)];
    if (result == view.direct(work_->buffers, range.begin, range.end)) continue;
    view.unpack(result, work_->buffers, range.begin, range.end);
  }
}

// A member's data for itself needs no message.
void MpiLane::copy_own() {
  const Plan& plan = work_->shape->plan;
  for (size_t t = 0; t < plan.transfers.size(); ++t) {
    const Stream& from = plan.transfers[t].sent_to(member_);
    copy_runs(static_cast<std::byte*>(work_->buffers[t].receive), plan.transfers[t].got_from(member_).at(0),
              static_cast<const std::byte*>(work_->buffers[t].send), from.at(0), from.bytes());
  }
}

bool MpiLane::advance_pairs() {
  bool moved = false;
  const bool sent = advance_window(sends_, true, &moved);
  const bool received = advance_window(receives_, false, &moved);
  if (!sent || !received) return moved;
  --work_->remaining;
  work_ = nullptr;
  return true;
}

// Both members of a pair perform the steps in the same order, so waits for a free place in a window cannot
// form a cycle: the pair in the earliest step can always continue.
bool MpiLane::advance_window(Pairs& pairs, bool sending, bool* moved) {
  bool busy = false;
  for (size_t slot = 0; slot < pairs.window.size(); ++slot) {
    Pairs::Open& open = pairs.window[slot];
    if (open.busy && calls_.done(open.request)) {
      if (!sending && open.staged != nullptr) {
        slices().received(open.peer).unpack(open.staged, work_->buffers, open.range.begin, open.range.end);
      }
      open.busy = false;
      *moved = true;
    }
    if (!open.busy) open.busy = post_pair(pairs, sending, slot);
    busy = busy || open.busy;
  }
  return !busy;
}

// Starts the next message; returns false if there is none.
bool MpiLane::post_pair(Pairs& pairs, bool sending, size_t slot) {
  const int size = static_cast<int>(ranks_.size());
  for (; pairs.step < size; ++pairs.step, pairs.at = 0) {
    const int peer = (sending ? member_ + pairs.step : member_ + size - pairs.step) % size;
    const WireView& view = sending ? slices().sent(peer) : slices().received(peer);
    if (pairs.at == view.bytes()) continue;
    Pairs::Open& open = pairs.window[slot];
    open.range = {pairs.at, std::min(pairs.at + slices().chunk(), view.bytes())};
    open.peer = peer;
    open.staged = nullptr;
    std::byte* at = view.direct(work_->buffers, open.range.begin, open.range.end);
    if (at == nullptr) {
      // If this reallocates, nothing is staged yet.
      if (std::ssize(staging_) < slices().staging()) staging_.resize(static_cast<size_t>(slices().staging()));
      const auto place = static_cast<int64_t>(slot + (sending ? 0 : kPairWindow));
      open.staged = at = staging_.data() + place * slices().chunk();
      if (sending) view.pack(at, work_->buffers, open.range.begin, open.range.end);
    }
    const int rank = ranks_[static_cast<size_t>(peer)];
    open.request = sending ? calls_.send(at, open.range.bytes(), rank, tag_)
                           : calls_.receive(at, open.range.bytes(), rank, tag_);
    pairs.at = open.range.end;
    return true;
  }
  return false;
}

}  // namespace strata::comm
