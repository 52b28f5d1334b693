// Compiles the file STRATA_BF16_INCLUDE twice: for processors with VDPBF16PS (namespace bf16_native, x86
// only) and with a model of the instruction (bf16_model). In namespace STRATA_BF16_TARGET the file has access
// to the operations of bf16_dot-inl.h. It marks functions that inner loops call STRATA_BF16_INLINE and has no
// include guard. Include its headers before this one, so that they are not compiled for the instruction.
#include "kernels/cpu/bf16_dot.h"

#define STRATA_BF16_INLINE [[gnu::always_inline]] inline

#define STRATA_BF16_TARGET bf16_model
#define STRATA_BF16_NATIVE 0
#include "kernels/cpu/bf16_dot-inl.h"
#include STRATA_BF16_INCLUDE
#undef STRATA_BF16_TARGET
#undef STRATA_BF16_NATIVE

#if STRATA_HAS_BF16_NATIVE
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")
#endif
#define STRATA_BF16_TARGET bf16_native
#define STRATA_BF16_NATIVE 1
#include "kernels/cpu/bf16_dot-inl.h"
#include STRATA_BF16_INCLUDE
#undef STRATA_BF16_TARGET
#undef STRATA_BF16_NATIVE
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#undef STRATA_BF16_INCLUDE
#undef STRATA_BF16_INLINE
