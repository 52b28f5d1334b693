#include "comm/plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"

namespace strata::comm {
namespace {

void check_runs(const Plan& plan, size_t transfer, const Runs& runs, DType dtype, int64_t limit,
                const char* side) {
  for (const Run& run : runs) {
    STRATA_CHECK(run.offset >= 0 && run.bytes >= 0 && run.count >= 0 && run.bytes % size_of(dtype) == 0 &&
                     run.offset % size_of(dtype) == 0,
                 "[{}] transfer {}: invalid run of {} × {} bytes at {} on the {} side", plan.label, transfer,
                 run.count, run.bytes, run.offset, side);
    if (run.total() == 0) continue;
    const int64_t last = run.offset + (run.count - 1) * run.stride;
    STRATA_CHECK(run.count == 1 || run.stride >= run.bytes,
                 "[{}] transfer {}: runs of {} bytes with stride {} overlap", plan.label, transfer, run.bytes,
                 run.stride);
    STRATA_CHECK(last + run.bytes <= limit, "[{}] transfer {}: a run ends at {} in a buffer of {} bytes",
                 plan.label, transfer, last + run.bytes, limit);
  }
}

std::vector<Stream> streams_of(const std::vector<Runs>& all) {
  std::vector<Stream> streams;
  streams.reserve(all.size());
  for (const Runs& runs : all) streams.emplace_back(runs);
  return streams;
}

}  // namespace

Domains domains_of(const Topology& topology, int size) {
  STRATA_CHECK(topology.domain_of.empty() || std::ssize(topology.domain_of) == size,
               "a topology of {} members for a group of {}", topology.domain_of.size(), size);
  std::vector<int> numbers;  // in order of their first members
  std::map<int, std::vector<int>> members;
  for (int member = 0; member < size; ++member) {
    const int domain = topology.domain_of.empty() ? 0 : topology.domain_of[static_cast<size_t>(member)];
    if (!members.contains(domain)) numbers.push_back(domain);
    members[domain].push_back(member);
  }
  Domains result;
  for (const int domain : numbers) {
    const std::vector<int>& inside = members[domain];
    result.members.insert(result.members.end(), inside.begin(), inside.end());
    result.ends.push_back(static_cast<int>(result.members.size()));
  }
  return result;
}

Plan make_plan(Operation operation, int rank, int size) {
  Plan plan{.collective = operation.collective,
            .rank = rank,
            .size = size,
            .root = operation.root,
            .label = std::move(operation.label),
            .transfers = {}};
  STRATA_CHECK(operation.payload == DType::kF32 || operation.payload == DType::kBF16,
               "[{}] found payload {}: expected f32 or bf16", plan.label, name_of(operation.payload));
  STRATA_CHECK(operation.root >= 0 && operation.root < size, "[{}] found root {}: expected a member below {}",
               plan.label, operation.root, size);
  const bool exchange = plan.collective == Collective::kExchange;
  const bool scatter = plan.collective == Collective::kReduceScatter;
  for (size_t t = 0; t < operation.transfers.size(); ++t) {
    Transfer& from = operation.transfers[t];
    TransferPlan& to = plan.transfers.emplace_back();
    to.dtype = to.wire = from.dtype;
    to.bytes = from.bytes;
    if (plan.sums() && from.dtype == DType::kF32) to.wire = operation.payload;
    STRATA_CHECK(!plan.sums() || from.dtype != DType::kBool, "[{}] transfer {}: cannot sum bool", plan.label,
                 t);
    STRATA_CHECK(from.bytes >= 0 && from.bytes % size_of(from.dtype) == 0,
                 "[{}] transfer {}: {} bytes of {} are not whole elements", plan.label, t, from.bytes,
                 name_of(from.dtype));
    if (exchange || scatter) {
      STRATA_CHECK(from.send.size() == 1 || std::ssize(from.send) == size,
                   "[{}] transfer {}: found sends to {} members: expected 1 or {}", plan.label, t,
                   from.send.size(), size);
      STRATA_CHECK(from.receive.size() == (scatter ? 1 : static_cast<size_t>(size)),
                   "[{}] transfer {}: found receives from {} members: expected {}", plan.label, t,
                   from.receive.size(), scatter ? 1 : size);
      for (const Runs& runs : from.send) check_runs(plan, t, runs, from.dtype, INT64_MAX, "sending");
      for (const Runs& runs : from.receive) check_runs(plan, t, runs, from.dtype, from.bytes, "receiving");
      to.send = streams_of(from.send);
      to.receive = streams_of(from.receive);
      const int64_t own = to.sent_to(rank).bytes(), back = to.got_from(rank).bytes();
      STRATA_CHECK(own == back, "[{}] transfer {}: member {} sends itself {} bytes and receives {}",
                   plan.label, t, rank, own, back);
      to.gaps = gaps_of(to.receive, to.bytes);
      for (const Stream& stream : to.receive) plan.bytes += stream.bytes();
    } else {
      STRATA_CHECK(from.send.empty() && from.receive.empty(),
                   "[{}] transfer {}: found runs: expected whole buffers", plan.label, t);
      to.send = to.receive = streams_of({{{.offset = 0, .bytes = from.bytes}}});
      plan.bytes += from.bytes;
    }
  }
  return plan;
}

void zero_gaps(const TransferPlan& transfer, void* receive) {
  for (const Run& gap : transfer.gaps) {
    std::memset(static_cast<std::byte*>(receive) + gap.offset, 0, static_cast<size_t>(gap.bytes));
  }
}

void check_rows(const RowExchange& exchange, int size) {
  STRATA_CHECK(std::ssize(exchange.sends) == size && std::ssize(exchange.receives) == size,
               "[comm] found rows to {} and from {} members: expected {}", exchange.sends.size(),
               exchange.receives.size(), size);
}

bool copy_rows(const RowSet& from, const std::byte* send, const RowSet& to, std::byte* receive,
               int64_t row_bytes, FunctionRef<bool()> stops) {
  constexpr int64_t kBetween = 1 << 20;  // bytes between two calls of stops()
  const int64_t most = std::max<int64_t>(1, kBetween / std::max<int64_t>(1, row_bytes));
  for (int64_t i = 0, rows = 1; i < from.count; i += rows) {
    if (stops()) return false;
    // Copy rows that are consecutive on both sides together, which is faster.
    for (rows = 1; rows < most && i + rows < from.count; ++rows) {
      if (from.row(i + rows) != from.row(i) + rows || to.row(i + rows) != to.row(i) + rows) break;
    }
    std::memcpy(receive + to.row(i) * row_bytes, send + from.row(i) * row_bytes,
                static_cast<size_t>(rows * row_bytes));
  }
  return true;
}

void check_buffers(const Plan& plan, std::span<const Buffers> buffers) {
  STRATA_CHECK(buffers.size() == plan.transfers.size(), "[{}] found buffers for {} transfers: expected {}",
               plan.label, buffers.size(), plan.transfers.size());
  for (size_t t = 0; t < buffers.size(); ++t) {
    const Buffers& one = buffers[t];
    STRATA_CHECK(!one.adds || (plan.sums() && (one.send != one.receive || plan.transfers[t].bytes == 0)),
                 "[{}] only sums can accumulate into the receive buffer, and not in place", plan.label);
  }
}

Share share_of(int64_t elements, DType dtype, int member, int size) {
  const int64_t line = 64 / size_of(dtype);
  const int64_t lines = (elements + line - 1) / line;
  const auto edge = [&](int64_t i) {
    return std::min(elements, (lines / size * i + lines % size * i / size) * line);
  };
  return {edge(member), edge(member + 1)};
}

WorldOptions checked(WorldOptions options) {
  STRATA_CHECK(options.silence_limit > 0 && options.wait_limit > 0,
               "found limits of {} s and {} s: expected positive values", options.silence_limit,
               options.wait_limit);
  STRATA_CHECK(options.chunk_bytes >= 64, "found chunks of {} bytes: expected at least 64",
               options.chunk_bytes);
  options.chunk_bytes -= options.chunk_bytes % 64;
  return options;
}

int member_of(std::span<const int> ranks, int rank, int world, const std::string& name) {
  int member = -1;
  std::set<int> seen;
  for (const int one : ranks) {
    STRATA_CHECK(one >= 0 && one < world && seen.insert(one).second,
                 "group '{}': rank {} is repeated or not below {}", name, one, world);
    if (one == rank) member = static_cast<int>(seen.size()) - 1;
  }
  STRATA_CHECK(member >= 0, "group '{}' is created on rank {}, which is not a member", name, rank);
  return member;
}

}  // namespace strata::comm
