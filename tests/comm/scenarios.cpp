#include "comm/scenarios.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "comm/exchange.h"

namespace strata::comm {
namespace {

// Groups of a 2 × 2 mesh, with many collectives in flight on each, and waits in a different order.
void mesh(World& world) {
  const int rank = world.rank();
  const std::vector<int> row = {rank / 2 * 2, rank / 2 * 2 + 1}, column = {rank % 2, rank % 2 + 2};
  const auto rows = world.group(row, "row"), columns = world.group(column, "column");
  const Operation operation{
      .collective = Collective::kAllReduce, .transfers = {{.bytes = 4000}}, .label = "sum"};
  const auto across = rows->prepare(operation), down = columns->prepare(operation);
  constexpr size_t kCount = 100;  // more than may be in flight at the same time
  std::vector<std::vector<float>> a(kCount), b(kCount);
  std::vector<Ticket> tickets_a, tickets_b;
  for (size_t i = 0; i < kCount; ++i) {
    a[i].assign(1000, static_cast<float>(rank) + static_cast<float>(i));
    b[i].assign(1000, 10 * static_cast<float>(rank) + static_cast<float>(i));
    const Buffers of_a[] = {{a[i].data(), a[i].data()}}, of_b[] = {{b[i].data(), b[i].data()}};
    // Odd ranks start rows and columns in the opposite order.
    if (rank % 2 == 0) tickets_a.push_back(rows->start(*across, of_a));
    tickets_b.push_back(columns->start(*down, of_b));
    if (rank % 2 == 1) tickets_a.push_back(rows->start(*across, of_a));
  }
  if (rank % 2 == 0) columns->wait(tickets_b.back());
  rows->wait(tickets_a.back());
  columns->wait(tickets_b.back());
  for (size_t i = 0; i < kCount; ++i) {
    STRATA_CHECK(rows->test(tickets_a[i]), "collective {} is not done", i);
    const float in_row = static_cast<float>(row[0] + row[1]) + 2 * static_cast<float>(i);
    const float in_column = static_cast<float>(10 * (column[0] + column[1])) + 2 * static_cast<float>(i);
    STRATA_CHECK(a[i] == std::vector<float>(1000, in_row), "collective {} of the row: {}", i, a[i][999]);
    STRATA_CHECK(b[i] == std::vector<float>(1000, in_column), "collective {} of the column: {}", i,
                 b[i][999]);
  }
}

// Exchanges of rows, from and to lists or consecutive places. The values of a row encode its sender and its
// number.
void rows(World& world) {
  const int size = world.size(), rank = world.rank();
  std::vector<int> all;
  for (int one = 0; one < size; ++one) all.push_back(one);
  const auto group = world.group(all, "rows");
  constexpr int64_t kRows = 50, kWidth = 7;
  const auto number = [](int from, int64_t row, int64_t i) {
    return static_cast<float>(from * 1000 + row * 10 + i);
  };
  std::vector<float> send;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < kWidth; ++i) send.push_back(number(rank, row, i));
  }
  const auto count = [&](int from, int to) { return from == 1 && to == 0 ? 0 : (from * 3 + to * 5) % 9; };
  const auto first = [](int from, int to) { return (from + to) % 4; };
  group->reserve_rows(size * 9 * kWidth * 4, size * 9 * kWidth * 4);
  for (const bool listed : {false, true, false}) {
    std::vector<std::vector<int32_t>> picked(static_cast<size_t>(size)), places = picked;
    std::vector<RowSet> sends, receives;
    for (int peer = 0; peer < size; ++peer) {
      const auto at = static_cast<size_t>(peer);
      for (int i = 0; i < count(rank, peer); ++i)
        picked[at].push_back(first(rank, peer) + (listed ? 4 : 1) * i);
      for (int i = 0; i < 9; ++i) places[at].push_back(peer * 9 + 8 - i);
      sends.push_back({listed ? picked[at].data() : nullptr, first(rank, peer), count(rank, peer)});
      receives.push_back({listed ? places[at].data() : nullptr, peer * 9, 9});
    }
    std::vector<float> receive(static_cast<size_t>(size) * 9 * kWidth, -1);
    group->exchange_rows({send.data(), receive.data(), kWidth * 4, sends, receives});
    // Twice more in two halves, now that counts are known: into buffers with other contents, and with the
    // second started before the first has ended.
    std::vector<std::vector<float>> again(2, std::vector<float>(receive.size(), -1));
    std::vector<RowSet> counted = receives;
    const RowExchange halves[] = {{send.data(), again[0].data(), kWidth * 4, sends, counted},
                                  {send.data(), again[1].data(), kWidth * 4, sends, counted}};
    const Ticket begun[] = {group->start_rows(halves[0]), group->start_rows(halves[1])};
    for (const Ticket ticket : begun) group->finish_rows(ticket);
    for (const auto& rows : again) STRATA_CHECK(rows == receive, "rows in two halves differ");
    for (int peer = 0; peer < size; ++peer) {
      STRATA_CHECK(receives[static_cast<size_t>(peer)].count == count(peer, rank), "{} rows from {}",
                   receives[static_cast<size_t>(peer)].count, peer);
      for (int64_t i = 0; i < 9; ++i) {
        const int64_t place = listed ? peer * 9 + 8 - i : peer * 9 + i;
        for (int64_t c = 0; c < kWidth; ++c) {
          const float wanted =
              i < count(peer, rank) ? number(peer, first(peer, rank) + (listed ? 4 : 1) * i, c) : -1;
          const float found = receive[static_cast<size_t>(place * kWidth + c)];
          STRATA_CHECK(found == wanted, "row {} from {} has {}, not {}", i, peer, found, wanted);
        }
      }
    }
  }
}

