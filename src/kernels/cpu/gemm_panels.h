// In-house GEMM, c[rows, cols] (+)= a[rows, depth] · b[depth, cols] in fp32, after Goto and van de Geijn
// ("Anatomy of high-performance matrix multiplication", 2008). Blocks of b are packed into panels that stay
// in the last-level cache and are shared by all threads; each thread packs its own rows of a for its L2
// cache. bf16 operands become fp32 when packed, so bf16 programs also run on processors without bf16
// arithmetic; on processors with it, panels have the VNNI layout (bf16_block.h). Internal to the gemm family.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm_block.h"
#include "tensor/dtype.h"

namespace strata::cpu::detail {

struct PanelGemm {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  bool pairs = false;  // VNNI panels of bf16_block.h instead of gemm_block.h
  PanelShape shape;    // of the processor that runs the plan
  OperandView a;       // data pointers are set at run time
  OperandView b;
  DType out_dtype = DType::kF32;
  int64_t out_stride = 0;
  bool accumulate = false;  // f32 results only
  bool codes = false;       // operands are codes with scales (scaled_gemm.h), which a and b do not describe
  // Depth of each panel, zero-padded, if b is already stored as consecutive VNNI panels; otherwise 0.
  int64_t b_panel_depth = 0;
  // Depth of one multiplication, a multiple of 8 if it is not the whole depth; 0: plan_panels chooses it.
  int64_t depth_step = 0;

  // Filled in by plan_panels.
  bool direct_a = false;  // a is read unpacked
  int64_t depth_block = 0;
  int64_t col_block = 0;
  int64_t task_rows = 0;
  int64_t group_cols = 0;  // of a task
  int64_t task_cols = 0;
  int64_t a_offset = 0;  // bytes from the start of scratch; b is at 0
  int64_t a_values = 0;  // of a that a thread packs
  // A bf16 or fp16 result of several depth blocks is summed in fp32 scratch and rounded once.
  bool sums_apart = false;
  int64_t sums_offset = 0;  // bytes from the start of scratch
  int64_t scratch_bytes = 0;
  int threads = 1;  // that scratch is sized for
};

// Chooses block sizes from the GEMM's sizes and the panel shape only, so the order of additions does not
// depend on the number of threads.
void plan_panels(PanelGemm& gemm, int threads);
// Throws InternalError if the kernels of this processor have another panel shape.
void check_panels(const PanelGemm& gemm);

void run_panels(const PanelGemm& gemm, const void* a, const void* b, const float* bias, void* c,
                void* scratch);

}  // namespace strata::cpu::detail
