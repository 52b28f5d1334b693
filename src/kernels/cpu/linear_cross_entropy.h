// Head of a language model: cross-entropy of the logits x[m,d] · W[v,d]ᵀ (+ bias[v]) against target tokens,
// summed over the tokens that have a target, and its gradients. Tokens are processed in chunks, so the logits
// of all tokens never exist together. If few tokens have a target, only those are computed.
//
// One run computes both loss and gradients, or several runs compute them in steps. In steps, a run first
// computes statistics of the logits, and sum_statistics computes the loss and the gradient of the statistics.
// Further runs compute dx, and dW with dbias, separately or together; each recomputes the logits. If W is the
// whole vocabulary, both ways give the same bits. In steps, W may also be a shard of the vocabulary, or
// several of equal size, whose statistics are reduced together. Chunks then have the same number of tokens as
// for the whole vocabulary, so a shard's logits take only their share of memory. Rows past the end of the
// vocabulary are ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/gemm.h"

namespace strata::cpu {

// Result of a run.
enum class CrossEntropyTask : uint8_t {
  kLoss,        // loss_sum, count; token_loss and greedy if not null
  kTraining,    // as kLoss, and dx, dw and dbias: three GEMMs
  kStatistics,  // statistics: one GEMM
  kInputGrad,   // dx from statistics and their gradient: two GEMMs
  kWeightGrad,  // dw and dbias from these: two GEMMs
  kGradients,   // dx, dw and dbias from these: three GEMMs
};

struct LinearCrossEntropySpec {
  int64_t tokens = 0;
  int64_t hidden_size = 0;  // d
  int64_t vocab = 0;        // v, rows of W
  int64_t vocab_valid = 0;  // columns from here on are padding and ignored; 0: vocab
  DType dtype = DType::kF32;
  CrossEntropyTask task = CrossEntropyTask::kTraining;
  bool accumulate = false;       // dW += instead of dW =
  bool accumulate_loss = false;  // loss_sum and count += instead of =
  int64_t x_stride = 0;          // elements between rows of x and dx; 0: hidden_size
  int64_t chunk_tokens = 0;      // 0: automatic
  double target_share = 1;       // average share of tokens with a target; chunks are sized for these
  float softcap = 0;             // above 0: logits become softcap · tanh(logit / softcap)
  bool bias = false;
  bool accumulate_bias = false;  // dbias += instead of dbias =
  int64_t parts = 1;             // shards of equal size in W's rows; 1 for kLoss and kTraining
  int64_t vocabulary = 0;        // rows of the whole vocabulary, the range of targets; 0: vocab_valid
};

struct LinearCrossEntropyArgs {
  const void* x = nullptr;
  const void* w_forward = nullptr;     // W packed by plan_weight_encoding(kForward, vocab, hidden_size)
  const void* w_input_grad = nullptr;  // the same for kInputGrad
  const float* bias = nullptr;         // [vocab], if the specification has a bias
  const int32_t* targets = nullptr;    // [tokens], in [0, vocabulary) or -1: no loss
  float grad_scale = 1.0f;             // gradients are of grad_scale * loss_sum
  double* loss_sum = nullptr;
  int64_t* count = nullptr;     // tokens with a target
  float* token_loss = nullptr;  // [tokens], 0 without a target; may be null
  int32_t* greedy = nullptr;    // [tokens], 1 if no logit is above the target's; may be null
  void* dx = nullptr;           // [tokens, hidden_size] in the activations' dtype
  float* dw = nullptr;          // [vocab, hidden_size]
  float* dbias = nullptr;       // [vocab], if there is a bias
  // Only for statistics and gradients from them:
  const int32_t* vocab_start = nullptr;  // [parts]: each shard's first row in the whole vocabulary; may be
                                         // null for a single shard that begins at 0
  const float* statistics = nullptr;     // [parts, tokens, 3], see StatisticsArgs
  const float* dstatistics = nullptr;    // the same
  float* out_statistics = nullptr;       // the same, of kStatistics
  void* scratch = nullptr;               // aligned to 64 bytes
};

// GEMMs that the task needs for a chunk of tokens.
struct CrossEntropyChunk {
  int64_t tokens = 0;
  GemmPlan forward, input_grad, weight_grad_first, weight_grad;
};

// Immutable data that may be shared, like a GemmPlan.
struct LinearCrossEntropyPlan {
  LinearCrossEntropySpec spec;  // with automatic values resolved
  GemmCost cost;
  int64_t scratch_bytes = 0;
  CrossEntropyChunk full;
  CrossEntropyChunk last;  // a shorter last chunk; no tokens: none
  // Sizes for the last chunk of gathered tokens, whose number varies by chance; decreasing, below `full`.
  std::vector<CrossEntropyChunk> fewer;
  // Offsets in scratch. The gradient of fp32 activations replaces the logits; that of bf16 activations has
  // its own dense buffer, as the GEMMs need it.
  int64_t gradient_at = 0;
  int64_t losses_at = 0;
  int64_t gemm_scratch_at = 0;
  int64_t gather_at = 0;
};

// A function of the sizes: 2 · tokens · hidden_size · vocab FLOPs per GEMM.
GemmCost linear_cross_entropy_cost(const LinearCrossEntropySpec& spec);

LinearCrossEntropyPlan plan_linear_cross_entropy(const LinearCrossEntropySpec& spec,
                                                 const hardware::DeviceSpec& device,
                                                 GemmEngine engine = GemmEngine::kAuto);

// A plan, ready to run on this machine. Only one thread at a time may run it, as a Gemm.
class LinearCrossEntropy {
 public:
  explicit LinearCrossEntropy(const LinearCrossEntropyPlan& plan);
  ~LinearCrossEntropy();
  LinearCrossEntropy(LinearCrossEntropy&&) noexcept;

  // Tasks that run forward throw DataError if a target is out of range. dx may be x itself.
  void run(const LinearCrossEntropyArgs& args);

  const LinearCrossEntropyPlan& plan() const { return plan_; }

  struct Chunk;  // its GEMMs

 private:
  LinearCrossEntropyPlan plan_;
  std::unique_ptr<Chunk> full_, last_;
  std::vector<Chunk> fewer_;
};

// Statistics of a shard's logits for one token: their maximum, the sum of exp(logit - maximum), and the
// target's logit, or -infinity if the target is in another shard. All are 0 for a token without a target.
struct StatisticsArgs {
  int64_t tokens = 0;
  int64_t parts = 1;
  const float* statistics = nullptr;  // [parts, tokens, 3]
  const int32_t* targets = nullptr;   // [tokens]; below 0: no loss
};

// Loss over all shards; token_loss and greedy may be null.
struct StatisticsLoss {
  bool accumulate = false;  // loss_sum and count += instead of =
  double* loss_sum = nullptr;
  int64_t* count = nullptr;
  float* token_loss = nullptr;  // [tokens]
  int32_t* greedy = nullptr;    // [tokens], from the logits after the cap
  double* scratch = nullptr;    // [tokens]
};
void sum_statistics(const StatisticsArgs& args, const StatisticsLoss& to);
// Writes dstatistics [parts, tokens, 3], the gradient of grad_scale · loss_sum.
void sum_statistics_grad(const StatisticsArgs& args, float grad_scale, float* dstatistics);

}  // namespace strata::cpu
