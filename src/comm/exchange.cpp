#include "comm/exchange.h"

#include <algorithm>
#include <numeric>

namespace strata::comm {
namespace {

void run(Communicator& group, Operation operation, const Buffers& buffers) {
  const auto prepared = group.prepare(std::move(operation));
  group.wait(group.start(*prepared, {&buffers, 1}));
}

// Gathers one value of each member, all of the same size.
template <class T>
std::vector<T> gather(Communicator& group, DType dtype, T value, const char* label) {
  if (group.size() == 1) return {value};
  std::vector<T> values(static_cast<size_t>(group.size()));
  Transfer transfer{.dtype = dtype,
                    .send = {{{.offset = 0, .bytes = sizeof(T)}}},
                    .bytes = static_cast<int64_t>(values.size() * sizeof(T))};
  for (size_t i = 0; i < values.size(); ++i) {
    transfer.receive.push_back({{.offset = static_cast<int64_t>(i * sizeof(T)), .bytes = sizeof(T)}});
  }
  run(group, {.collective = Collective::kExchange, .transfers = {transfer}, .label = label},
      {.send = &value, .receive = values.data()});
  return values;
}

}  // namespace

std::vector<std::string> gather_texts(Communicator& group, std::string_view text) {
  if (group.size() == 1) return {std::string(text)};
  const auto sizes = gather(group, DType::kI64, static_cast<int64_t>(text.size()), "sizes of texts");
  std::string all(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})), '\0');
  Transfer transfer{.dtype = DType::kU8,
                    .send = {{{.offset = 0, .bytes = static_cast<int64_t>(text.size())}}},
                    .bytes = static_cast<int64_t>(all.size())};
  int64_t at = 0;
  for (const int64_t size : sizes) {
    transfer.receive.push_back({{.offset = at, .bytes = size}});
    at += size;
  }
  run(group, {.collective = Collective::kExchange, .transfers = {transfer}, .label = "texts"},
      {.send = text.data(), .receive = all.data()});
  std::vector<std::string> texts;
  at = 0;
  for (const int64_t size : sizes) {
    texts.push_back(all.substr(static_cast<size_t>(at), static_cast<size_t>(size)));
    at += size;
  }
  return texts;
}

std::vector<double> gather_values(Communicator& group, double value) {
  return gather(group, DType::kF64, value, "values");
}

double max_over(Communicator& group, double value) {
  const auto values = gather_values(group, value);
  return *std::max_element(values.begin(), values.end());
}

double min_over(Communicator& group, double value) {
  const auto values = gather_values(group, value);
  return *std::min_element(values.begin(), values.end());
}

double sum_over(Communicator& group, double value) {
  const auto values = gather_values(group, value);
  return std::accumulate(values.begin() + 1, values.end(), values.front());
}

void sum_over(Communicator& group, std::vector<double>& values) {
  if (values.empty() || group.size() == 1) return;
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(double));
  run(group,
      {.collective = Collective::kAllReduce,
       .transfers = {{.dtype = DType::kF64, .bytes = bytes}},
       .label = "values"},
      {.send = values.data(), .receive = values.data()});
}

std::string broadcast_text(Communicator& group, std::string_view text, int root) {
  if (group.size() == 1) return std::string(text);
  const bool mine = group.rank() == root;
  const auto sizes =
      gather(group, DType::kI64, static_cast<int64_t>(mine ? text.size() : 0), "sizes of texts");
  std::string result(mine ? text : std::string_view());
  result.resize(static_cast<size_t>(sizes[static_cast<size_t>(root)]));
  run(group,
      {.collective = Collective::kBroadcast,
       .transfers = {{.dtype = DType::kU8, .bytes = static_cast<int64_t>(result.size())}},
       .root = root,
       .label = "a text"},
      {.send = result.data(), .receive = result.data()});
  return result;
}

}  // namespace strata::comm
