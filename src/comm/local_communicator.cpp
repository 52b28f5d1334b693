#include "comm/local_communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata::comm {
namespace {

// Marks a rank as accessing buffers during its lifetime.
class Busy {
 public:
  explicit Busy(LocalRank& rank) : rank_(rank) { ++rank_.busy; }
  ~Busy() { --rank_.busy; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  LocalRank& rank_;
};

constexpr int kSpins = 200;  // about 5 µs

void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Tickets of collectives are odd, those of messages even.
Ticket ticket_of(uint64_t number, bool collective) {
  return {.number = number * 2 + (collective ? 1 : 0)};
}

constexpr uint64_t kNever = uint64_t{1} << 62;  // the number of a collective that is lost

const std::byte* bytes_of(const void* pointer) {
  return static_cast<const std::byte*>(pointer);
}
std::byte* bytes_of(void* pointer) {
  return static_cast<std::byte*>(pointer);
}

}  // namespace

LocalCommunicator::LocalCommunicator(LocalJob& job, std::shared_ptr<LocalGroup> group, int member,
                                     double wait_limit)
    : job_(job),
      own_(job.rank(group->ranks[static_cast<size_t>(member)])),
      group_(std::move(group)),
      member_(member),
      size_(static_cast<int>(group_->ranks.size())),
      wait_limit_(wait_limit),
      barrier_(make_plan({.collective = Collective::kExchange, .transfers = {}, .label = "barrier"}, member,
                         size_)),
      rows_(make_plan({.collective = Collective::kRows, .transfers = {}, .label = "exchange of rows"}, member,
                      size_)) {
  const std::unique_lock lock(own_.communicators_lock);
  own_.communicators.push_back(this);
}

LocalCommunicator::~LocalCommunicator() {
  {
    const std::unique_lock lock(own_.communicators_lock);
    std::erase(own_.communicators, this);
  }
  if (completed_ == started_ && messages_.empty()) return;
  const int rank = group_->ranks[static_cast<size_t>(member_)];
  job_.halt(rank, fmt::format("[comm] rank {} left group '{}' before its collectives were done", rank,
                              group_->name));
  job_.quiesce();
}

std::unique_ptr<Prepared> LocalCommunicator::prepare(Operation operation) {
  return std::make_unique<PreparedPlan>(make_plan(std::move(operation), member_, size_));
}

Ticket LocalCommunicator::start(Prepared& prepared, std::span<const Buffers> buffers) {
  const auto& plan = static_cast<const PreparedPlan&>(prepared).plan;
  check_buffers(*plan, buffers);
  return post(plan, buffers, nullptr);
}

Ticket LocalCommunicator::start_rows(const RowExchange& exchange) {
  check_rows(exchange, size_);
  return post(rows_.plan, {}, &exchange);
}

void LocalCommunicator::exchange_rows(const RowExchange& exchange) {
  wait(start_rows(exchange));
}

bool LocalCommunicator::loses() {
  if (!lost_ && size_ > 1 && std::isfinite(wait_limit_)) lost_ = own_.loses_next.exchange(false);
  return lost_;
}

Ticket LocalCommunicator::post(const std::shared_ptr<const Plan>& plan, std::span<const Buffers> buffers,
                               const RowExchange* rows) {
  std::unique_lock lock(mutex_);
  if (loses()) return ticket_of(kNever, true);
  while (started_ - completed_ == LocalGroup::kInFlight) {
    const Ticket oldest = ticket_of(completed_ + 1, true);
    lock.unlock();
    wait(oldest);
    lock.lock();
  }
  const uint64_t number = ++started_;
  LocalGroup::Post& post = group_->slot(number).posts[static_cast<size_t>(member_)];
  post.plan = plan;
  post.buffers.assign(buffers.begin(), buffers.end());
  post.rows = rows;
  entries_[number % entries_.size()] = own_.recorder.started(group_->name, number, plan->label, plan->bytes);
  group_->posted[static_cast<size_t>(member_)] = number;
  reach(number, kPosted);
  return ticket_of(number, true);
}

Ticket LocalCommunicator::send(int to, const void* from, int64_t bytes) {
  STRATA_CHECK(to >= 0 && to < size_ && to != member_, "a message from member {} to {} of {}", member_, to,
               size_);
  const std::lock_guard lock(mutex_);
  if (loses()) return ticket_of(++messages_started_, false);  // as if it had been sent
  if (unused_messages_.empty()) unused_messages_.emplace_back();
  messages_.splice(messages_.end(), unused_messages_, unused_messages_.begin());
  Message& message = messages_.back();
  message.ticket = ++messages_started_;
  message.sending = true;
  message.peer = to;
  message.bytes = bytes;
  message.taken = false;
  message.entry = own_.recorder.started(group_->name, message.ticket, "send", bytes);
  LocalGroup::Inbox& inbox = group_->inboxes[static_cast<size_t>(to)];
  {
    const std::lock_guard inbox_lock(inbox.mutex);
    inbox.parcels.push_back({.from = member_, .at = bytes_of(from), .bytes = bytes, .taken = &message.taken});
  }
  ring(to);
  return ticket_of(message.ticket, false);
}

Ticket LocalCommunicator::receive(int from, void* to, int64_t bytes) {
  STRATA_CHECK(from >= 0 && from < size_ && from != member_, "a message from member {} to {} of {}", from,
               member_, size_);
  const std::lock_guard lock(mutex_);
  if (unused_messages_.empty()) unused_messages_.emplace_back();
  messages_.splice(messages_.end(), unused_messages_, unused_messages_.begin());
  Message& message = messages_.back();
  message.ticket = ++messages_started_;
  message.sending = false;
  message.peer = from;
  message.to = bytes_of(to);
  message.bytes = bytes;
  message.entry = own_.recorder.started(group_->name, message.ticket, "receive", bytes);
  return ticket_of(message.ticket, false);
}

bool LocalCommunicator::done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (ticket.number % 2 == 1) return ticket.number / 2 <= completed_;
  return std::none_of(messages_.begin(), messages_.end(),
                      [&](const Message& message) { return message.ticket == ticket.number / 2; });
}

