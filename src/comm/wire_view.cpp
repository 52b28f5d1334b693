#include "comm/wire_view.h"

#include <algorithm>

namespace strata::comm {

WireView::WireView(const Plan& plan, Side side, int member) : plan_(&plan), side_(side), starts_{0} {
  for (const TransferPlan& transfer : plan.transfers) {
    streams_.push_back(side == Side::kSend ? &transfer.sent_to(member) : &transfer.got_from(member));
    const int64_t bytes = streams_.back()->bytes() / size_of(transfer.dtype) * size_of(transfer.wire);
    starts_.push_back(starts_.back() + (bytes + 63) / 64 * 64);
  }
}

// The result is never used to write to a send buffer.
std::byte* WireView::base(const Buffers& buffers) const {
  return static_cast<std::byte*>(side_ == Side::kSend ? const_cast<void*>(buffers.send) : buffers.receive);
}

template <class F>
void WireView::for_parts(int64_t begin, int64_t end, const F& visit) const {
  for (size_t t = 0; t < streams_.size(); ++t) {
    const TransferPlan& transfer = plan_->transfers[t];
    const int64_t width = size_of(transfer.wire);
    const int64_t elements = streams_[t]->bytes() / size_of(transfer.dtype);
    const int64_t from = std::max<int64_t>(begin - starts_[t], 0) / width;
    const int64_t to = std::min((end - starts_[t]) / width, elements);
    if (from < to) visit(Part{t, from, to - from, starts_[t] + from * width - begin});
  }
}

template <class F>
void WireView::for_ranges(const Part& part, std::span<const Buffers> buffers, const F& visit) const {
  const TransferPlan& transfer = plan_->transfers[part.transfer];
  const int64_t width = size_of(transfer.dtype);
  std::byte* const memory = base(buffers[part.transfer]);
  Cursor cursor = streams_[part.transfer]->at(part.element * width);
  int64_t at = part.at;
  for (int64_t left = part.count * width; left > 0;) {
    const int64_t bytes = std::min(left, cursor.left());
    visit(memory + cursor.offset(), at, bytes / width);
    cursor.advance(bytes);
    left -= bytes;
    at += bytes / width * size_of(transfer.wire);
  }
}

std::byte* WireView::direct(std::span<const Buffers> buffers, int64_t begin, int64_t end) const {
  for (size_t t = 0; t < streams_.size(); ++t) {
    if (begin < starts_[t] || begin >= starts_[t + 1]) continue;
    const TransferPlan& transfer = plan_->transfers[t];
    int64_t offset = 0;
    // The rest of the last cache line is not part of the caller's buffer.
    if (transfer.wire != transfer.dtype || end - starts_[t] > streams_[t]->bytes() || buffers[t].adds ||
        !streams_[t]->contiguous(begin - starts_[t], end - starts_[t], &offset)) {
      return nullptr;
    }
    return base(buffers[t]) + offset;
  }
  return nullptr;
}

void WireView::pack(std::byte* to, std::span<const Buffers> buffers, int64_t begin, int64_t end) const {
  for_parts(begin, end, [&](const Part& part) {
    const TransferPlan& transfer = plan_->transfers[part.transfer];
    for_ranges(part, buffers, [&](const std::byte* range, int64_t at, int64_t count) {
      convert(to + at, transfer.wire, range, transfer.dtype, count);
    });
  });
}

void WireView::unpack(const std::byte* from, std::span<const Buffers> buffers, int64_t begin,
                      int64_t end) const {
  for_parts(begin, end, [&](const Part& part) {
    const TransferPlan& transfer = plan_->transfers[part.transfer];
    const bool adds = buffers[part.transfer].adds;
    for_ranges(part, buffers, [&](std::byte* range, int64_t at, int64_t count) {
      if (adds) {
        const Addend addend{.at = from + at, .type = transfer.wire};
        const int one = 1;
        add_up({.dtype = transfer.dtype, .wire = transfer.wire, .adds = true}, {&addend, 1}, {&one, 1}, range,
               transfer.dtype, count);
      } else {
        convert(range, transfer.dtype, from + at, transfer.wire, count);
      }
    });
  });
}

void WireView::sum(std::span<const std::byte* const> addends, std::span<const Buffers> buffers, int64_t begin,
                   int64_t end) const {
  const int all = static_cast<int>(addends.size());
  std::vector<Addend> here(addends.size());
  for_parts(begin, end, [&](const Part& part) {
    const TransferPlan& transfer = plan_->transfers[part.transfer];
    const SumRule rule{.dtype = transfer.dtype, .wire = transfer.wire, .adds = buffers[part.transfer].adds};
    for_ranges(part, buffers, [&](std::byte* range, int64_t at, int64_t count) {
      for (size_t i = 0; i < here.size(); ++i) here[i] = {.at = addends[i] + at, .type = transfer.wire};
      add_up(rule, here, {&all, 1}, range, transfer.dtype, count);
    });
  });
}

void WireView::sum_packed(std::byte* to, std::span<const std::byte* const> addends, int64_t begin,
                          int64_t end) const {
  const int all = static_cast<int>(addends.size());
  std::vector<Addend> here(addends.size());
  for_parts(begin, end, [&](const Part& part) {
    const TransferPlan& transfer = plan_->transfers[part.transfer];
    for (size_t i = 0; i < here.size(); ++i) here[i] = {.at = addends[i] + part.at, .type = transfer.wire};
    add_up({.dtype = transfer.dtype, .wire = transfer.wire, .rounds = true}, here, {&all, 1}, to + part.at,
           transfer.wire, part.count);
  });
}

}  // namespace strata::comm
