#include "device/expert_routes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"

namespace strata::device {

using ops::ExpertParallelAttrs;

namespace {

constexpr int64_t kTokensATask = 64;

void check_id(const ExpertParallelAttrs& attrs, int32_t id, int64_t token, int64_t slot) {
  STRATA_CHECK(id >= -1 && id < attrs.experts,
               "[expert_parallel] slot {} of token {} goes to expert {}; one of [0, {}) was expected", slot,
               token, id, attrs.experts);
}

// Counts the slots of a token by rank, and lists the ranks that have any, ascending.
template <typename Visit>
void for_each_rank(const ExpertParallelAttrs& attrs, const int32_t* ids, int64_t token, int32_t* slot_counts,
                   const Visit& visit) {
  const int64_t own = attrs.own_experts();
  const int32_t* const chosen = ids + token * attrs.k;
  for (int64_t s = 0; s < attrs.k; ++s) {
    check_id(attrs, chosen[s], token, s);
    if (chosen[s] >= 0) ++slot_counts[chosen[s] / own];
  }
  // Few of many: those of the token's slots, the least first, each once.
  int64_t before = -1;
  for (;;) {
    int64_t next = attrs.ranks;
    for (int64_t s = 0; s < attrs.k; ++s) {
      const int64_t rank = chosen[s] < 0 ? -1 : chosen[s] / own;
      if (rank > before) next = std::min(next, rank);
    }
    if (next == attrs.ranks) break;
    visit(next, slot_counts[next]);
    slot_counts[next] = 0;
    before = next;
  }
}

}  // namespace

int64_t first_overflow(const ExpertParallelAttrs& attrs, const int32_t* ids, int64_t begin, int64_t* rows,
                       int64_t* slots) {
  std::fill_n(rows, attrs.ranks, 0);
  std::fill_n(slots, attrs.ranks, 0);
  const int64_t own = attrs.own_experts();
  for (int64_t token = begin; token < attrs.tokens; ++token) {
    const int32_t* const chosen = ids + token * attrs.k;
    for (int64_t s = 0; s < attrs.k; ++s) {
      check_id(attrs, chosen[s], token, s);
      if (chosen[s] < 0) continue;
      const int64_t rank = chosen[s] / own;
      bool is_first = true;
      for (int64_t before = 0; before < s; ++before)
        is_first = is_first && (chosen[before] < 0 || chosen[before] / own != rank);
      rows[rank] += is_first ? 1 : 0;
      ++slots[rank];
      if (rows[rank] > attrs.room.rows || slots[rank] > attrs.room.slots) return token;
    }
  }
  return attrs.tokens;
}

void find_departures(const ExpertParallelAttrs& attrs, const int32_t* ids, int64_t begin, int64_t end,
                     const Departures& out) {
  std::fill_n(out.counts, attrs.ranks, 0);
  std::fill_n(out.slot_counts, attrs.ranks, 0);
  int32_t at = 0;
  for (int64_t token = begin; token < end; ++token) {
    out.back_begin[token] = at;
    for_each_rank(attrs, ids, token, out.slot_counts, [&](int64_t rank, int32_t) {
      const int64_t row = rank * attrs.room.rows + out.counts[rank]++;
      STRATA_CHECK(out.counts[rank] <= attrs.room.rows, "[expert_parallel] a round has too many tokens");
      out.tokens[row] = static_cast<int32_t>(token);
      out.back[at++] = static_cast<int32_t>(row);
    });
  }
  out.back_begin[end] = at;
}

void write_records(const ExpertParallelAttrs& attrs, const int32_t* ids, const float* weights,
                   const Departures& departures, int32_t* records) {
  const int64_t words = words_of_record(attrs), own = attrs.own_experts();
  for (int64_t rank = 0; rank < attrs.ranks; ++rank) {
    const int64_t first = rank * attrs.room.rows;
    parallel_ranges(departures.counts[rank], kTokensATask, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        const int64_t token = departures.tokens[first + i];
        int32_t* const record = records + (first + i) * words;
        record[0] = static_cast<int32_t>(token);
        int32_t count = 0;
        for (int64_t slot = token * attrs.k; slot < (token + 1) * attrs.k; ++slot) {
          if (ids[slot] < 0 || ids[slot] / own != rank) continue;
          record[2 + 2 * count] = static_cast<int32_t>(ids[slot] - rank * own);
          record[3 + 2 * count] = std::bit_cast<int32_t>(weights[slot]);
          ++count;
        }
        record[1] = count;
      }
    });
  }
}

