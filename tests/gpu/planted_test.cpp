// Faults planted in kernels that ship (planted.h), and in calls of the driver.
#include "planted.h"

namespace strata::gpu_tests {
namespace {

// c = a · bᵀ in bf16; ragged edges, and more steps of depth than stages in shared memory.
Outcome gemm(const std::string& settings) {
  constexpr int kM = 136, kN = 136, kK = 328;
  Bench bench(settings);
  const std::vector<float> a = values_of(kM * kK, 1), b = values_of(kN * kK, 2);
  const gpu::GemmPlan plan = gpu::plan_gemm(
      {.m = kM, .n = kN, .k = kK, .a_stride = kK, .b_stride = kK, .c_stride = kN}, {.multiprocessors = 1});
  auto* const c = bench.output<BF16>(kM * kN);
  bench.start(plan.product, gpu::GemmArgs{.a = bench.upload_bf16(a),
                                          .b = bench.upload_bf16(b),
                                          .c = c,
                                          .bias = nullptr,
                                          .a_stride = kK,
                                          .b_stride = kK,
                                          .c_stride = kN,
                                          .m = kM,
                                          .n = kN,
                                          .k = kK,
                                          .accumulate = 0,
                                          .splits = plan.splits,
                                          .split_depth = plan.split_depth});
  std::vector<double> expected;
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      float sum = 0;
      for (int k = 0; k < kK; ++k)
        sum += a[static_cast<size_t>(i * kK + k)] * b[static_cast<size_t>(j * kK + k)];
      expected.push_back(sum);
    }
  return bench.outcome(c, expected);
}

// Causal attention of one head.
Outcome attention(const std::string& settings) {
  constexpr int kLength = 130, kDim = 64;
  Bench bench(settings);
  const std::vector<float> q = values_of(kLength * kDim, 1), k = values_of(kLength * kDim, 2),
                           v = values_of(kLength * kDim, 3);
  const gpu::AttentionShape shape{
      .length = kLength, .kv_length = kLength, .head_dim = kDim, .value_dim = kDim};
  auto* const rows = bench.output<int32_t>(kLength * 2);
  auto* const tiles = bench.output<int32_t>((kLength + 63) / 64 * 4);
  bench.start(gpu::attention_ranges(shape), gpu::AttentionRangesArgs{.rows = rows,
                                                                     .tiles = tiles,
                                                                     .kv_begin = nullptr,
                                                                     .kv_end = nullptr,
                                                                     .position = nullptr,
                                                                     .batch = 1,
                                                                     .length = kLength,
                                                                     .kv_length = kLength,
                                                                     .causal = 1,
                                                                     .window = 0,
                                                                     .chunked = 0});
  auto* const out = bench.output<BF16>(kLength * kDim);
  gpu::AttentionArgs args{};
  args.q = bench.upload_bf16(q), args.k = bench.upload_bf16(k), args.v = bench.upload_bf16(v), args.out = out;
  args.lse = bench.output<float>(kLength), args.rows = rows, args.tiles = tiles;
  args.q_stride = args.k_stride = args.v_stride = args.out_stride = kDim;
  args.batch = args.heads = args.kv_heads = 1, args.length = args.kv_length = kLength;
  args.head_dim = args.value_dim = kDim, args.scale = 0.25f;
  bench.start(gpu::attention_forward(shape), args);
  std::vector<double> expected(kLength * kDim);
  for (int i = 0; i < kLength; ++i) {
    std::vector<double> weights;
    double total = 0;
    for (int j = 0; j <= i; ++j) {
      double score = 0;
      for (int c = 0; c < kDim; ++c)
        score += 0.25 * q[static_cast<size_t>(i * kDim + c)] * k[static_cast<size_t>(j * kDim + c)];
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    for (int j = 0; j <= i; ++j)
      for (int c = 0; c < kDim; ++c)
        expected[static_cast<size_t>(i * kDim + c)] +=
            weights[static_cast<size_t>(j)] / total * v[static_cast<size_t>(j * kDim + c)];
  }
  return bench.outcome(out, expected);
}

// RMS norm of rows that several warps hold, and that do not end with them.
Outcome norm(const std::string& settings) {
  constexpr int kRows = 3, kDim = 2056;
  Bench bench(settings);
  const std::vector<float> x = values_of(kRows * kDim, 1), weight = values_of(kDim, 2);
  auto* const y = bench.output<BF16>(kRows * kDim);
  gpu::NormArgs args{};
  args.x = bench.upload_bf16(x), args.weight = bench.upload(weight), args.y = y;
  args.rstd = bench.output<float>(kRows), args.dim = kDim, args.eps = 1e-5f;
  bench.start(gpu::norm_forward(gpu::NormKind::kRms, DType::kBF16, kRows, kDim), args);
  std::vector<double> expected;
  for (int row = 0; row < kRows; ++row) {
    double squares = 0;
    for (int i = 0; i < kDim; ++i) squares += std::pow(x[static_cast<size_t>(row * kDim + i)], 2);
    for (int i = 0; i < kDim; ++i)
      expected.push_back(x[static_cast<size_t>(row * kDim + i)] * weight[static_cast<size_t>(i)] /
                         std::sqrt(squares / kDim + 1e-5));
  }
  return bench.outcome(y, expected);
}

// Cross entropy, whose gradient replaces the logits.
Outcome cross_entropy(const std::string& settings) {
  constexpr int kRows = 3, kVocab = 1204;
  Bench bench(settings);
  const std::vector<float> logits = values_of(kRows * kVocab, 1);
  auto* const gradient = bench.upload(logits);
  gpu::CrossEntropyArgs args{};
  args.logits = args.gradient = gradient;
  args.targets = bench.upload(std::vector<int32_t>{5, 700, 1203});
  args.losses = bench.output<float>(kRows);
  args.stride = args.vocab = args.valid = kVocab, args.grad_scale = 1;
  bench.start(gpu::cross_entropy(DType::kF32, DType::kF32, kRows, kVocab, kVocab), args);
  std::vector<double> expected;
  for (size_t row = 0; row < kRows; ++row) {
    double total = 0;
    for (size_t i = 0; i < kVocab; ++i) total += std::exp(logits[row * kVocab + i]);
    const size_t target = row == 0 ? 5 : row == 1 ? 700 : 1203;
    for (size_t i = 0; i < kVocab; ++i)
      expected.push_back(std::exp(logits[row * kVocab + i]) / total - (i == target ? 1 : 0));
  }
  return bench.outcome(gradient, expected);
}

// a + b of an odd number of elements: the last vector and the last block are partial.
Outcome add(const std::string& settings) {
  constexpr int kN = 5003;
  Bench bench(settings);
  const std::vector<float> a = values_of(kN, 1), b = values_of(kN, 2);
  auto* const out = bench.output<BF16>(kN);
  bench.start(gpu::elementwise("add", DType::kBF16, kN),
              gpu::ElementArgs{
                  .out = out, .a = bench.upload_bf16(a), .b = bench.upload_bf16(b), .n = kN, .factor = 1});
  std::vector<double> expected;
  for (size_t n = 0; n < kN; ++n) expected.push_back(static_cast<double>(a[n]) + b[n]);
  return bench.outcome(out, expected);
}

// Column sums, in two launches; a stream uploads and another computes. `shared`: both streams compute, in one workspace.
Outcome two_streams(const std::string& settings, bool shared) {
  constexpr int kRows = 96, kColumns = 40;
  Bench bench(settings);
  const cuda::Stream other = bench.stream();
  const cuda::Event there = bench.event();
  const std::vector<float> x = values_of(kRows * kColumns, 1);
  const gpu::ColumnSumsPlan plan = gpu::column_sums(DType::kF32, kRows, kColumns, kColumns);
  const float* const in = bench.upload(x);
  driver().record_event(there, bench.first());
  driver().wait_event(other, there, 0);
  auto* const parts = bench.output<float>(static_cast<size_t>(plan.parts * kColumns));
  auto* const out = bench.output<float>(kColumns);
  for (const cuda::Stream stream : {other, bench.first()}) {
    float* const to = stream == other ? out : bench.output<float>(kColumns);
    bench.start(
        plan.sums,
        gpu::ColumnSumsArgs{.in = in, .parts = parts, .rows = kRows, .columns = kColumns, .stride = kColumns},
        stream);
    bench.start(plan.sum,
                gpu::ColumnPartsArgs{.parts = parts,
                                     .out = to,
                                     .count = plan.parts,
                                     .columns = kColumns,
                                     .stride = kColumns,
                                     .accumulate = 0},
                stream);
    if (!shared) break;
  }
  std::vector<double> expected(kColumns);
  for (size_t n = 0; n < x.size(); ++n) expected[n % kColumns] += x[n];
  return bench.outcome(out, expected);
}

// A batch that goes through pinned memory twice.
Outcome staged_twice(const std::string& settings) {
  constexpr int kN = 512;
  Bench bench(settings);
  const cuda::Event copied = bench.event();
  const std::vector<float> b = values_of(kN, 2);
  uint32_t* const staging = bench.pinned(kN);
  auto *const a = bench.output<float>(kN), *const out = bench.output<float>(kN);
  const float* const second = bench.upload(b);
  for (int step = 0; step < 2; ++step) {
    if (step > 0) driver().synchronize_event(copied);
    for (int n = 0; n < kN; ++n) {
      const auto value = static_cast<float>(n + step);
      std::memcpy(&staging[n], &value, 4);
    }
    driver().copy_to_device_async(reinterpret_cast<Pointer>(a), staging, 4 * kN, bench.first());
    driver().record_event(copied, bench.first());
    bench.start(gpu::elementwise("add", DType::kF32, kN),
                gpu::ElementArgs{.out = out, .a = a, .b = second, .n = kN, .factor = 1});
  }
  std::vector<double> expected;
  for (size_t n = 0; n < kN; ++n) expected.push_back(static_cast<double>(n) + 1 + static_cast<double>(b[n]));
  return bench.outcome(out, expected);
}

TEST_F(Planted, CleanRuns) {
  const std::pair<const char*, Subject> kSubjects[] = {
      {"gemm", gemm},
      {"attention", attention},
      {"norm", norm},
      {"cross entropy", cross_entropy},
      {"add", add},
      {"two streams", [](const std::string& settings) { return two_streams(settings, false); }},
      {"staged twice", staged_twice}};
  for (const auto& [name, subject] : kSubjects) {
    for (const char* seed : {"seed=1", "seed=2"}) {
      const Outcome outcome = subject(seed);
      EXPECT_EQ(outcome.violation, "") << name;
      EXPECT_LE(outcome.error, kTolerance) << name;
    }
  }
}

const std::string kBarrier = "bar\\.sync";

TEST_F(Planted, MissingBarriers) {
  expect_found(gemm, "gemm_nt_bf16", kBarrier, "", {"race", "pending copy", "unwritten"}, "intrinsics.cuh");
  expect_found(attention, "attention_forward_64", kBarrier, "", {"race", "pending copy", "unwritten"},
               "intrinsics.cuh");
  expect_found(norm, "rms_norm_forward_bf16", kBarrier, "", {"race", "unwritten"}, "rows.cuh");
  // One of them keeps a target's logit from being replaced before it is read.
  expect_found(cross_entropy, "cross_entropy_f32_f32", kBarrier, "", {"race"}, "vector.cuh");
}

TEST_F(Planted, MissingWaitForCopies) {
  expect_found(gemm, "gemm_nt_bf16", "cp\\.async\\.wait_group", "", {"pending copy"}, "intrinsics.cuh");
  expect_found(attention, "attention_forward_64", "cp\\.async\\.wait_group", "", {"pending copy"},
               "intrinsics.cuh");
}

TEST_F(Planted, SlotOverwrittenInUse) {
  // Copies go to the stage before the current one; here to the current one.
  expect_found(gemm, "gemm_nt_bf16", "(add\\.s32.*), -16384", "$1, 0", {"race", "pending copy"},
               "intrinsics.cuh");
}

TEST_F(Planted, SwappedOperandsOfMma) {
  const std::string operands = "(mma\\.sync\\S+ \\{[^}]*\\}, \\{)(%r\\d+), (%r\\d+)";
  expect_found(gemm, "gemm_nt_bf16", operands, "$1$3, $2", {});
  expect_found(attention, "attention_forward_64", operands, "$1$3, $2", {});
}

TEST_F(Planted, WrongMask) {
  // Hides the visible scores and keeps the others.
  expect_found(attention, "attention_forward_64", "(selp\\.f32.*), 0fFF800000, (%f\\d+)",
               "$1, $2, 0fFF800000", {});
  // A row's last key is not the row's own.
  expect_found(attention, "attention_ranges", "min\\.s32", "max.s32", {});
}

TEST_F(Planted, LostStepOfASum) {
  expect_found(norm, "rms_norm_forward_bf16", "shfl\\.sync\\.bfly", "shfl.sync.idx", {});
}

TEST_F(Planted, UnalignedVector) {
  for (const std::string access : {"ld", "st"})
    expect_found(norm, "rms_norm_forward_bf16", "(" + access + "\\.global\\.v4\\.\\S+.*)\\[(%rd\\d+)\\]",
                 "$1[$2+4]", {"misaligned"}, "vector.cuh");
}

TEST_F(Planted, OffByOneAtTheEndOfARow) {
  expect_found(norm, "rms_norm_forward_bf16", "setp\\.ge\\.s32", "setp.gt.s32", {"out of bounds", "race"},
               "vector.cuh");
}

TEST_F(Planted, LastBlockOutOfBounds) {
  expect_found(add, "add_bf16", "setp\\.le\\.s64", "setp.ne.s64", {"out of bounds"}, "vector.cuh");
}

void expect_named(const Outcome& outcome, const std::vector<std::string>& kinds, const std::string& name) {
  EXPECT_TRUE(is_named(outcome, kinds, name)) << outcome.violation << ", error " << outcome.error;
  EXPECT_EQ(Twin().unused(), "") << "no place to plant the fault";
}

TEST_F(Planted, WorkspaceOfTwoStreams) {
  for (const char* seed : {"seed=1", "seed=2", "seed=3"})
    expect_named(two_streams(seed, true), {"race"}, "column_");
}

TEST_F(Planted, MissingWaitOfAStream) {
  for (const char* seed : {"seed=1", "seed=2", "seed=3"}) {
    expect_named(two_streams(std::string(seed) + ";drop=cuStreamWaitEvent:1", false), {"race", "unwritten"},
                 "column_sums");
    expect_named(two_streams(std::string(seed) + ";drop=cuEventRecord:1", false), {"race", "unwritten"},
                 "column_sums");
  }
}

TEST_F(Planted, PinnedBufferReusedTooEarly) {
  for (const char* seed : {"seed=1", "seed=2", "seed=3"})
    expect_named(staged_twice(std::string(seed) + ";drop=cuEventSynchronize:1"), {"host memory"},
                 "changed while a copy from it was in flight");
}

TEST_F(Planted, InputThatWasNeverWritten) {
  expect_named(norm("drop=cuMemcpyHtoDAsync:2"), {"unwritten"}, "rms_norm_forward_bf16");
  // Unnoticed, the poison is in the values.
  expect_named(norm("unwritten=off;drop=cuMemcpyHtoDAsync:2"), {}, "");
}

TEST_F(Planted, BufferFreedTwiceOrInUse) {
  const Bench bench("");
  const Pointer address = bench.allocate(64);
  const auto release = [&] { driver().check(driver().free(address), "cuMemFree"); };
  EXPECT_NO_THROW(release());
  try {
    release();
    ADD_FAILURE() << "the second time";
  } catch (const WorldError& error) {
    EXPECT_TRUE(has(error.what(), "[cuda] cuMemFree: invalid argument (CUDA_ERROR_INVALID_VALUE, 1)"))
        << error.what();
  }
  // A kernel that still has the address.
  const Pointer in = bench.allocate(128), out = bench.allocate(128);
  bench.write(in, std::vector<uint32_t>(32), bench.first());
  EXPECT_EQ(driver().free(out), cuda::kSuccess);
  bench.increment(bench.function(kIncrement, "increment"), out, in, 32, bench.first());
  EXPECT_EQ(driver().synchronize(), 700);
  EXPECT_TRUE(has(bench.twin().violation(), "[freed]")) << bench.twin().violation();
}

}  // namespace
}  // namespace strata::gpu_tests
