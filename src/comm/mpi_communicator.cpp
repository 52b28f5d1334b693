#include "comm/mpi_communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "comm/mpi_world.h"

namespace strata::comm {
namespace {

// Staging memory of all lanes of a group, in messages of the largest size.
constexpr int64_t kStagedMessages = 8;
constexpr uint64_t kNever = uint64_t{1} << 62;  // the number of a collective that is lost
constexpr double kLeftPatience = 2;             // seconds for messages of a rank that has left to arrive

// Tickets of collectives are odd, those of messages even.
Ticket ticket_of(uint64_t number, bool collective) {
  return {.number = number * 2 + (collective ? 1 : 0)};
}

}  // namespace

MpiCommunicator::MpiCommunicator(MpiWorld& world, std::vector<int> ranks, std::string name,
                                 const Topology& topology, int member, uint64_t id, int first_tag,
                                 const WorldOptions& options)
    : world_(world),
      ranks_(std::move(ranks)),
      name_(std::move(name)),
      domains_(domains_of(topology, static_cast<int>(ranks_.size())), member),
      member_(member),
      id_(id),
      first_tag_(first_tag),
      options_(options),
      lanes_{MpiLane(world.calls(), ranks_, domains_, member, first_tag),
             MpiLane(world.calls(), ranks_, domains_, member, first_tag + 1)},
      barrier_bytes_(ranks_.size() + 1) {
  Transfer bytes{.dtype = DType::kU8, .send = {{{.bytes = 1}}}, .bytes = std::ssize(ranks_)};
  for (int64_t i = 0; i < std::ssize(ranks_); ++i) bytes.receive.push_back({{.offset = i, .bytes = 1}});
  barrier_ = prepare({.collective = Collective::kExchange, .transfers = {bytes}, .label = "barrier"});
  world_.add(*this, id_, started_);
}

MpiCommunicator::~MpiCommunicator() {
  world_.remove(*this, id_);
  if (works_.empty() && messages_.empty()) return;
  for (MpiLane& lane : lanes_) lane.cancel();
  for (Message& message : messages_) {
    if (message.in_flight) world_.calls().cancel(message.chunk);
  }
  // If an error unwinds this rank, the code that catches it reports it; dropped collectives need no report.
  if (std::uncaught_exceptions() == 0 && !world_.failure().failed()) {
    world_.fail(
        exit_code(ErrorKind::kWorld),
        fmt::format("[comm] rank {} left group '{}' before its collectives were done", world_.rank(), name_));
  }
}

std::unique_ptr<Prepared> MpiCommunicator::prepare(Operation operation) {
  auto shape = std::make_shared<MpiPrepared::Shape>();
  shape->plan = make_plan(std::move(operation), member_, size());
  shape->slices = std::make_unique<Slices>(shape->plan, domains_,
                                           kStagedMessages * options_.chunk_bytes / std::ssize(lanes_),
                                           options_.chunk_bytes);
  staging_ = std::max(staging_.load(), shape->slices->staging());
  return std::make_unique<MpiPrepared>(std::move(shape));
}

bool MpiCommunicator::loses() {
  if (!lost_ && size() > 1 && std::isfinite(options_.wait_limit)) lost_ = world_.take_loss();
  return lost_;
}

Ticket MpiCommunicator::start(Prepared& prepared, std::span<const Buffers> buffers) {
  const auto& shape = static_cast<const MpiPrepared&>(prepared).shape;
  check_buffers(shape->plan, buffers);
  std::unique_lock lock(mutex_);
  if (loses()) return ticket_of(kNever, true);
  const uint64_t number = ++started_;
  MpiWork& work = works_.emplace_back();
  work.number = number;
  work.shape = shape;
  work.buffers.assign(buffers.begin(), buffers.end());
  work.entry = world_.recorder().started(name_, number, shape->plan.label, shape->plan.bytes);
  work.remaining = shape->slices->count();
  lock.unlock();
  // The first messages are sent immediately, by this thread or the progress thread.
  if (options_.progress_thread) {
    world_.ring();
  } else {
    advance(true);
  }
  return ticket_of(number, true);
}

Ticket MpiCommunicator::send(int to, const void* from, int64_t bytes) {
  // The buffer is only read.
  return add_message(true, to, static_cast<std::byte*>(const_cast<void*>(from)), bytes);
}

Ticket MpiCommunicator::receive(int from, void* to, int64_t bytes) {
  return add_message(false, from, static_cast<std::byte*>(to), bytes);
}

Ticket MpiCommunicator::add_message(bool sending, int peer, std::byte* buffer, int64_t bytes) {
  STRATA_CHECK(peer >= 0 && peer < size() && peer != member_, "a message between members {} and {} of {}",
               member_, peer, size());
  const std::lock_guard lock(mutex_);
  if (sending && loses()) return ticket_of(++messages_started_, false);  // as if it had been sent
  Message& message = messages_.emplace_back();
  message.ticket = ++messages_started_;
  message.sending = sending;
  message.peer = peer;
  message.buffer = buffer;
  message.bytes = bytes;
  message.entry = world_.recorder().started(name_, message.ticket, sending ? "send" : "receive", bytes);
  world_.ring();
  return ticket_of(message.ticket, false);
}

bool MpiCommunicator::done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (ticket.number % 2 == 1) return ticket.number / 2 <= completed_;
  return std::none_of(messages_.begin(), messages_.end(),
                      [&](const Message& message) { return message.ticket == ticket.number / 2; });
}