void order_arrivals(const ExpertParallelAttrs& attrs, const int32_t* records, const Arrivals& arrivals,
                    int32_t* source, int32_t* offsets, int32_t* slot_ids, float* slot_weights) {
  const int64_t words = words_of_record(attrs);
  int32_t* const next = arrivals.by_token;
  std::fill_n(next, attrs.tokens + 1, 0);
  const auto each = [&](const auto& visit) {
    for (int64_t rank = 0; rank < attrs.ranks; ++rank) {
      for (int64_t i = rank * attrs.room.rows; i < rank * attrs.room.rows + arrivals.counts[rank]; ++i)
        visit(rank, i, records + i * words);
    }
  };
  each([&](int64_t, int64_t, const int32_t* record) {
    STRATA_CHECK(record[0] >= 0 && record[0] < attrs.tokens && record[1] >= 0 && record[1] <= attrs.hits(),
                 "[expert_parallel] a row of token {} with {} slots has come", record[0], record[1]);
    ++next[record[0] + 1];
  });
  for (int64_t token = 0; token < attrs.tokens; ++token) next[token + 1] += next[token];
  const int64_t rows = next[attrs.tokens];
  // Slots of each row first, so that where they begin is known.
  each([&](int64_t rank, int64_t i, const int32_t* record) {
    const int32_t row = next[record[0]]++;
    arrivals.places[i] = row;
    source[row] = static_cast<int32_t>(rank);
    offsets[row + 1] = record[1];
  });
  offsets[0] = 0;
  for (int64_t row = 0; row < rows; ++row) offsets[row + 1] += offsets[row];
  const int32_t used = offsets[rows];
  STRATA_CHECK(used <= attrs.slots(), "[expert_parallel] {} slots have come, and there is room for {}", used,
               attrs.slots());
  std::fill(offsets + rows + 1, offsets + attrs.rows() + 1, used);
  std::fill(source + rows, source + attrs.rows(), -1);
  each([&](int64_t, int64_t i, const int32_t* record) {
    const int32_t first = offsets[arrivals.places[i]];
    for (int32_t s = 0; s < record[1]; ++s) {
      slot_ids[first + s] = record[2 + 2 * s];
      slot_weights[first + s] = std::bit_cast<float>(record[3 + 2 * s]);
    }
  });
  std::fill(slot_ids + used, slot_ids + attrs.slots(), 0);
  std::fill(slot_weights + used, slot_weights + attrs.slots(), 0.0f);
}

void find_arrivals(const ExpertParallelAttrs& attrs, const int32_t* source, const Arrivals& arrivals) {
  std::fill_n(arrivals.counts, attrs.ranks, 0);
  for (int64_t row = 0; row < attrs.rows() && source[row] >= 0; ++row)
    arrivals.places[source[row] * attrs.room.rows + arrivals.counts[source[row]]++] =
        static_cast<int32_t>(row);
}

void write_weight_grads(const ExpertParallelAttrs& attrs, const int32_t* offsets, const float* slot_grads,
                        float* records) {
  const int64_t hits = attrs.hits();
  for (int64_t row = 0; row < attrs.rows(); ++row) {
    for (int32_t slot = offsets[row]; slot < offsets[row + 1]; ++slot)
      records[row * hits + slot - offsets[row]] = slot_grads[slot];
  }
}

void read_weight_grads(const ExpertParallelAttrs& attrs, const int32_t* ids, int64_t begin, int64_t end,
                       const Departures& departures, const float* records, float* dweights) {
  const int64_t hits = attrs.hits(), own = attrs.own_experts();
  parallel_ranges(end - begin, kTokensATask, [&](int64_t from, int64_t to) {
    for (int64_t token = begin + from; token < begin + to; ++token) {
      const int32_t* const chosen = ids + token * attrs.k;
      for (int64_t s = 0; s < attrs.k; ++s) {
        float value = 0;
        if (chosen[s] >= 0) {
          // Which of the token's rows is that of its rank, and which of the row's slots this one is.
          const int64_t rank = chosen[s] / own;
          int64_t at = departures.back_begin[token];
          while (departures.back[at] / attrs.room.rows != rank) ++at;
          const auto slot =
              std::count_if(chosen, chosen + s, [&](int32_t id) { return id >= 0 && id / own == rank; });
          value = records[departures.back[at] * hits + slot];
        }
        dweights[token * attrs.k + s] = value;
      }
    }
  });
}

namespace {

template <typename T>
void add_returns_of(const Departures& departures, int64_t begin, int64_t end, int64_t width,
                    const T* returned, T* y) {
  constexpr int64_t kBlock = 512;  // columns summed at once
  parallel_ranges(end - begin, kTokensATask, [&](int64_t from, int64_t to) {
    float sums[kBlock];
    for (int64_t token = begin + from; token < begin + to; ++token) {
      const int64_t first = departures.back_begin[token], last = departures.back_begin[token + 1];
      T* const out = y + token * width;
      if (last - first == 1) {
        std::memcpy(out, returned + departures.back[first] * width, static_cast<size_t>(width) * sizeof(T));
        continue;
      }
      for (int64_t column = 0; column < width; column += kBlock) {
        const int64_t columns = std::min(kBlock, width - column);
        std::fill_n(sums, columns, 0.0f);
        for (int64_t i = first; i < last; ++i) {
          const T* const row = returned + departures.back[i] * width + column;
          for (int64_t c = 0; c < columns; ++c) sums[c] += static_cast<float>(row[c]);
        }
        for (int64_t c = 0; c < columns; ++c) out[column + c] = static_cast<T>(sums[c]);
      }
    }
  });
}

}  // namespace

void add_returns(const Departures& departures, int64_t begin, int64_t end, int64_t width, DType dtype,
                 const std::byte* returned, std::byte* y) {
  if (dtype == DType::kBF16) {
    add_returns_of(departures, begin, end, width, reinterpret_cast<const BF16*>(returned),
                   reinterpret_cast<BF16*>(y));
  } else {
    add_returns_of(departures, begin, end, width, reinterpret_cast<const float*>(returned),
                   reinterpret_cast<float*>(y));
  }
}

}  // namespace strata::device
