#include "comm/collective_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

namespace strata::comm {
namespace {

constexpr DType kAll[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI64, DType::kI32,
                          DType::kI16, DType::kI8,   DType::kU16, DType::kU8,  DType::kBool};

uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185u;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44du;
  return x ^ x >> 33;
}

// Values of different magnitudes, so that the order of a sum affects its bits.
void set_value(std::byte* at, DType dtype, uint64_t key) {
  const uint64_t bits = mix(key + 1);
  const auto real = static_cast<float>(
      std::ldexp(static_cast<double>(bits % 4001) - 2000, static_cast<int>(bits >> 40 & 7) - 9));
  switch (dtype) {
    case DType::kF32:
      std::memcpy(at, &real, 4);
      return;
    case DType::kF64: {
      const double wide = static_cast<double>(real) * 1.1;
      std::memcpy(at, &wide, 8);
      return;
    }
    case DType::kBF16: {
      const BF16 half(real);
      std::memcpy(at, &half, 2);
      return;
    }
    case DType::kF16: {
      const uint16_t half = float_to_f16(real);
      std::memcpy(at, &half, 2);
      return;
    }
    case DType::kBool:
      *at = static_cast<std::byte>(bits & 1);
      return;
    default:
      std::memcpy(at, &bits, static_cast<size_t>(size_of(dtype)));
  }
}

void fill(Bytes& bytes, DType dtype, uint64_t key) {
  const auto width = static_cast<size_t>(size_of(dtype));
  for (size_t i = 0; i + width <= bytes.size(); i += width)
    set_value(bytes.data() + i, dtype, key * 1000003 + i);
}

bool exchanges(const Case& one) {
  return one.pattern == Pattern::kAllGather || one.pattern == Pattern::kAllToAll;
}

// The number of elements that `from` sends to `to`: uneven, and sometimes 0.
int64_t amount(const Case& one, int from, int to, size_t transfer) {
  const auto t = static_cast<int64_t>(transfer);
  if (one.pattern == Pattern::kAllToAll)
    return one.elements * ((from + 2 * to + t) % 3) / 2 + (from + to) % 2;
  const int64_t owner = one.pattern == Pattern::kReduceScatter ? to : from;
  return one.elements * ((owner + t + 1) % 4) / 2 + owner % 2;
}

// `elements` elements from `offset` on: contiguous, or in two of a matrix's five columns.
Runs runs_of(int64_t offset, int64_t elements, int64_t width, bool columns) {
  if (!columns) return {{.offset = offset, .bytes = elements * width}};
  Runs runs = {{.offset = offset, .bytes = 2 * width, .count = elements / 2, .stride = 5 * width}};
  if (elements % 2 == 1) runs.push_back({.offset = offset + elements / 2 * 5 * width, .bytes = width});
  return runs;
}
int64_t extent(int64_t elements, int64_t width, bool columns) {
  return (columns ? (elements / 2 + 1) * 5 : elements) * width;
}

Bytes gathered(const Bytes& buffer, const Runs& runs) {
  Bytes result;
  for (const Run& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      const auto* at = buffer.data() + run.offset + i * run.stride;
      result.insert(result.end(), at, at + run.bytes);
    }
  }
  return result;
}

void scatter(Bytes& buffer, const Runs& runs, const Bytes& from) {
  auto at = from.begin();
  for (const Run& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) {
      std::copy_n(at, run.bytes, buffer.begin() + run.offset + i * run.stride);
      at += run.bytes;
    }
  }
}

