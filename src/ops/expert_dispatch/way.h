// Layout of the `way` of a pass: how rows go to the ranks of their experts and back, as int32 words.
//
// A row takes one hop, to a rank of its experts, or two: to a rank of each node that has any, and on from
// there. A hop sends entries: a rank's own tokens, or the arrivals of the previous hop.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/expert_dispatch/expert_dispatch.h"

namespace strata::ops {

// One hop between the members of a group.
struct Hop {
  int64_t peers = 1;
  int64_t rows = 0;     // from one to another at most
  int64_t experts = 0;  // that a row reaches through one peer
  int64_t hits = 0;     // pairs of a row there at most
  int64_t all_rows() const { return peers * rows; }
  int64_t words() const { return words_of(hits); }
  // Words of the record that travels with a row: its token, its number of pairs at the destination, its
  // source rank, and for each pair its expert, counted from the first that it can reach there, and its
  // weight.
  static int64_t words_of(int64_t slots) { return 3 + 2 * slots; }
};

// Offsets, in words, of the arrays of one hop.
struct HopWay {
  Hop hop;
  int64_t all_entries = 0;  // that can depart
  int64_t entry_slots = 0;  // of one at most
  int64_t entries = 0;      // [peers, rows]: which entries go to a peer
  int64_t counts = 0;       // [peers]: how many
  // [all_entries]: which of `back` are an entry's, and for each of these the row that comes back for it, in
  // the order of the peers.
  int64_t back_begin = 0, back_end = 0, back = 0;
  int64_t arrived_counts = 0;  // [peers]
  int64_t records = -1;        // [all_rows, words] that have arrived; the last hop's are not kept
};

struct Way {
  explicit Way(const DispatchAttrs& attrs);

  static constexpr int64_t kBegin = 0, kEnd = 1;  // the tokens of the pass
  static constexpr int64_t kTokens = 2;           // how many they are
  std::vector<HopWay> hops;
  int64_t places = 0;  // [M]: the row of each that the last hop has brought
  int64_t words = 3;
};

}  // namespace strata::ops