bool MpiCommunicator::test(Ticket ticket) {
  world_.advance(this);
  if (done(ticket)) return true;
  world_.check();
  return false;
}

void MpiCommunicator::wait(Ticket ticket) {
  const double begun = monotonic_seconds();
  double last = begun;
  BackOff back_off(world_.spins());
  for (;;) {
    const bool moved = world_.advance(this);
    if (done(ticket)) return;
    world_.check();
    if (moved) {
      last = monotonic_seconds();
      back_off.reset();
    } else if (!back_off.pause()) {
      check_wait(ticket, begun, last);
    }
  }
}

void MpiCommunicator::barrier() {
  const Buffers buffers{.send = barrier_bytes_.data() + ranks_.size(), .receive = barrier_bytes_.data()};
  wait(start(*barrier_, {&buffers, 1}));
}

void MpiCommunicator::reserve_rows(int64_t sent_bytes, int64_t received_bytes) {
  sent_rows_.resize(std::max(sent_rows_.size(), static_cast<size_t>(sent_bytes)));
  received_rows_.resize(std::max(received_rows_.size(), static_cast<size_t>(received_bytes)));
  sent_counts_.resize(ranks_.size());
  received_counts_.resize(ranks_.size());
  row_tickets_.reserve(2 * ranks_.size());
}

// Exchanges the counts first, then the rows.
void MpiCommunicator::exchange_rows(const RowExchange& exchange) {
  check_rows(exchange, size());
  finish_rows(rows_started_);
  for (int step = 1; step < size(); ++step) {
    const int peer = (member_ + step) % size();
    const auto at = static_cast<size_t>(peer);
    sent_counts_[at] = exchange.sends[at].count;
    row_tickets_.push_back(receive(peer, &received_counts_[at], sizeof(int64_t)));
    row_tickets_.push_back(send(peer, &sent_counts_[at], sizeof(int64_t)));
  }
  wait_for_rows();
  for (int peer = 0; peer < size(); ++peer) {
    const auto at = static_cast<size_t>(peer);
    const int64_t coming = peer == member_ ? exchange.sends[at].count : received_counts_[at];
    STRATA_CHECK(coming <= exchange.receives[at].count,
                 "[comm] found {} rows from rank {} in group '{}': expected at most {}", coming, ranks_[at],
                 name_, exchange.receives[at].count);
    exchange.receives[at].count = coming;
  }
  finish_rows(start_rows(exchange));
}

void MpiCommunicator::wait_for_rows() {
  for (const Ticket ticket : row_tickets_) wait(ticket);
  row_tickets_.clear();
}

// Only one exchange at a time uses the buffers in which listed rows are packed, on both sides.
Ticket MpiCommunicator::start_rows(const RowExchange& exchange) {
  check_rows(exchange, size());
  finish_rows(rows_started_);
  const auto* const from = static_cast<const std::byte*>(exchange.send);
  auto* const to = static_cast<std::byte*>(exchange.receive);
  int64_t sent = 0, received = 0;  // bytes of listed rows
  row_sources_.assign(ranks_.size(), {});
  row_sources_[static_cast<size_t>(member_)] = {from, exchange.sends[static_cast<size_t>(member_)]};
  for (int step = 1; step < size(); ++step) {
    const int peer = (member_ + step) % size();
    const auto at = static_cast<size_t>(peer);
    const RowSet &out = exchange.sends[at], &in = exchange.receives[at];
    const int64_t coming = in.count * exchange.row_bytes, going = out.count * exchange.row_bytes;
    std::byte* receive_at = to + in.first * exchange.row_bytes;
    if (in.rows != nullptr || exchange.take != nullptr) {
      receive_at = received_rows_.data() + received;
      received += coming;
    }
    row_sources_[at] = {receive_at, {.count = in.count}};
    const std::byte* send_at = from + out.first * exchange.row_bytes;
    if (out.rows != nullptr) {
      copy_rows(out, from, {.count = out.count}, sent_rows_.data() + sent, exchange.row_bytes,
                [] { return false; });
      send_at = sent_rows_.data() + sent;
      sent += going;
    }
    STRATA_CHECK(sent <= std::ssize(sent_rows_) && received <= std::ssize(received_rows_),
                 "[comm] more rows in group '{}' than reserved", name_);
    if (coming > 0) row_tickets_.push_back(receive(peer, receive_at, coming));
    if (going > 0) row_tickets_.push_back(send(peer, send_at, going));
  }
  rows_ = &exchange;
  return {++rows_started_.number};
}

