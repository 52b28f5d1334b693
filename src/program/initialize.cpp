#include "program/initialize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "base/random.h"
#include "graph/shard.h"

namespace strata::program {

using graph::Axis;

namespace {

constexpr int64_t kAligned = 4;  // numbers that one counter yields

// Numbers of U(low, high); element i is the word i % 4 of the counter i / 4.
void fill_uniform(double low, double high, const RandomKey& key, int64_t begin, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const auto element = begin + static_cast<int64_t>(i);
    const uint32_t bits =
        philox(key, static_cast<uint64_t>(element / kAligned))[static_cast<size_t>(element % kAligned)];
    out[i] = static_cast<float>(low + (high - low) * (bits + 0.5) * 0x1p-32);
  }
}

// Elements [begin, begin + out.size()) of a parameter before its parts are scaled.
void fill(const graph::Init& init, const RandomKey& key, int64_t begin, std::span<float> out) {
  switch (init.kind) {
    case graph::Init::Kind::kZeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case graph::Init::Kind::kOnes:
      std::fill(out.begin(), out.end(), 1.0f);
      return;
    case graph::Init::Kind::kConstant:
      std::fill(out.begin(), out.end(), static_cast<float>(init.value));
      return;
    case graph::Init::Kind::kNormal:
      fill_normal(out.data(), std::ssize(out), static_cast<float>(init.std), key, begin);
      return;
    case graph::Init::Kind::kTruncatedNormal:
      fill_truncated_normal(out.data(), std::ssize(out), static_cast<float>(init.std), key, begin);
      return;
    case graph::Init::Kind::kLogUniform:
      fill_uniform(init.low, init.high, key, begin, out);
      for (float& x : out) x = std::log(std::max(x, static_cast<float>(graph::Init::kLeast)));
      return;
    case graph::Init::Kind::kLogCount:
      for (size_t i = 0; i < out.size(); ++i)
        out[i] = static_cast<float>(std::log(static_cast<double>(begin) + static_cast<double>(i) + 1));
      return;
    case graph::Init::Kind::kStepBias:
      fill_uniform(std::log(init.low), std::log(init.high), key, begin, out);
      for (float& x : out) {
        const double step = std::max(std::exp(static_cast<double>(x)), init.value);
        x = static_cast<float>(step + std::log(-std::expm1(-step)));
      }
      return;
  }
}

// A parameter in unsharded form.
struct Whole {
  Shape shape;
  std::vector<int64_t> segments;
  int64_t first_row;  // in the whole parameter, whose elements index the numbers
  int64_t columns() const { return shape.elements() / shape[0]; }
  int64_t first_element() const { return first_row * columns(); }
};

Whole whole_of(const graph::Parameter& parameter, const graph::Value& value) {
  if (value.sharding.global_shape.rank() == 0) return {value.shape, value.segments, parameter.part.first_row};
  return {value.sharding.global_shape, value.sharding.global_segments, parameter.part.first_row};
}

// Multiplies the elements of each segment of a parameter by its factor.
void scale_parts(const Whole& whole, const std::vector<double>& factors, int64_t begin,
                 std::span<float> out) {
  if (factors.empty()) return;
  int64_t part_begin = whole.first_element();
  for (size_t part = 0; part < factors.size(); ++part) {
    const int64_t part_end = part_begin + whole.segments[part] * whole.columns();
    const int64_t end = std::min(part_end, begin + std::ssize(out));
    for (int64_t at = std::max(part_begin, begin); at < end; ++at)
      out[static_cast<size_t>(at - begin)] *= static_cast<float>(factors[part]);
    part_begin = part_end;
  }
}

// The columns that a rank holds of a matrix; all of a vector's one.
std::vector<graph::HeldSpan> columns_of(const std::vector<std::vector<graph::HeldSpan>>& held) {
  return held.size() > 1 ? held[1] : std::vector<graph::HeldSpan>{{{0, 1}, 0}};
}

// Elements [begin, begin + out.size()) as first weights; `begin` begins a counter.
void fill_scaled(const graph::Parameter& parameter, const Whole& whole, const RandomKey& key, int64_t begin,
                 std::span<float> out) {
  fill(parameter.init, key, begin, out);
  scale_parts(whole, parameter.init.part_scales, begin, out);
}

// Whether filling it takes long enough to be shared: tables and matrices.
bool is_random(const graph::Init& init) {
  return init.kind == graph::Init::Kind::kNormal || init.kind == graph::Init::Kind::kTruncatedNormal;
}

// Ranks of one process that hold the same weights make them together: each fills a part, and all read all
// parts. Processes each fill their own, which costs less than sending.
class SameWeights {
 public:
  explicit SameWeights(comm::Communicator& group) : group_(group), numbers_(kMost) {}

  // Elements [begin, begin + count) of the parameter, which all members fill at the same place of theirs:
  // `upload` receives ranges of them, in order.
  template <typename Upload>
  void fill(const graph::Parameter& parameter, const Whole& whole, const RandomKey& key, int64_t begin,
            int64_t count, const Upload& upload) {
    for (int64_t at = 0; at < count; at += kMost) {
      const int64_t size = std::min(kMost, count - at), first = begin + at;
      const graph::Span mine = part_of(size, group_.rank());
      // From where a counter begins.
      const int64_t aligned = (first + mine.begin) / kAligned * kAligned;
      std::vector<float> part(static_cast<size_t>(first + mine.end - aligned));
      fill_scaled(parameter, whole, key, aligned, part);
      const comm::Buffers buffers{.send = part.data() + (first + mine.begin - aligned),
                                  .receive = numbers_.data()};
      group_.wait(group_.start(exchange_of(size), {&buffers, 1}));
      upload(at, std::span<const float>(numbers_.data(), static_cast<size_t>(size)));
    }
  }

