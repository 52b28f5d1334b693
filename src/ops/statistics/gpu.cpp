#include "ops/statistics/statistics.h"

#include <algorithm>

#include "device/gpu/gpu.h"

namespace strata::device {
namespace {

static_assert(ops::kDigestBlock == gpu::kNormBlock, "a digest covers the elements that its kernel takes");

gpu::SampleArgs sample_args(int64_t n, int64_t m, int64_t group, bool adds) {
  return {.sample = nullptr,
          .x = nullptr,
          .table = nullptr,
          .mask = nullptr,
          .n = n,
          .m = m,
          .group = static_cast<int32_t>(group),
          .accumulate = adds ? 1 : 0};
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::Statistics>& node) {
  const graph::Value& x = *node.in.x;
  const ops::StatisticsAttrs& attrs = node.attrs;
  const int64_t columns = x.shape.rank() == 0 ? 1 : std::max<int64_t>(1, x.shape[x.shape.rank() - 1]);
  const int64_t rows = x.shape.elements() / columns;
  int64_t begin = 0, end = columns;
  if (attrs.part >= 0 && !x.segments.empty()) {
    const auto part = static_cast<size_t>(attrs.part);
    for (size_t i = 0; i < part; ++i) begin += x.segments[i];
    end = begin + x.segments[part];
  }
  const gpu::StatisticsPlan plan = gpu::statistics(x.dtype, rows, columns);
  const gpu::StatisticsArgs args{.table = nullptr,
                                 .x = nullptr,
                                 .mask = nullptr,
                                 .parts = nullptr,
                                 .rows = rows,
                                 .columns = columns,
                                 .begin = begin,
                                 .end = end,
                                 .row = attrs.row,
                                 .group = static_cast<int32_t>(attrs.group),
                                 .first = attrs.first ? 1 : 0,
                                 .accumulate = node.adds.table ? 1 : 0,
                                 .largest = static_cast<float>(attrs.largest)};
  return node.kernel(
      [plan, args](const Operands<ops::Statistics>& at) {
        gpu::StatisticsArgs now = args;
        now.table = at.out.table;
        now.x = at.in.x;
        now.mask = at.in.mask;
        now.parts = reinterpret_cast<double*>(at.scratch);
        start(at.launch, plan.parts, now);
        start(at.launch, plan.sum, now);
      },
      plan.parts_bytes);
}

template <>
BoundKernel bind(Gpu, const Bind<ops::TakeSample>& node) {
  const int64_t m = node.out.sample->shape.elements();
  return node.kernel([args = sample_args(node.in.x->shape.elements(), m, node.attrs.group, false),
                      kernel = gpu::take_sample(m)](const Operands<ops::TakeSample>& at) {
    gpu::SampleArgs now = args;
    now.sample = at.out.sample;
    now.x = at.in.x;
    now.mask = at.in.mask;
    start(at.launch, kernel, now);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::SampleChange>& node) {
  const int64_t m = node.in.sample->shape.elements();
  return node.kernel([args = sample_args(node.in.x->shape.elements(), m, node.attrs.group, node.adds.table),
                      kernel = gpu::sample_change(m)](const Operands<ops::SampleChange>& at) {
    gpu::SampleArgs now = args;
    now.sample = const_cast<float*>(at.in.sample);  // only read
    now.x = at.in.x;
    now.table = at.out.table;
    now.mask = at.in.mask;
    start(at.launch, kernel, now);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::SquaresAndDigests>& node) {
  const int64_t n = node.in.x->shape.elements();
  return node.kernel([n, kernel = gpu::squares_and_digests(n)](const Operands<ops::SquaresAndDigests>& at) {
    start(at.launch, kernel,
          gpu::DigestArgs{.partials = at.out.partials, .digests = at.out.digests, .x = at.in.x, .n = n});
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::JoinDigests>& node) {
  std::vector<int32_t> counts;
  for (const graph::Ref& one : node.in.digests) counts.push_back(static_cast<int32_t>(one->shape.elements()));
  return node.kernel([counts](const Operands<ops::JoinDigests>& at) {
    int64_t first = 0;
    for (size_t begin = 0; begin == 0 || begin < counts.size(); begin += gpu::kMostLists) {
      gpu::JoinDigestsArgs args{};
      args.digest = at.out.digest;
      args.first = first;
      args.accumulate = begin > 0 ? 1 : 0;
      for (size_t i = begin; i < std::min<size_t>(counts.size(), begin + gpu::kMostLists); ++i) {
        args.digests[args.lists] = at.in.digests[i];
        args.counts[args.lists++] = counts[i];
        first += counts[i];
      }
      start(at.launch, gpu::join_digests(), args);
    }
  });
}

}  // namespace strata::device
