// The head of a language model: cross-entropy of the logits x[m,d] · W[v,d]ᵀ (+ bias[v]) against target
// tokens, summed over the tokens that have a target, and its gradients. The tokens are cut into chunks, so
// that the logits of all of them never exist at once; where few have a target, only those are computed.
//
// Loss and gradients come from one run, or apart: statistics of the logits first, from which sum_statistics
// makes the loss and the statistics' gradient; then dx, and dW with dbias, each of which (or both together)
// makes the logits again. Both ways give the same bits where W is the whole vocabulary. It may also be a part
// of it, or several of equal size, whose statistics are reduced together; a chunk has as many tokens then, so
// that its logits take their share of the memory. Rows behind the end of the vocabulary take no part.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/gemm.h"

namespace strata::cpu {

// What a run gives.
enum class CrossEntropyTask : uint8_t {
  kLoss,        // loss_sum, count, and token_loss and greedy where they are wanted
  kTraining,    // these, dx, dw and dbias: three products
  kStatistics,  // statistics: one product
  kInputGrad,   // dx from statistics and their gradient: two products
  kWeightGrad,  // dw and dbias from the same: two products
  kGradients,   // dx, dw and dbias from the same: three products
};

struct LinearCrossEntropySpec {
  int64_t tokens = 0;
  int64_t hidden_size = 0;  // d
  int64_t vocab = 0;        // v, rows of W
  int64_t vocab_valid = 0;  // columns from here on are padding and take no part; 0: vocab
  DType dtype = DType::kF32;
  CrossEntropyTask task = CrossEntropyTask::kTraining;
  bool accumulate = false;       // dW += instead of dW =
  bool accumulate_loss = false;  // loss_sum and count += instead of =
  int64_t x_stride = 0;          // elements between rows of x and dx; 0: hidden_size
  int64_t chunk_tokens = 0;      // 0: chosen
  double target_share = 1;       // of the tokens that have a target, on average: chunks hold as many
  float softcap = 0;             // above 0: logits become softcap · tanh(logit / softcap)
  bool bias = false;
  bool accumulate_bias = false;  // dbias += instead of dbias =
  int64_t parts = 1;             // of equal size, that W's rows are; not in kLoss and kTraining
  int64_t vocabulary = 0;        // rows of the whole vocabulary, which targets count; 0: vocab_valid
};

struct LinearCrossEntropyArgs {
  const void* x = nullptr;
  const void* w_forward = nullptr;     // W as plan_weight_encoding(kForward, vocab, hidden_size) says
  const void* w_input_grad = nullptr;  // the same for kInputGrad
  const float* bias = nullptr;         // [vocab], where the specification has one
  const int32_t* targets = nullptr;    // [tokens], in [0, vocabulary) or -1: no loss
  float grad_scale = 1.0f;             // gradients are those of grad_scale * loss_sum
  double* loss_sum = nullptr;
  int64_t* count = nullptr;     // tokens with a target
  float* token_loss = nullptr;  // [tokens], 0 without target; may be null
  int32_t* greedy = nullptr;    // [tokens], 1 where no logit is above the target's; may be null
  void* dx = nullptr;           // [tokens, hidden_size] in the activations' dtype
  float* dw = nullptr;          // [vocab, hidden_size]
  float* dbias = nullptr;       // [vocab], where there is a bias
  // Of parts.
  const int32_t* vocab_start = nullptr;  // [parts]: the row of the whole vocabulary that each begins at; may
                                         // be null where there is one, which begins at 0
  const float* statistics = nullptr;     // [parts, tokens, 3], as StatisticsArgs has it
  const float* dstatistics = nullptr;    // the same
  float* out_statistics = nullptr;       // the same, of kStatistics
  void* scratch = nullptr;               // aligned to 64 bytes
};

// The GEMMs of a chunk of tokens, those that the task needs.
struct CrossEntropyChunk {
  int64_t tokens = 0;
  GemmPlan forward, input_grad, weight_grad_first, weight_grad;
};

// As a GemmPlan: data, shared and never changed.
struct LinearCrossEntropyPlan {
  LinearCrossEntropySpec spec;  // with every choice filled in
  GemmCost cost;
  int64_t scratch_bytes = 0;
  CrossEntropyChunk full;
  CrossEntropyChunk last;  // a ragged last chunk; no tokens: there is none
  // For what the last chunk of gathered tokens may hold, by chance: fewer and fewer tokens than `full`.
  std::vector<CrossEntropyChunk> fewer;
  // Offsets in the scratch. The gradient of fp32 activations takes the place of the logits; that of bf16 ones
  // lies densely by itself, as matrix products want it.
  int64_t gradient_at = 0;
  int64_t losses_at = 0;
  int64_t gemm_scratch_at = 0;
  int64_t gather_at = 0;
};

// From the sizes alone: 2 · tokens · hidden_size · vocab FLOPs a product.
GemmCost linear_cross_entropy_cost(const LinearCrossEntropySpec& spec);

LinearCrossEntropyPlan plan_linear_cross_entropy(const LinearCrossEntropySpec& spec,
                                                 const hardware::DeviceSpec& device,
                                                 GemmEngine engine = GemmEngine::kAuto);

// A plan made ready on this machine; as Gemm, run by one thread at a time.
class LinearCrossEntropy {
 public:
  explicit LinearCrossEntropy(const LinearCrossEntropyPlan& plan);
  ~LinearCrossEntropy();
  LinearCrossEntropy(LinearCrossEntropy&&) noexcept;

  // A target out of range throws DataError in the tasks that go forward. dx may be x itself.
  void run(const LinearCrossEntropyArgs& args);

  const LinearCrossEntropyPlan& plan() const { return plan_; }

  struct Chunk;  // its GEMMs

 private:
  LinearCrossEntropyPlan plan_;
  std::unique_ptr<Chunk> full_, last_;
  std::vector<Chunk> fewer_;
};

// Statistics of a part's logits for one token: their maximum, the sum of exp(logit - maximum), and the
// target's logit, -infinity where the target is in another part. All are 0 for a token without target.
struct StatisticsArgs {
  int64_t tokens = 0;
  int64_t parts = 1;
  const float* statistics = nullptr;  // [parts, tokens, 3]
  const int32_t* targets = nullptr;   // [tokens]; below 0: no loss
};

// The loss of all parts together; token_loss and greedy may be null.
struct StatisticsLoss {
  bool accumulate = false;  // loss_sum and count += instead of =
  double* loss_sum = nullptr;
  int64_t* count = nullptr;
  float* token_loss = nullptr;  // [tokens]
  int32_t* greedy = nullptr;    // [tokens], by the logits after the cap
  double* scratch = nullptr;    // [tokens]
};
void sum_statistics(const StatisticsArgs& args, const StatisticsLoss& to);
// [parts, tokens, 3]: the gradient of grad_scale · loss_sum.
void sum_statistics_grad(const StatisticsArgs& args, float grad_scale, float* dstatistics);

}  // namespace strata::cpu