bool LocalCommunicator::test(Ticket ticket) {
  own_.advance(this);
  if (done(ticket)) return true;
  if (job_.failed()) job_.throw_failure();
  return false;
}

void LocalCommunicator::wait(Ticket ticket) {
  const double begun = monotonic_seconds();
  const auto nap =
      std::chrono::milliseconds(static_cast<int64_t>(std::clamp(wait_limit_ * 250, 1.0, 1000.0)));
  if (test(ticket)) return;
  for (;;) {
    for (int spin = 0; job_.spins() && spin < kSpins; ++spin) {
      pause_core();
      if (spin % 20 == 19 && test(ticket)) return;
    }
    const uint64_t armed = own_.bell.arm();
    const auto disarm =
        std::unique_ptr<Doorbell, void (*)(Doorbell*)>(&own_.bell, [](Doorbell* bell) { bell->disarm(); });
    if (test(ticket)) return;
    check_wait(ticket, begun);
    own_.bell.sleep(armed, nap);
  }
}

void LocalCommunicator::barrier() {
  wait(start(barrier_, {}));
}

void LocalCommunicator::advance(bool waits) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (waits) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return;
  }
  try {
    while (worked_ < started_ && advance_collective(worked_ + 1)) {
    }
    bool moved = false;
    while (completed_ < worked_ && passed(completed_ + 1, kRead)) {
      ++completed_;
      own_.recorder.done(entries_[completed_ % entries_.size()]);
      moved = true;
    }
    const size_t before = messages_.size();
    if (before > 0) advance_messages();
    // Another thread of this rank may be waiting for something that this one has finished.
    if (moved || messages_.size() != before) own_.bell.ring();
  } catch (const Error& error) {
    job_.fail(group_->ranks[static_cast<size_t>(member_)], exit_code(error.kind()), error.what(),
              std::current_exception());
  }
}

bool LocalCommunicator::passed(uint64_t number, Mark mark) {
  return group_->slot(number).reached[mark] >= group_->full(number);
}

void LocalCommunicator::reach(uint64_t number, Mark mark) {
  if (++group_->slot(number).reached[mark] < group_->full(number)) return;
  for (int member = 0; member < size_; ++member) ring(member);
}

