#include "benchmarks/benchmarks.h"

#include <array>

namespace strata::benchmarks {

std::span<const Benchmark> benchmarks() {
  static constexpr std::array kAll{
      Benchmark{"peak", "GEMM peak in fp32 and bf16, memory and cache bandwidth", bench_peak, false},
      Benchmark{"step", "training steps against the GEMM peak, by kernel family, and start-up time",
                bench_step, true},
      Benchmark{"predict", "predicted against measured time, by kernel family, at three model sizes",
                bench_predict, true},
      Benchmark{"compile", "compile time and memory by layers and parameters, and for a model of 405B",
                bench_compile, false},
      Benchmark{"attention", "attention forward and backward against the GEMM peak", bench_attention, false},
      Benchmark{"collectives", "collectives of two ranks of one process, against copying memory",
                bench_collectives, false},
      Benchmark{"experts", "expert dispatch to other ranks and back, and imbalanced ranks", bench_experts,
                true},
      Benchmark{"ranks", "two ranks against one with the same threads, local and mpirun; start of 64",
                bench_ranks, true},
      Benchmark{"pipeline", "pipeline schedules of two ranks, against each other and their simulation",
                bench_pipeline, true},
      Benchmark{"simulate", "predicted against measured steps of one rank and of every layout of two",
                bench_simulate, false},
      Benchmark{"load", "token loading, as a share of a training step", bench_load, true},
      Benchmark{"eval", "evaluation, samples and checkpoints, as a share of a run", bench_eval, true},
      Benchmark{"saves", "saving during training, against waiting for the save", bench_saves, true},
      Benchmark{"decode", "text generation against memory bandwidth: weights and cache read per token",
                bench_decode, true},
      Benchmark{"monitors", "statistics of gradients, weights and activations, as a share of a step",
                bench_monitors, true},
      Benchmark{"precision", "steps with recipes in 8 and 4 bits, quantization and matmuls, against bf16",
                bench_precision, true},
  };
  return kAll;
}

}  // namespace strata::benchmarks