 private:
  static constexpr int64_t kMost = 1 << 18;  // elements per call

  graph::Span part_of(int64_t size, int member) const {
    const int64_t share = (size + group_.size() - 1) / group_.size();
    return {std::min(size, member * share), std::min(size, (member + 1) * share)};
  }

  comm::Prepared& exchange_of(int64_t size) {
    std::unique_ptr<comm::Prepared>& prepared = prepared_[size];
    if (prepared != nullptr) return *prepared;
    comm::Transfer transfer{.dtype = DType::kF32,
                            .send = {{{.bytes = part_of(size, group_.rank()).size() * 4}}},
                            .bytes = size * 4};
    for (int member = 0; member < group_.size(); ++member) {
      const graph::Span part = part_of(size, member);
      transfer.receive.push_back({{.offset = part.begin * 4, .bytes = part.size() * 4}});
    }
    prepared = group_.prepare(
        {.collective = comm::Collective::kExchange, .transfers = {transfer}, .label = "first weights"});
    return *prepared;
  }

  comm::Communicator& group_;
  std::vector<float> numbers_;
  std::map<int64_t, std::unique_ptr<comm::Prepared>> prepared_;  // by size
};

// With whom a rank holds the same weights.
class Sharing {
 public:
  explicit Sharing(const Ranks& ranks) {
    if (ranks.world().engine() != "local") return;
    if (ranks.batch().size() > 1) all_.emplace(ranks.batch());
    if (ranks.mesh().size(Axis::kReplicate) > 1) replicas_.emplace(ranks.along(Axis::kReplicate));
  }

  // The ranks that hold the same elements of a value as this rank; nullptr if there are none.
  SameWeights* of(const graph::Value& value) {
    const auto is_cut = [&](Axis axis) { return value.placements[axis] != graph::Placement::replicated(); };
    if (is_cut(Axis::kReplicate)) return nullptr;
    std::optional<SameWeights>& found = is_cut(Axis::kShard) ? replicas_ : all_;
    return found ? &*found : nullptr;
  }

 private:
  std::optional<SameWeights> all_, replicas_;
};

void initialize(Executor& executor, const graph::Parameter& parameter, const graph::Value& value,
                const RandomKey& key, SameWeights* same) {
  constexpr int64_t kBlock = 1 << 16;
  const Whole whole = whole_of(parameter, value);
  const auto spans = graph::held_spans(value, executor.ranks().mesh(), executor.ranks().coordinates());
  const auto columns = columns_of(spans);
  const int64_t width = value.shape.elements() / std::max<int64_t>(1, value.shape[0]);  // of a row here
  for (const graph::HeldSpan& rows : spans[0]) {
    const int64_t first = whole.first_element() + rows.whole.begin * whole.columns();
    const int64_t count = rows.whole.size() * whole.columns();
    if (same != nullptr && width == whole.columns() && is_random(parameter.init)) {
      same->fill(parameter, whole, key, first, count, [&](int64_t at, std::span<const float> numbers) {
        executor.write_floats(value.name, numbers, rows.at * width + at);
      });
      continue;
    }
    parallel_ranges(count, kBlock, [&](int64_t from, int64_t to) {
      const int64_t begin = first + from, aligned = begin / kAligned * kAligned;
      std::vector<float> numbers(static_cast<size_t>(first + to - aligned));
      fill_scaled(parameter, whole, key, aligned, numbers);
      const auto give = [&](int64_t at, int64_t end, int64_t element) {
        executor.write_floats(
            value.name,
            std::span(numbers).subspan(static_cast<size_t>(at - aligned), static_cast<size_t>(end - at)),
            element);
      };
      if (width == whole.columns()) {
        give(begin, first + to, rows.at * width + from);
        return;
      }
      for (int64_t r = begin / whole.columns(); r * whole.columns() < first + to; ++r) {
        const int64_t row = (rows.at + r - whole.first_row - rows.whole.begin) * width;
        for (const graph::HeldSpan& span : columns) {
          const int64_t span_begin = r * whole.columns() + span.whole.begin;
          const int64_t at = std::max(begin, span_begin);
          const int64_t end = std::min(first + to, r * whole.columns() + span.whole.end);
          if (at < end) give(at, end, row + span.at + at - span_begin);
        }
      }
    });
  }
}

}  // namespace

void write_coordinates(const Executor& executor) {
  if (executor.set().find("rank") != nullptr) executor.write("rank", executor.ranks().coordinates());
}

void initialize_weights(Executor& executor, uint64_t seed) {
  const graph::Graph& graph = executor.program(0).graph;
  Sharing sharing(executor.ranks());
  for (const graph::Parameter& parameter : graph.parameters()) {
    const graph::Value& value = graph.value(parameter.value);
    const std::vector<double>& factors = parameter.init.part_scales;
    const size_t parts = whole_of(parameter, value).segments.size();
    STRATA_CHECK(factors.empty() || factors.size() == parts, "{} has {} parts and {} factors", value.name,
                 parts, factors.size());
    const std::string& name = parameter.part.of.empty() ? value.name : parameter.part.of;
    initialize(executor, parameter, value, {seed, static_cast<uint32_t>(hash64(name))}, sharing.of(value));
  }
}

}  // namespace strata::program
