// What a node of each op of the update holds: the positions of its operands. Attributes and shapes stand in
// optimizer.h.
#pragma once

namespace strata::optim {

struct SumOfSquaresOperands {
  enum In : int { kX };
  enum Out : int { kPartials };
};
struct UpdateScalarsOperands {
  enum In : int { kHyper, kTokenCount, kUpdates, kFirstPartials };
  enum Out : int { kScalars, kGradNorm, kNewUpdates };
};
struct SumOfPartialsOperands {
  enum In : int { kFirstPartials };
  enum Out : int { kSum };
};
struct RootOfSumOperands {
  enum In : int { kFirstPartials };
  enum Out : int { kNorm };
};

// Of every optimizer's op. The last inputs are the gradient and the scalars; the outputs are the parameter
// and the states, at the places that they have as inputs and over them.
struct UpdateOperands {
  enum In : int { kParameter, kFirstState };
  static constexpr int kBehindStates = 2;  // inputs
};
struct AdamWOperands {
  enum In : int { kParameter, kM, kV, kGradient, kScalars };
};
struct LionOperands {
  enum In : int { kParameter, kMomentum, kGradient, kScalars };
};
using MuonOperands = LionOperands;
// The first so many operands are those that the slots of a stack number.
struct MuonMomentumOperands {
  static constexpr int kEach = 2;    // inputs
  static constexpr int kBehind = 1;  // scalars
  static constexpr int momentum(int i) { return kEach * i; }
  static constexpr int gradient(int i) { return kEach * i + 1; }
};
struct NewtonSchulzOperands {
  enum In : int { kX };
  enum Out : int { kY };
};
struct MuonApplyOperands {
  static constexpr int kBehind = 2;  // stack, scalars
  static constexpr int parameter(int i) { return i; }
};
struct AdafactorOperands {
  enum In : int { kParameter, kRow, kColumn, kGradient, kScalars };
};
struct AdafactorVectorOperands {
  enum In : int { kParameter, kVariance, kGradient, kScalars };
};
struct AdafactorSumsOperands {
  enum In : int { kParameter, kState, kGradient, kScalars };  // row, or a vector's variance
  enum Out : int { kNewState, kSums };
};
struct AdafactorColumnsOperands {
  enum In : int { kRow, kColumn, kGradient, kSums, kScalars };
  enum Out : int { kNewColumn, kSquares };
};
struct AdafactorApplyOperands {
  enum In : int { kParameter, kState, kColumn, kGradient, kSums, kSquares, kScalars };
  enum Out : int { kNewParameter };
};
struct AdamW8BitOperands {
  enum In : int { kParameter, kM, kMScale, kV, kVScale, kGradient, kScalars };
};
struct AdamW8BitLargestOperands {
  enum In : int { kM, kMScale, kV, kVScale, kGradient, kScalars, kRank };
  enum Out : int { kLargest };
};
struct AdamW8BitShardOperands {
  enum In : int { kParameter, kM, kMScale, kV, kVScale, kGradient, kScalars, kRank, kLargest };
};

}  // namespace strata::optim
