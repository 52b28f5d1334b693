#include "device/expert_routes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "tensor/row_sums.h"

namespace strata::device {

namespace {

constexpr int64_t kRowsATask = 64;

enum Word : int { kToken, kCount, kSource, kFirst };
int32_t expert_of(const int32_t* record, int64_t slot) {
  return record[kFirst + 2 * slot];
}
int32_t weight_of(const int32_t* record, int64_t slot) {
  return record[kFirst + 2 * slot + 1];
}

// Through which peer an expert is reached: experts / each, without dividing. Exact below 2^20 of either: the
// rounded reciprocal is too large by less than 2^-40.
class PeerOf {
 public:
  explicit PeerOf(int64_t each) : reciprocal_((uint64_t{1} << 40) / static_cast<uint64_t>(each) + 1) {}
  int64_t operator()(int32_t expert) const {
    return static_cast<int64_t>((static_cast<uint64_t>(expert) * reciprocal_) >> 40);
  }

 private:
  uint64_t reciprocal_;
};

void check_id(const DispatchAttrs& attrs, int32_t id, int64_t token, int64_t slot) {
  STRATA_CHECK(id >= -1 && id < attrs.experts,
               "[plan_dispatch] choice {} of token {} is expert {}: expected one of [0, {})", slot, token, id,
               attrs.experts);
}

}  // namespace

void write_own_records(const DispatchAttrs& attrs, int32_t rank, const int32_t* ids, const float* weights,
                       int64_t begin, int64_t end, int32_t* records) {
  const int64_t words = Hop::words_of(attrs.k);
  parallel_ranges(end - begin, kRowsATask, [&](int64_t from, int64_t to) {
    for (int64_t token = begin + from; token < begin + to; ++token) {
      int32_t* const record = records + token * words;
      int32_t count = 0;
      for (int64_t slot = token * attrs.k; slot < (token + 1) * attrs.k; ++slot) {
        check_id(attrs, ids[slot], token, slot % attrs.k);
        if (ids[slot] < 0) continue;
        record[kFirst + 2 * count] = ids[slot];
        record[kFirst + 2 * count + 1] = weights == nullptr ? 0 : std::bit_cast<int32_t>(weights[slot]);
        ++count;
      }
      record[kToken] = static_cast<int32_t>(token);
      record[kCount] = count;
      record[kSource] = rank;
    }
  });
}

int64_t first_overflow(const DispatchAttrs& attrs, const int32_t* ids, int64_t begin, int64_t* rows,
                       int64_t* slots) {
  std::fill_n(rows, attrs.ranks, 0);
  std::fill_n(slots, attrs.ranks, 0);
  const PeerOf rank_of(attrs.own_experts());
  for (int64_t token = begin; token < attrs.tokens; ++token) {
    const int32_t* const chosen = ids + token * attrs.k;
    for (int64_t s = 0; s < attrs.k; ++s) {
      check_id(attrs, chosen[s], token, s);
      if (chosen[s] < 0) continue;
      const int64_t rank = rank_of(chosen[s]);
      bool is_first = true;
      for (int64_t before = 0; before < s; ++before)
        is_first = is_first && (chosen[before] < 0 || rank_of(chosen[before]) != rank);
      rows[rank] += is_first ? 1 : 0;
      ++slots[rank];
      if (rows[rank] > attrs.capacity.rows || slots[rank] > attrs.capacity.slots) return token;
    }
  }
  return attrs.tokens;
}

void depart(const Hop& hop, const Entries& entries, const SendListOf<int32_t>& out, int32_t* records) {
  std::fill_n(out.counts, hop.peers, 0);
  const PeerOf peer_of(hop.experts);
  int32_t at = 0;
  entries.each([&](int64_t entry) {
    const int32_t* const record = entries.record(entry);
    const int32_t first = at;
    out.back_begin[entry] = first;
    // The entry's row of a peer: rows are in the order of their peers.
    const auto row_for = [&](int64_t peer) {
      const int64_t begin = peer * hop.rows;
      int32_t place = at;
      while (place > first && out.back[place - 1] >= begin) --place;
      if (place < at && out.back[place] < begin + hop.rows) return out.back[place];
      const auto row = static_cast<int32_t>(begin + out.counts[peer]++);
      STRATA_CHECK(out.counts[peer] <= hop.rows, "[plan_dispatch] a pass has too many tokens");
      std::copy_backward(out.back + place, out.back + at, out.back + at + 1);
      out.back[place] = row;
      ++at;
      out.entries[row] = static_cast<int32_t>(entry);
      int32_t* const ahead = records + row * hop.words();
      ahead[kToken] = record[kToken];
      ahead[kCount] = 0;
      ahead[kSource] = record[kSource];
      return row;
    };
    for (int32_t s = 0; s < record[kCount]; ++s) {
      const int64_t peer = peer_of(expert_of(record, s));
      int32_t* const ahead = records + row_for(peer) * hop.words();
      int32_t* const slot = ahead + kFirst + 2 * ahead[kCount]++;
      slot[0] = static_cast<int32_t>(expert_of(record, s) - peer * hop.experts);
      slot[1] = weight_of(record, s);
    }
    out.back_end[entry] = at;
  });
}

void find_places(const Entries& arrived, int64_t tokens, int64_t node_ranks, int32_t* by_token,
                 int32_t* places) {
  std::fill_n(by_token, tokens + 1, 0);
  arrived.each([&](int64_t entry) {
    const int32_t token = arrived.record(entry)[kToken];
    STRATA_CHECK(token >= 0 && token < tokens, "[plan_dispatch] a row of token {} of {} has come", token,
                 tokens);
    ++by_token[token + 1];
  });
  for (int64_t token = 0; token < tokens; ++token) by_token[token + 1] += by_token[token];
  // For each node in turn, the entries that each block has from it, so that ranks ascend.
  int64_t most_nodes = 0;
  arrived.each([&](int64_t entry) {
    most_nodes = std::max<int64_t>(most_nodes, arrived.record(entry)[kSource] / node_ranks + 1);
  });
  for (int64_t node = 0; node < most_nodes; ++node) {
    arrived.each([&](int64_t entry) {
      const int32_t* const record = arrived.record(entry);
      if (record[kSource] / node_ranks == node) places[entry] = by_token[record[kToken]]++;
    });
  }
}

void list_slots(const DispatchAttrs& attrs, const Entries& arrived, const int32_t* places, int32_t* offsets,
                int32_t* ids, float* weights) {
  std::fill_n(offsets, attrs.rows() + 1, 0);
  arrived.each([&](int64_t entry) { offsets[places[entry] + 1] = arrived.record(entry)[kCount]; });
  for (int64_t row = 0; row < attrs.rows(); ++row) offsets[row + 1] += offsets[row];
  const int64_t used = offsets[attrs.rows()];
  STRATA_CHECK(used <= attrs.slots(), "[plan_dispatch] {} token–expert pairs arrived: the capacity is {}",
               used, attrs.slots());
  arrived.each([&](int64_t entry) {
    const int32_t* const record = arrived.record(entry);
    const int32_t first = offsets[places[entry]];
    for (int32_t s = 0; s < record[kCount]; ++s) {
      ids[first + s] = expert_of(record, s);
      weights[first + s] = std::bit_cast<float>(weight_of(record, s));
    }
  });
  std::fill(ids + used, ids + attrs.slots(), 0);
  std::fill(weights + used, weights + attrs.slots(), 0.0f);
}

void write_weight_grads(const DispatchAttrs& attrs, const int32_t* offsets, const float* slot_grads,
                        float* grads) {
  for (int64_t row = 0; row < attrs.rows(); ++row)
    std::copy(slot_grads + offsets[row], slot_grads + offsets[row + 1], grads + row * attrs.hits());
}

void return_weight_grads(const Hop& hop, const Entries& entries, const SendList& sends, const float* returned,
                         float* out, int64_t out_hits) {
  const PeerOf peer_of(hop.experts);
  entries.each([&](int64_t entry) {
    const int32_t* const record = entries.record(entry);
    for (int32_t s = 0; s < record[kCount]; ++s) {
      // Find the entry's row for its peer, and the index of this pair among the row's pairs.
      const int64_t peer = peer_of(expert_of(record, s));
      int32_t at = sends.back_begin[entry];
      while (sends.back[at] / hop.rows != peer) ++at;
      int64_t slot = 0;
      for (int32_t before = 0; before < s; ++before)
        slot += peer_of(expert_of(record, before)) == peer ? 1 : 0;
      out[entry * out_hits + s] = returned[sends.back[at] * hop.hits + slot];
    }
  });
}

void place_weight_grads(const DispatchAttrs& attrs, const int32_t* ids, int64_t begin, int64_t end,
                        const float* grads, float* dweights) {
  for (int64_t token = begin; token < end; ++token) {
    int64_t count = 0;
    for (int64_t s = 0; s < attrs.k; ++s) {
      const bool goes = ids[token * attrs.k + s] >= 0;
      dweights[token * attrs.k + s] = goes ? grads[token * attrs.k + count] : 0;
      count += goes ? 1 : 0;
    }
  }
}

namespace {

template <typename T>
void add_returns_of(const Hop& hop, const Entries& entries, const SendList& sends, int64_t width,
                    std::span<const comm::RowSource> returned, T* out) {
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(T));
  const auto row_of = [&](int64_t back) {
    const int64_t row = sends.back[back];
    return reinterpret_cast<const T*>(
        returned[static_cast<size_t>(row / hop.rows)].row(row % hop.rows, row_bytes));
  };
  const auto add = [&](int64_t entry) {
    std::array<const T*, ops::kMostRanksOfToken> rows;
    size_t count = 0;
    for (int64_t i = sends.back_begin[entry]; i < sends.back_end[entry]; ++i) rows[count++] = row_of(i);
    T* const to = out + entry * width;
    if (count == 1) {
      std::memcpy(to, rows[0], static_cast<size_t>(row_bytes));
    } else {
      sum_rows(to, std::span<const T* const>(rows.data(), count), width);
    }
  };
  for (int64_t b = 0; b < entries.blocks; ++b) {
    parallel_ranges(entries.counts[b], kRowsATask, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) add(b * entries.block + entries.first + i);
    });
  }
}

}  // namespace

void add_returns(const Hop& hop, const Entries& entries, const SendList& sends, int64_t width, DType dtype,
                 std::span<const comm::RowSource> returned, std::byte* out) {
  if (dtype == DType::kBF16) {
    add_returns_of(hop, entries, sends, width, returned, reinterpret_cast<BF16*>(out));
  } else if (dtype == DType::kF16) {
    add_returns_of(hop, entries, sends, width, returned, reinterpret_cast<F16*>(out));
  } else {
    add_returns_of(hop, entries, sends, width, returned, reinterpret_cast<float*>(out));
  }
}

}  // namespace strata::device