// Returns whether this member is done with it.
bool LocalCommunicator::advance_collective(uint64_t number) {
  if (!passed(number, summed_ ? kSummed : kPosted)) return false;
  const Busy busy(own_);
  if (job_.halted()) return false;
  const LocalGroup::Slot& slot = group_->slot(number);
  const LocalGroup::Post& post = slot.posts[static_cast<size_t>(member_)];
  if (!summed_) {
    check_agreement(slot, number);
    switch (post.plan->collective) {
      case Collective::kExchange:
        take_exchange(slot);
        break;
      case Collective::kReduceScatter:
        for (size_t t = 0; t < post.buffers.size(); ++t) {
          sum(slot, t, 0, post.plan->transfers[t].got_from(0).bytes());
        }
        break;
      case Collective::kAllReduce:
        sum_shares(slot);
        break;
      case Collective::kBroadcast:
        take_broadcast(slot);
        break;
      case Collective::kRows:
        take_rows(slot);
        break;
    }
    if (job_.halted()) return false;
    reach(number, kSummed);
    summed_ = post.plan->collective == Collective::kAllReduce;
    if (summed_ && !passed(number, kSummed)) return false;
  }
  if (summed_) copy_shares(slot);
  if (job_.halted()) return false;
  summed_ = false;
  worked_ = number;
  group_->read[static_cast<size_t>(member_)] = number;
  reach(number, kRead);
  return true;
}

void LocalCommunicator::check_agreement(const LocalGroup::Slot& slot, uint64_t number) const {
  const LocalGroup::Post& own = slot.posts[static_cast<size_t>(member_)];
  const Plan& plan = *own.plan;
  for (int peer = 0; peer < size_; ++peer) {
    const LocalGroup::Post& post = slot.posts[static_cast<size_t>(peer)];
    const Plan& other = *post.plan;
    const auto where = [&] {
      return fmt::format("[{}] number {} of group '{}': rank {} and rank {} ('{}')", plan.label, number,
                         group_->name, group_->ranks[static_cast<size_t>(member_)],
                         group_->ranks[static_cast<size_t>(peer)], other.label);
    };
    STRATA_CHECK(other.collective == plan.collective && other.root == plan.root &&
                     other.transfers.size() == plan.transfers.size(),
                 "{} start different collectives", where());
    for (size_t t = 0; t < plan.transfers.size(); ++t) {
      const TransferPlan &mine = plan.transfers[t], &theirs = other.transfers[t];
      STRATA_CHECK(mine.dtype == theirs.dtype && mine.wire == theirs.wire,
                   "{} have different dtypes in transfer {}", where(), t);
      STRATA_CHECK(own.buffers[t].adds == post.buffers[t].adds || !plan.sums(),
                   "{} disagree on accumulation in transfer {}", where(), t);
      const int64_t sent = theirs.sent_to(member_).bytes(), expected = mine.got_from(peer).bytes();
      STRATA_CHECK(sent == expected, "{}: found {} bytes in transfer {}: expected {}", where(), sent, t,
                   expected);
    }
  }
}

void LocalCommunicator::take_exchange(const LocalGroup::Slot& slot) {
  const LocalGroup::Post& own = slot.posts[static_cast<size_t>(member_)];
  // Begin with this member, so that members read different peers at the same time.
  for (int step = 0; step < size_; ++step) {
    const int peer = (member_ + step) % size_;
    const LocalGroup::Post& post = slot.posts[static_cast<size_t>(peer)];
    for (size_t t = 0; t < own.buffers.size(); ++t) {
      copy(post.plan->transfers[t].sent_to(member_), bytes_of(post.buffers[t].send),
           own.plan->transfers[t].got_from(peer), bytes_of(own.buffers[t].receive));
    }
  }
  for (size_t t = 0; t < own.buffers.size(); ++t) {
    zero_gaps(own.plan->transfers[t], bytes_of(own.buffers[t].receive));
  }
}

void LocalCommunicator::take_rows(const LocalGroup::Slot& slot) {
  const RowExchange& own = *slot.posts[static_cast<size_t>(member_)].rows;
  row_sources_.assign(static_cast<size_t>(size_), {});
  for (int step = 0; step < size_; ++step) {
    const int peer = (member_ + step) % size_;
    const RowExchange& other = *slot.posts[static_cast<size_t>(peer)].rows;
    const RowSet& from = other.sends[static_cast<size_t>(member_)];
    RowSet& to = own.receives[static_cast<size_t>(peer)];
    STRATA_CHECK(other.row_bytes == own.row_bytes && from.count <= to.count,
                 "[comm] found {} rows of {} bytes from rank {} in group '{}': expected at most {} of {}",
                 from.count, other.row_bytes, group_->ranks[static_cast<size_t>(peer)], group_->name,
                 to.count, own.row_bytes);
    row_sources_[static_cast<size_t>(peer)] = {bytes_of(other.send), from};
    if (own.take == nullptr && !copy_rows(from, bytes_of(other.send), to, bytes_of(own.receive),
                                          own.row_bytes, [this] { return job_.halted(); }))
      return;
    to.count = from.count;
  }
  if (own.take != nullptr) (*own.take)(row_sources_);
}

