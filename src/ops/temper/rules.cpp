#include "ops/rules.h"
#include "ops/temper/temper.h"

namespace strata::ops {

const OpDef Temper::def = define<Temper>({
    .name = "temper",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Temper> {
      const Value& qkv = *node.in.qkv;
      require(node, qkv.shape.rank() == 2 && qkv.segments.size() == 3, "qkv must be [N, q | k | v]");
      require(node, node.in.positions->shape == Shape{qkv.shape[0]}, "positions must be i32[N]");
      require(node, node.attrs.floor > 0, "the floor must be at least one token");
      return {.y = Spec::like(qkv)};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<Temper> {
      return {{{.qkv = kS0, .positions = kS0}, {.y = kS0}}, {{.qkv = kS1, .positions = kR}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.y);
          builder.add_gradient(
              node.in.qkv,
              add<Temper>(builder.graph(), {.qkv = dy, .positions = node.in.positions}, node.attrs).y);
        },
    .in_place = {{"y", "qkv"}},
});

const OpDef ChunkBegins::def = define<ChunkBegins>({
    .name = "chunk_begins",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ChunkBegins> {
      const Shape& positions = node.in.positions->shape;
      require(node, positions.rank() == 1, "positions must be i32[N]");
      if (node.in.document_begins)
        require(node, node.in.document_begins->shape == positions,
                "there must be one begin for each position");
      require(node, node.attrs.size > 0, "a chunk must have tokens");
      return {.begins = {DType::kI32, positions}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<ChunkBegins> {
      return {{{.positions = kS0, .document_begins = kS0}, {.begins = kS0}}};
    },
});

}  // namespace strata::ops