float round_to(float value, DType wire) {
  if (wire == DType::kBF16) return static_cast<float>(BF16(value));
  if (wire == DType::kF16) return f16_to_float(float_to_f16(value));
  return value;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float load_float(const std::byte* at, DType dtype) {
  if (dtype == DType::kBF16) return static_cast<float>(load<BF16>(at));
  if (dtype == DType::kF16) return f16_to_float(load<uint16_t>(at));
  return load<float>(at);
}

using Groups = std::vector<std::vector<size_t>>;

// Sums one element over members, and accumulates into `out` if `adds`.
template <class T>
void sum_plain(const Groups& groups, const std::vector<const std::byte*>& at, bool adds, std::byte* out) {
  T total{};
  for (size_t g = 0; g < groups.size(); ++g) {
    T sum = load<T>(at[groups[g][0]]);
    for (size_t i = 1; i < groups[g].size(); ++i) sum = static_cast<T>(sum + load<T>(at[groups[g][i]]));
    total = g == 0 ? sum : static_cast<T>(total + sum);
  }
  if (adds) total = static_cast<T>(load<T>(out) + total);
  std::memcpy(out, &total, sizeof total);
}

void sum_element(const Case& one, DType dtype, const Groups& groups, const std::vector<const std::byte*>& at,
                 std::byte* out) {
  switch (dtype) {
    case DType::kF64:
      return sum_plain<double>(groups, at, one.adds, out);
    case DType::kI64:
      return sum_plain<uint64_t>(groups, at, one.adds, out);
    case DType::kI32:
      return sum_plain<uint32_t>(groups, at, one.adds, out);
    case DType::kI16:
    case DType::kU16:
      return sum_plain<uint16_t>(groups, at, one.adds, out);
    case DType::kI8:
    case DType::kU8:
      return sum_plain<uint8_t>(groups, at, one.adds, out);
    default:
      break;
  }
  const DType wire = dtype == DType::kF32 ? one.payload : dtype;
  float total = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    float sum = round_to(load_float(at[groups[g][0]], dtype), wire);
    for (size_t i = 1; i < groups[g].size(); ++i) sum += round_to(load_float(at[groups[g][i]], dtype), wire);
    if (groups.size() > 1) sum = round_to(sum, wire);
    total = g == 0 ? sum : total + sum;
  }
  if (one.pattern == Pattern::kAllReduce) total = round_to(total, wire);
  if (one.adds) total = load_float(out, dtype) + total;
  if (dtype == DType::kF32) {
    std::memcpy(out, &total, 4);
  } else if (dtype == DType::kBF16) {
    const BF16 half(total);
    std::memcpy(out, &half, 2);
  } else {
    const uint16_t half = float_to_f16(total);
    std::memcpy(out, &half, 2);
  }
}

}  // namespace

Topology topology_of(Domaining domaining, int size) {
  Topology topology;
  for (int member = 0; member < size && domaining != Domaining::kOne; ++member) {
    const int domain = domaining == Domaining::kUneven        ? (3 * member < 2 * size ? 7 : 4)
                       : domaining == Domaining::kInterleaved ? member % 2
                                                              : member;
    topology.domain_of.push_back(domain);
  }
  return topology;
}

