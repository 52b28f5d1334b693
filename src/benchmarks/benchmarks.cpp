#include "benchmarks/benchmarks.h"

#include <array>

namespace strata::benchmarks {

std::span<const Benchmark> benchmarks() {
  static constexpr std::array kAll{
      Benchmark{"peak", "GEMM peak in fp32 and bf16, memory and cache bandwidth", bench_peak, false},
      Benchmark{"step", "a training step against the GEMM peak, by kernel family; how soon a run begins",
                bench_step, true},
      Benchmark{"predict", "predicted against measured time, by kernel family, at three model sizes",
                bench_predict, true},
      Benchmark{"compile", "what making a step program takes, against layers and parameters; 405B explained",
                bench_compile, false},
      Benchmark{"attention", "attention forward and backward against the GEMM peak", bench_attention, false},
      Benchmark{"collectives", "collectives of two ranks of one process against copying memory",
                bench_collectives, false},
      Benchmark{"experts", "tokens to experts of other ranks and back, and ranks that are not equally busy",
                bench_experts, true},
      Benchmark{"ranks",
                "two ranks against one with as many threads, local and under mpirun; 64 ranks' start",
                bench_ranks, true},
      Benchmark{"pipeline", "schedules of two ranks of a pipeline against each other and their simulator",
                bench_pipeline, true},
      Benchmark{"load", "token loading as a share of a training step", bench_load, true},
      Benchmark{"eval", "evaluation, samples and checkpoints as a share of a run", bench_eval, true},
      Benchmark{"saves", "checkpoints beside training against training that waits for them", bench_saves,
                true},
      Benchmark{"decode", "writing text against memory bandwidth: bytes of weights and cache a token",
                bench_decode, true},
  };
  return kAll;
}

}  // namespace strata::benchmarks