void LocalCommunicator::take_broadcast(const LocalGroup::Slot& slot) {
  const LocalGroup::Post& own = slot.posts[static_cast<size_t>(member_)];
  const LocalGroup::Post& root = slot.posts[static_cast<size_t>(own.plan->root)];
  for (size_t t = 0; t < own.buffers.size(); ++t) {
    const Stream& whole = own.plan->transfers[t].send.front();
    copy(whole, bytes_of(root.buffers[t].send), whole, bytes_of(own.buffers[t].receive));
  }
}

void LocalCommunicator::copy(const Stream& from, const std::byte* from_base, const Stream& to,
                             std::byte* to_base) {
  for (int64_t begin = 0; begin < from.bytes() && !job_.halted(); begin += group_->chunk_bytes) {
    const int64_t length = std::min(group_->chunk_bytes, from.bytes() - begin);
    copy_runs(to_base, to.at(begin), from_base, from.at(begin), length);
  }
}

void LocalCommunicator::sum_shares(const LocalGroup::Slot& slot) {
  const LocalGroup::Post& own = slot.posts[static_cast<size_t>(member_)];
  for (size_t t = 0; t < own.buffers.size(); ++t) {
    const TransferPlan& transfer = own.plan->transfers[t];
    const int64_t width = size_of(transfer.dtype);
    // Accumulation buffers differ by member, so each member computes the whole sum.
    const Share share = own.buffers[t].adds
                            ? Share{0, transfer.bytes / width}
                            : share_of(transfer.bytes / width, transfer.dtype, member_, size_);
    sum(slot, t, share.begin * width, share.end * width);
  }
}

void LocalCommunicator::copy_shares(const LocalGroup::Slot& slot) {
  const LocalGroup::Post& own = slot.posts[static_cast<size_t>(member_)];
  for (int step = 1; step < size_; ++step) {
    const int peer = (member_ + step) % size_;
    const LocalGroup::Post& post = slot.posts[static_cast<size_t>(peer)];
    for (size_t t = 0; t < own.buffers.size(); ++t) {
      if (own.buffers[t].adds) continue;
      const TransferPlan& transfer = own.plan->transfers[t];
      const int64_t width = size_of(transfer.dtype);
      const Share share = share_of(transfer.bytes / width, transfer.dtype, peer, size_);
      const Stream part({{.offset = share.begin * width, .bytes = (share.end - share.begin) * width}});
      copy(part, bytes_of(static_cast<const void*>(post.buffers[t].receive)), part,
           bytes_of(own.buffers[t].receive));
    }
  }
}

// Sums bytes [begin, end) of this member's part of a transfer, directly from the peers' buffers.
void LocalCommunicator::sum(const LocalGroup::Slot& slot, size_t transfer, int64_t begin, int64_t end) {
  const LocalGroup::Post& own = slot.posts[static_cast<size_t>(member_)];
  const TransferPlan& plan = own.plan->transfers[transfer];
  const bool everywhere = own.plan->collective == Collective::kAllReduce;
  const SumRule rule{
      .dtype = plan.dtype, .wire = plan.wire, .rounds = everywhere, .adds = own.buffers[transfer].adds};
  const Domains& domains = group_->domains;
  addends_.resize(static_cast<size_t>(size_));
  cursors_.resize(static_cast<size_t>(size_));
  for (size_t i = 0; i < addends_.size(); ++i) {
    const LocalGroup::Post& post = slot.posts[static_cast<size_t>(domains.members[i])];
    cursors_[i] = post.plan->transfers[transfer].sent_to(member_).at(begin);
  }
  Cursor out = plan.got_from(0).at(begin);
  const int64_t width = size_of(plan.dtype);
  while (begin < end && !job_.halted()) {
    int64_t length = std::min({end - begin, group_->chunk_bytes, out.left()});
    for (const Cursor& cursor : cursors_) length = std::min(length, cursor.left());
    for (size_t i = 0; i < addends_.size(); ++i) {
      const LocalGroup::Post& post = slot.posts[static_cast<size_t>(domains.members[i])];
      addends_[i] = {.at = bytes_of(post.buffers[transfer].send) + cursors_[i].offset(), .type = plan.dtype};
      cursors_[i].advance(length);
    }
    add_up(rule, addends_, domains.ends, bytes_of(own.buffers[transfer].receive) + out.offset(), plan.dtype,
           length / width);
    out.advance(length);
    begin += length;
  }
  if (!everywhere && !own.buffers[transfer].adds) zero_gaps(plan, bytes_of(own.buffers[transfer].receive));
}