// Messages around a ring arrive in order; lengths start at 0.
void ring(World& world) {
  const int size = world.size();
  std::vector<int> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(rank);
  const auto group = world.group(all, "ring");
  const int next = (world.rank() + 1) % size, before = (world.rank() + size - 1) % size;
  std::vector<std::vector<int>> out(5), in(5);
  std::vector<Ticket> tickets;
  for (size_t i = 0; i < 5; ++i) {
    out[i].assign(i * 1000, world.rank() * 10 + static_cast<int>(i));
    in[i].resize(out[i].size());
    tickets.push_back(group->send(next, out[i].data(), static_cast<int64_t>(i) * 4000));
  }
  for (size_t i = 0; i < 5; ++i)
    tickets.push_back(group->receive(before, in[i].data(), static_cast<int64_t>(i) * 4000));
  for (const Ticket ticket : tickets) group->wait(ticket);
  for (size_t i = 0; i < 5; ++i) {
    STRATA_CHECK(in[i] == std::vector<int>(i * 1000, before * 10 + static_cast<int>(i)), "message {}", i);
  }
}

// Groups with the same ranks and name are independent; members may be in any order.
void twins(World& world) {
  if (world.rank() > 1) return;
  const int forward[] = {0, 1}, reversed[] = {1, 0};
  const auto one = world.group(forward, "twin"), other = world.group(forward, "twin");
  const auto back = world.group(reversed, "twin");
  STRATA_CHECK(back->rank() == 1 - world.rank(), "member {}", back->rank());
  float value = static_cast<float>(world.rank() + 1), sum = 0, half = 2;
  const auto a = one->prepare({.transfers = {{.bytes = 4}}, .label = "a"});
  const auto b = other->prepare({.transfers = {{.bytes = 4}}, .label = "b"});
  const Buffers of_a[] = {{&value, &sum}}, of_b[] = {{&half, &half}};
  const Ticket first = one->start(*a, of_a), second = other->start(*b, of_b);
  other->wait(second);
  one->wait(first);
  STRATA_CHECK(sum == 3 && half == 4, "sums {} and {}", sum, half);
}

void words(World& world) {
  if (world.rank() > 2) return;
  const int ranks[] = {2, 0, 1};
  const auto group = world.group(ranks, "words");
  const int member = group->rank();
  STRATA_CHECK(ranks[member] == world.rank(), "member {}", member);
  const std::string text(static_cast<size_t>(member) * 100000, static_cast<char>('a' + member));
  const std::vector<std::string> all = {"", std::string(100000, 'b'), std::string(200000, 'c')};
  STRATA_CHECK(gather_texts(*group, text) == all, "texts");
  const std::vector<double> values = {0.5, 1.5, 2.5};
  STRATA_CHECK(gather_values(*group, member + 0.5) == values, "values");
  STRATA_CHECK(max_over(*group, -member) == 0 && min_over(*group, -member) == -2,
               "the largest and smallest value");
  const double terms[] = {1e16, 1, -1e16};
  STRATA_CHECK(sum_over(*group, terms[member]) == (1e16 + 1) + -1e16, "the sum of values");
  STRATA_CHECK(broadcast_text(*group, "of " + std::to_string(member), 2) == "of 2", "a text from member 2");
  STRATA_CHECK(broadcast_text(*group, member == 0 ? "" : "none").empty(), "an empty text");
}

}  // namespace

void run_scenarios(World& world) {
  STRATA_CHECK(world.size() == 4, "four ranks");
  mesh(world);
  ring(world);
  rows(world);
  twins(world);
  words(world);
  world.barrier();
}

}  // namespace strata::comm