Member member_of_case(const Case& one, int rank, int size) {
  Member member;
  member.operation.collective = exchanges(one)                           ? Collective::kExchange
                                : one.pattern == Pattern::kReduceScatter ? Collective::kReduceScatter
                                : one.pattern == Pattern::kAllReduce     ? Collective::kAllReduce
                                                                         : Collective::kBroadcast;
  member.operation.payload = one.payload;
  member.operation.label = one.name;
  member.operation.root = size - 1;
  const auto count = one.dtypes.size();
  member.send.resize(count);
  member.receive.resize(count);
  for (size_t t = 0; t < count; ++t) {
    const DType dtype = one.dtypes[t];
    const int64_t width = size_of(dtype);
    Transfer transfer{.dtype = dtype};
    int64_t send_bytes = 0, receive_bytes = 0;
    // Alternate by transfer which side has columns; the other is contiguous.
    const bool columns = t % 2 == 1;
    if (one.pattern == Pattern::kAllGather) {
      int64_t own_offset = 0;
      for (int from = 0; from < size; ++from) {
        const int64_t n = amount(one, from, 0, t);
        receive_bytes += 3 * width;  // padding
        if (from == rank) own_offset = receive_bytes;
        transfer.receive.push_back(runs_of(receive_bytes, n, width, !columns));
        receive_bytes += extent(n, width, !columns);
      }
      const int64_t n = amount(one, rank, 0, t);
      transfer.send = {
          runs_of(one.in_place ? own_offset : width, n, width, one.in_place ? !columns : columns)};
      send_bytes = width + extent(n, width, columns);
    } else if (one.pattern == Pattern::kAllToAll || one.pattern == Pattern::kReduceScatter) {
      for (int to = 0; to < size; ++to) {
        const int64_t n = amount(one, rank, to, t);
        transfer.send.push_back(runs_of(send_bytes, n, width, columns));
        send_bytes += extent(n, width, columns);
      }
      for (int from = 0; from < (one.pattern == Pattern::kAllToAll ? size : 1); ++from) {
        const int64_t n = amount(one, from, rank, t);
        transfer.receive.push_back(runs_of(receive_bytes + width, n, width, !columns));
        receive_bytes += width + extent(n, width, !columns);
      }
    } else {
      send_bytes = receive_bytes = (one.elements * 3 / (static_cast<int64_t>(t) + 1)) * width;
    }
    transfer.bytes = receive_bytes;
    member.operation.transfers.push_back(transfer);
    member.send[t].resize(static_cast<size_t>(one.in_place ? 0 : send_bytes));
    member.receive[t].resize(static_cast<size_t>(receive_bytes));
    fill(member.send[t], dtype, static_cast<uint64_t>(rank) * 100 + t);
    fill(member.receive[t], dtype, static_cast<uint64_t>(rank) * 100 + t + 50);
    member.buffers.push_back({.send = one.in_place ? member.receive[t].data() : member.send[t].data(),
                              .receive = member.receive[t].data(),
                              .adds = one.adds});
  }
  return member;
}

namespace {

std::vector<Bytes> expected_result(const Case& one, size_t me, const std::vector<Member>& members) {
  const int size = static_cast<int>(members.size());
  std::vector<Bytes> results = members[me].receive;
  Groups groups;
  std::map<int, size_t> group_of;
  const Topology topology = topology_of(one.domaining, size);
  for (size_t i = 0; i < members.size(); ++i) {
    const int domain = topology.domain_of.empty() ? 0 : topology.domain_of[i];
    if (!group_of.contains(domain)) {
      group_of[domain] = groups.size();
      groups.emplace_back();
    }
    groups[group_of[domain]].push_back(i);
  }
  for (size_t t = 0; t < results.size(); ++t) {
    const auto sent = [&](size_t from) -> const Bytes& {
      return one.in_place ? members[from].receive[t] : members[from].send[t];
    };
    const Transfer& transfer = members[me].operation.transfers[t];
    if (one.pattern == Pattern::kBroadcast) {
      results[t] = sent(members.size() - 1);
      continue;
    }
    std::vector<Bytes> parts;  // from each member, for this one
    for (size_t i = 0; i < members.size(); ++i) {
      const std::vector<Runs>& runs = members[i].operation.transfers[t].send;
      parts.push_back(runs.empty() ? sent(i) : gathered(sent(i), runs[runs.size() == 1 ? 0 : me]));
    }
    const Bytes before = results[t];
    if (!transfer.receive.empty() && !one.adds) std::fill(results[t].begin(), results[t].end(), std::byte{0});
    if (exchanges(one)) {
      for (size_t i = 0; i < members.size(); ++i) scatter(results[t], transfer.receive[i], parts[i]);
      continue;
    }
    Bytes sums = transfer.receive.empty() ? before : gathered(before, transfer.receive[0]);
    const auto width = static_cast<size_t>(size_of(one.dtypes[t]));
    std::vector<const std::byte*> at(parts.size());
    for (size_t i = 0; i < sums.size(); i += width) {
      for (size_t m = 0; m < parts.size(); ++m) at[m] = parts[m].data() + i;
      sum_element(one, one.dtypes[t], groups, at, sums.data() + i);
    }
    if (transfer.receive.empty()) {
      results[t] = sums;
    } else {
      scatter(results[t], transfer.receive[0], sums);
    }
  }
  return results;
}

}  // namespace

