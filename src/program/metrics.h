// Metrics of a program (graph/metric.h), as one rank reads them.
#pragma once

#include <span>
#include <vector>

#include "graph/metric.h"
#include "program/executor.h"

namespace strata::program {

// A metric that was looked up once. Reads the executor's current values; valid as long as the executor.
class Metric {
 public:
  Metric() = default;  // absent
  Metric(const Executor& executor, size_t program, graph::MetricKind kind, int32_t index = 0);

  // Whether the program has it on this rank.
  bool is_here() const { return value_ != graph::kNone; }
  // Whether sums over ranks take this rank's: of those that hold the same number the first reports it.
  bool is_reported() const { return reports_; }

  // The first of the ranks that hold the same number: this rank if it reports it.
  int64_t first_holder() const;

  // The first numbers, as many as `to` has; InternalError if the metric is absent.
  template <typename T>
  void read_into(std::span<T> to) const {
    download(to.data(), static_cast<int64_t>(to.size_bytes()));
  }
  template <typename T>
  T read() const {
    T value{};
    read_into(std::span(&value, 1));
    return value;
  }
  template <typename T>
  std::vector<T> read_all() const {
    std::vector<T> values(static_cast<size_t>(bytes()) / sizeof(T));
    read_into(std::span(values));
    return values;
  }
  // The number if this rank reports it, else 0.
  template <typename T>
  T read_reported() const {
    return reports_ ? read<T>() : T{};
  }

 private:
  int64_t bytes() const;
  void download(void* to, int64_t bytes) const;

  const Executor* executor_ = nullptr;
  size_t program_ = 0;
  graph::ValueId value_ = graph::kNone;
  bool reports_ = false;
};

}  // namespace strata::program
