// The own GEMM engine: c[rows, cols] (+)= a[rows, depth] · b[depth, cols] in f32, after the scheme of Goto
// and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008). Blocks of b are packed into
// panels that stay in the last-level cache and are shared by all threads; each thread packs the rows of a
// that it works on, for its L2 cache. bf16 operands become f32 when they are packed, so this engine also
// carries bf16 programs on processors without bf16 arithmetic; with it, panels hold pairs of bf16
// (bf16_block.h). Internal to the gemm family.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm_block.h"
#include "tensor/dtype.h"

namespace strata::cpu::detail {

struct PanelGemm {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  bool pairs = false;  // panels of bf16_block.h, else of gemm_block.h
  PanelShape shape;    // of the processor that it is planned for
  OperandView a;       // data pointers are given at run time
  OperandView b;
  DType out_dtype = DType::kF32;
  int64_t out_stride = 0;
  bool accumulate = false;  // f32 results only
  // b lies in panels of pairs already, one after the other, each of so many depths, zero-padded; 0: it does
  // not.
  int64_t b_panel_depth = 0;

  // Filled in by plan_panels.
  bool direct_a = false;  // a is read where it lies
  int64_t depth_block = 0;
  int64_t depth_step = 0;
  int64_t col_block = 0;
  int64_t task_rows = 0;
  int64_t group_cols = 0;  // of a task
  int64_t task_cols = 0;
  int64_t a_offset = 0;  // bytes from the start of scratch; b lies at 0
  int64_t a_values = 0;  // that a thread packs of a
  // A bf16 result of several blocks of depth is summed in fp32 in scratch, and rounded once.
  bool sums_apart = false;
  int64_t sums_offset = 0;  // bytes from the start of scratch
  int64_t scratch_bytes = 0;
  int threads = 1;  // that there is scratch for
};

// Chooses the blocks from the sizes and the panel shape alone, so that the order of additions does not depend
// on threads.
void plan_panels(PanelGemm& gemm, int threads);
// InternalError where the kernels of this processor have panels of another shape.
void check_panels(const PanelGemm& gemm);

void run_panels(const PanelGemm& gemm, const void* a, const void* b, const float* bias, void* c,
                void* scratch);

}  // namespace strata::cpu::detail