std::vector<std::vector<Bytes>> expected_results(const Case& one, int size) {
  std::vector<Member> members;
  for (int i = 0; i < size; ++i) members.push_back(member_of_case(one, i, size));
  std::vector<std::vector<Bytes>> results;
  for (size_t i = 0; i < members.size(); ++i) results.push_back(expected_result(one, i, members));
  return results;
}

std::vector<Case> collective_cases() {
  std::vector<DType> all(std::begin(kAll), std::end(kAll)), sums(std::begin(kAll), std::end(kAll) - 1);
  const std::vector<DType> few = {DType::kF32, DType::kBF16, DType::kF32};
  std::vector<Case> cases;
  for (const int64_t elements : {0, 1, 40, 1501}) {
    const auto named = [&](const char* what) {
      return std::string(what) + " of " + std::to_string(elements);
    };
    const auto& dtypes = elements == 40 ? all : few;
    const auto& summed = elements == 40 ? sums : few;
    cases.push_back({named("all-gather"), Pattern::kAllGather, dtypes, elements});
    cases.push_back({.name = named("all-gather in place"),
                     .pattern = Pattern::kAllGather,
                     .dtypes = dtypes,
                     .elements = elements,
                     .in_place = true});
    cases.push_back({.name = named("all-gather by domains"),
                     .pattern = Pattern::kAllGather,
                     .dtypes = dtypes,
                     .elements = elements,
                     .domaining = Domaining::kUneven});
    cases.push_back({named("all-to-all"), Pattern::kAllToAll, dtypes, elements});
    cases.push_back({.name = named("all-to-all by domains"),
                     .pattern = Pattern::kAllToAll,
                     .dtypes = dtypes,
                     .elements = elements,
                     .domaining = Domaining::kInterleaved});
    cases.push_back({named("broadcast"), Pattern::kBroadcast, dtypes, elements});
    cases.push_back({.name = named("broadcast in place by domains"),
                     .pattern = Pattern::kBroadcast,
                     .dtypes = dtypes,
                     .elements = elements,
                     .in_place = true,
                     .domaining = Domaining::kUneven});
    for (const Pattern pattern : {Pattern::kReduceScatter, Pattern::kAllReduce}) {
      const std::string what = pattern == Pattern::kAllReduce ? "all-reduce" : "reduce-scatter";
      int variant = 0;
      for (const DType payload : {DType::kF32, DType::kBF16}) {
        for (const Domaining domaining :
             {Domaining::kOne, Domaining::kUneven, Domaining::kInterleaved, Domaining::kSingles}) {
          for (const bool adds : {false, true}) {
            cases.push_back({.name = named(what.c_str()) + ", variant " + std::to_string(variant++),
                             .pattern = pattern,
                             .dtypes = summed,
                             .elements = elements,
                             .payload = payload,
                             .adds = adds,
                             .domaining = domaining});
          }
          if (pattern == Pattern::kAllReduce) {
            cases.push_back({.name = named("all-reduce in place, ") + std::to_string(variant),
                             .pattern = pattern,
                             .dtypes = summed,
                             .elements = elements,
                             .payload = payload,
                             .in_place = true,
                             .domaining = domaining});
          }
        }
      }
    }
  }
  return cases;
}

std::vector<Bytes> run_case(Communicator& communicator, const Case& one) {
  Member member = member_of_case(one, communicator.rank(), communicator.size());
  const auto prepared = communicator.prepare(member.operation);
  communicator.wait(communicator.start(*prepared, member.buffers));
  return member.receive;
}

std::vector<std::vector<Bytes>> run_all_cases(World& world, const std::vector<Case>& cases) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::unique_ptr<Communicator>> groups;
  for (const Domaining domaining :
       {Domaining::kOne, Domaining::kUneven, Domaining::kInterleaved, Domaining::kSingles}) {
    groups.push_back(world.group(ranks, "cases", topology_of(domaining, world.size())));
  }
  std::vector<std::vector<Bytes>> results;
  for (const Case& one : cases) results.push_back(run_case(*groups[static_cast<size_t>(one.domaining)], one));
  return results;
}

}  // namespace strata::comm
