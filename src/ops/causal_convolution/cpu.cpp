#include "kernels/cpu/causal_convolution.h"

#include "device/cpu/cpu.h"
#include "ops/causal_convolution/causal_convolution.h"

namespace strata::device {
namespace {

template <typename Op>
cpu::ConvolutionShape convolution_shape(const Bind<Op>& node, int64_t piece) {
  const graph::Value& x = *node.in.x;
  return {.rows = x.shape[0],
          .piece = piece,
          .channels = x.shape[1],
          .taps = node.in.weight->shape[1],
          .silu = node.attrs.silu,
          .dtype = x.dtype};
}
template <typename Op>
cpu::ConvolutionShape shape_of_pieces(const Bind<Op>& node) {
  return convolution_shape(node, node.attrs.sequence_length / node.attrs.pieces);
}

template <typename Op>
cpu::ConvolutionInputs inputs_of_pieces(const Operands<Op>& at) {
  return {at.in.x, at.in.weight, at.in.bias, at.in.positions, at.in.before};
}

// The pieces of x, and the bytes of each and of its last rows.
struct PieceBytes {
  int64_t pieces, piece, tail;
  PieceBytes(const graph::Value& x, const ops::ConvolutionTailsAttrs& attrs) {
    const int64_t rows = attrs.sequence_length / attrs.pieces, row = x.shape[1] * size_of(x.dtype);
    pieces = x.shape[0] / rows;
    piece = rows * row;
    tail = (attrs.taps - 1) * row;
  }
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::CausalConvolution>& node) {
  const auto shape = shape_of_pieces(node);
  return node.kernel(
      [shape](const Operands<ops::CausalConvolution>& at) {
        cpu::convolution_forward(shape, at.out.y, inputs_of_pieces(at), at.scratch);
      },
      cpu::convolution_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CausalConvolutionGradInput>& node) {
  const auto shape = shape_of_pieces(node);
  return node.kernel(
      [shape](const Operands<ops::CausalConvolutionGradInput>& at) {
        cpu::convolution_backward_input(shape, at.out.dx, at.out.dbefore, at.in.dy, inputs_of_pieces(at),
                                        at.scratch);
      },
      cpu::convolution_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CausalConvolutionGradWeight>& node) {
  const auto shape = shape_of_pieces(node);
  return node.kernel(
      [shape, adds = node.adds](const Operands<ops::CausalConvolutionGradWeight>& at) {
        cpu::convolution_backward_weight(shape, at.out.dw, at.out.dbias, at.in.dy, inputs_of_pieces(at),
                                         adds.dw, adds.dbias, at.scratch);
      },
      cpu::convolution_weight_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ConvolutionTails>& node) {
  return node.kernel([of = PieceBytes(*node.in.x, node.attrs)](const Operands<ops::ConvolutionTails>& at) {
    cpu::take_piece_ends(of.pieces, of.piece, of.tail, at.out.tails, at.in.x);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ConvolutionTailsGrad>& node) {
  return node.kernel(
      [of = PieceBytes(*node.out.dx, node.attrs)](const Operands<ops::ConvolutionTailsGrad>& at) {
        cpu::put_piece_ends(of.pieces, of.piece, of.tail, at.out.dx, at.in.dtails);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ShiftPieces>& node) {
  const graph::Value& x = *node.in.x;
  const auto& attrs = node.attrs;
  return node.kernel([sequences = x.shape[0] / (attrs.pieces * attrs.rows),
                      bytes = attrs.rows * x.shape[1] * size_of(x.dtype), pieces = attrs.pieces,
                      back = attrs.back](const Operands<ops::ShiftPieces>& at) {
    cpu::shift_pieces(sequences, pieces, bytes, back, at.out.shifted, at.in.x);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CachedConvolution>& node) {
  const auto shape = convolution_shape(node, node.in.x->shape[0] / node.in.position->shape[0]);
  return node.kernel(
      [shape](const Operands<ops::CachedConvolution>& at) {
        cpu::convolution_cached(shape, at.out.y, at.out.cache,
                                {at.in.x, at.in.weight, at.in.bias, nullptr, nullptr},
                                {at.in.position, at.in.slot, at.in.count}, at.scratch);
      },
      cpu::convolution_scratch_bytes(shape));
}

}  // namespace strata::device
