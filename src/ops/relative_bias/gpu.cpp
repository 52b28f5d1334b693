#include "ops/relative_bias/relative_bias.h"

#include <algorithm>

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_plain.h"
#include "tensor/relative_bucket.h"

namespace strata::device {
namespace {

// The calls of a kernel: each has buckets of one direction, up to kMostBucketsAtOnce.
struct DistanceCalls {
  struct Call {
    int64_t row = 0;  // of the table
    gpu::RelativeBiasArgs args{};
  };
  std::vector<Call> calls;
  int64_t width, heads;

  DistanceCalls(const ops::RelativeBiasAttrs& attrs, int64_t buckets, int64_t of_heads)
      : width(attrs.last - attrs.first + 1), heads(of_heads) {
    const RelativeBuckets all{buckets, attrs.max_distance, attrs.bidirectional};
    if (attrs.bidirectional) {
      add(all, attrs, gpu::DistancesOf::kBefore, 0, buckets / 2);
      add(all, attrs, gpu::DistancesOf::kAfter, buckets / 2, buckets / 2);
      // Of an odd number of buckets the last has no distances, but a gradient.
      if (buckets % 2 != 0) add(all, attrs, gpu::DistancesOf::kAfter, buckets - 1, 1);
    } else {
      add(all, attrs, gpu::DistancesOf::kAll, 0, buckets);
    }
  }

 private:
  void add(const RelativeBuckets& all, const ops::RelativeBiasAttrs& attrs, gpu::DistancesOf of,
           int64_t first, int64_t count) {
    const bool after = of == gpu::DistancesOf::kAfter;
    const int64_t longest = std::max<int64_t>({0, -attrs.first, attrs.last});
    // starts[b]: the shortest length in bucket first + b or a later one.
    std::vector<int32_t> starts;
    for (int64_t length = after ? 1 : 0; length <= longest; ++length) {
      const int64_t bucket = relative_bucket(all, after ? length : -length) - first;
      while (std::ssize(starts) <= std::min(bucket, count)) starts.push_back(static_cast<int32_t>(length));
    }
    while (std::ssize(starts) <= count) starts.push_back(static_cast<int32_t>(longest + 1));
    for (int64_t begin = 0; begin < count; begin += gpu::kMostBucketsAtOnce) {
      Call call{.row = first + begin};
      call.args.heads = static_cast<int32_t>(heads);
      call.args.width = static_cast<int32_t>(width);
      call.args.first = static_cast<int32_t>(attrs.first);
      call.args.count = static_cast<int32_t>(std::min<int64_t>(count - begin, gpu::kMostBucketsAtOnce));
      call.args.of = of;
      std::copy_n(starts.begin() + begin, call.args.count + 1, call.args.starts);
      calls.push_back(call);
    }
  }
};

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::RelativeBias>& node) {
  const Shape& table = node.in.table->shape;
  return node.kernel(
      [plan = DistanceCalls(node.attrs, table[0], table[1])](const Operands<ops::RelativeBias>& at) {
        for (const DistanceCalls::Call& call : plan.calls) {
          gpu::RelativeBiasArgs args = call.args;
          args.bias = at.out.bias;
          args.table = at.in.table + call.row * plan.heads;
          start(at.launch, gpu::relative_bias(plan.width, plan.heads), args);
        }
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::RelativeBiasGrad>& node) {
  const Shape& table = node.out.dtable->shape;
  return node.kernel([plan = DistanceCalls(node.attrs, table[0], table[1]),
                      adds = node.adds.dtable](const Operands<ops::RelativeBiasGrad>& at) {
    for (const DistanceCalls::Call& call : plan.calls) {
      gpu::RelativeBiasArgs args = call.args;
      args.dbias = at.in.dbias;
      args.dtable = at.out.dtable + call.row * plan.heads;
      args.accumulate = adds ? 1 : 0;
      start(at.launch, gpu::relative_bias_backward(args.count, plan.heads), args);
    }
  });
}

}  // namespace strata::device