void LocalCommunicator::advance_messages() {
  for (auto at = messages_.begin(); at != messages_.end();) {
    const auto message = at++;
    // The next message from a peer belongs to the oldest receive from it.
    const bool queued =
        !message->sending && std::any_of(messages_.begin(), message, [&](const Message& other) {
          return !other.sending && other.peer == message->peer;
        });
    if (queued || (message->sending ? !message->taken : !take_message(*message))) continue;
    own_.recorder.done(message->entry);
    unused_messages_.splice(unused_messages_.end(), messages_, message);
  }
}

// Returns whether the message has arrived and been copied.
bool LocalCommunicator::take_message(const Message& message) {
  LocalGroup::Inbox& inbox = group_->inboxes[static_cast<size_t>(member_)];
  LocalGroup::Parcel parcel;
  const Busy busy(own_);
  if (job_.halted()) return false;
  {
    const std::lock_guard lock(inbox.mutex);
    const auto found = std::find_if(inbox.parcels.begin(), inbox.parcels.end(),
                                    [&](const LocalGroup::Parcel& one) { return one.from == message.peer; });
    if (found == inbox.parcels.end()) return false;
    parcel = *found;
    inbox.parcels.erase(found);
  }
  STRATA_CHECK(parcel.bytes == message.bytes,
               "[comm] rank {} of group '{}' expected {} bytes from rank {}, which sent {}",
               group_->ranks[static_cast<size_t>(member_)], group_->name, message.bytes,
               group_->ranks[static_cast<size_t>(message.peer)], parcel.bytes);
  const Stream whole({{.offset = 0, .bytes = parcel.bytes}});
  copy(whole, parcel.at, whole, message.to);
  if (job_.halted()) return false;
  *parcel.taken = true;
  ring(message.peer);
  return true;
}

LocalCommunicator::Waiting LocalCommunicator::describe_wait(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  Waiting wait;
  const auto rank_of = [&](int member) { return group_->ranks[static_cast<size_t>(member)]; };
  if (ticket.number % 2 == 0) {
    for (const Message& message : messages_) {
      if (message.ticket != ticket.number / 2) continue;
      wait.what =
          fmt::format("[comm] a message {} rank {} in group '{}' ({} bytes)", message.sending ? "to" : "from",
                      rank_of(message.peer), group_->name, message.bytes);
      wait.waiting = {rank_of(member_)};
      wait.missing = {rank_of(message.peer)};
    }
    return wait;
  }
  // Collectives end in order, so the oldest blocks the others.
  const uint64_t number = completed_ + 1;
  if (number > started_) return wait;
  wait.what =
      fmt::format("[comm] {}, number {} of group '{}'",
                  group_->slot(number).posts[static_cast<size_t>(member_)].plan->label, number, group_->name);
  const bool all_posted = passed(number, kPosted);
  for (int member = 0; member < size_; ++member) {
    const auto& last = (all_posted ? group_->read : group_->posted)[static_cast<size_t>(member)];
    (last >= number || member == member_ ? wait.waiting : wait.missing).push_back(rank_of(member));
  }
  return wait;
}

void LocalCommunicator::check_wait(Ticket ticket, double begun) {
  const double seconds = monotonic_seconds() - begun;
  job_.check_halt();
  if (job_.halted()) return;
  const Waiting wait = describe_wait(ticket);
  for (const int rank : wait.missing) {
    if (!job_.rank(rank).ended) continue;
    // It may have posted its data before it ended.
    own_.advance(this);
    if (done(ticket) || describe_wait(ticket).missing != wait.missing) return;
    return job_.fail(group_->ranks[static_cast<size_t>(member_)], exit_code(ErrorKind::kWorld),
                     fmt::format("{}: rank {} has ended without it", wait.what, rank));
  }
  if (seconds < wait_limit_ || wait.missing.empty()) return;
  const auto report = [&](int rank) { return job_.rank(rank).recorder.summary(); };
  job_.fail(group_->ranks[static_cast<size_t>(member_)], exit_code(ErrorKind::kWorld),
            describe_hang(wait.what, seconds, wait.waiting, wait.missing, report));
}

}  // namespace strata::comm