void MpiCommunicator::finish_rows(Ticket ticket) {
  if (rows_ == nullptr || ticket.number != rows_started_.number) return;
  wait_for_rows();
  const RowExchange& exchange = *std::exchange(rows_, nullptr);
  if (exchange.take != nullptr) return (*exchange.take)(row_sources_);
  for (size_t member = 0; member < ranks_.size(); ++member) {
    const RowSource& source = row_sources_[member];
    const RowSet& in = exchange.receives[member];
    if (in.rows == nullptr && static_cast<int>(member) != member_) continue;  // received in place
    copy_rows(source.rows, source.base, in, static_cast<std::byte*>(exchange.receive), exchange.row_bytes,
              [] { return false; });
  }
}

bool MpiCommunicator::advance(bool waits) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (waits) {
    lock.lock();
  } else if (!lock.try_lock()) {
    return false;
  }
  if (world_.failure().failed()) return false;
  try {
    const bool worked = advance_works();
    return advance_messages() || worked;
  } catch (const Error& error) {
    const std::string what = works_.empty() ? "" : fmt::format("[{}] ", works_.front().shape->plan.label);
    lock.unlock();
    world_.fail(exit_code(error.kind()), what + error.what());
    return false;
  }
}

bool MpiCommunicator::busy() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return !lock.owns_lock() || !works_.empty() || !messages_.empty();
}

bool MpiCommunicator::advance_works() {
  bool moved = false, begun = true;
  while (begun) {
    for (MpiLane& lane : lanes_) moved = lane.advance() || moved;
    // Lanes take slices in turn, in the same order on all members, so their messages match.
    begun = false;
    for (MpiWork& work : works_) {
      while (work.next < work.shape->slices->count()) {
        MpiLane& lane = lanes_[slices_begun_ % lanes_.size()];
        if (!lane.idle()) break;
        lane.begin(work, work.next++);
        ++slices_begun_;
        begun = true;
      }
      if (work.next < work.shape->slices->count()) break;
    }
    while (!works_.empty() && works_.front().remaining == 0) {
      const MpiWork& work = works_.front();
      const Plan& plan = work.shape->plan;
      for (size_t t = 0; t < work.buffers.size(); ++t) {
        if (!work.buffers[t].adds) zero_gaps(plan.transfers[t], work.buffers[t].receive);
      }
      world_.recorder().done(work.entry);
      works_.pop_front();
      ++completed_;
      moved = true;
    }
  }
  return moved;
}

bool MpiCommunicator::advance_messages() {
  bool moved = false;
  for (auto at = messages_.begin(); at != messages_.end();) {
    const auto message = at++;
    // Messages of a pair are ordered.
    const bool queued = std::any_of(messages_.begin(), message, [&](const Message& other) {
      return other.peer == message->peer && other.sending == message->sending;
    });
    if (queued || !advance_message(*message)) continue;
    world_.recorder().done(message->entry);
    messages_.erase(message);
    moved = true;
  }
  return moved;
}

// Returns whether it is done.
bool MpiCommunicator::advance_message(Message& message) {
  for (;;) {
    if (message.in_flight) {
      if (!world_.calls().done(message.chunk)) return false;
      message.at += message.chunk.bytes;
      message.in_flight = false;
      if (message.at == message.bytes) return true;
    }
    const int64_t bytes = std::min(options_.chunk_bytes, message.bytes - message.at);
    const int rank = ranks_[static_cast<size_t>(message.peer)], tag = first_tag_ + 2;
    std::byte* at = message.buffer + message.at;
    message.chunk = message.sending ? world_.calls().send(at, bytes, rank, tag)
                                    : world_.calls().receive(at, bytes, rank, tag);
    message.in_flight = true;
  }
}

std::string MpiCommunicator::describe(Ticket ticket, uint64_t* number) {
  const std::lock_guard lock(mutex_);
  *number = 0;
  if (ticket.number % 2 == 0) {
    for (const Message& message : messages_) {
      if (message.ticket != ticket.number / 2) continue;
      return fmt::format("[comm] a message {} rank {} in group '{}' ({} bytes)",
                         message.sending ? "to" : "from", ranks_[static_cast<size_t>(message.peer)], name_,
                         message.bytes);
    }
    return "";
  }
  if (works_.empty()) return "";
  *number = works_.front().number;
  return fmt::format("[comm] {}, number {} of group '{}'", works_.front().shape->plan.label, *number, name_);
}

void MpiCommunicator::check_wait(Ticket ticket, double begun, double moved) {
  const double now = monotonic_seconds();
  uint64_t number = 0;
  if (now - moved > kLeftPatience && !world_.closing()) {
    const auto left = std::find_if(ranks_.begin(), ranks_.end(), [&](int rank) { return world_.left(rank); });
    if (left != ranks_.end()) {
      world_.fail(exit_code(ErrorKind::kWorld),
                  fmt::format("{}: rank {} has ended without it", describe(ticket, &number), *left));
      return;
    }
  }
  if (now - begun < options_.wait_limit) return;
  const std::string what = describe(ticket, &number);
  if (!what.empty()) world_.fail_hang(what, now - begun, id_, number, ranks_);
}

}  // namespace strata::comm
