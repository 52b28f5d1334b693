#include "ops/rules.h"
#include "ops/jitter/jitter.h"

namespace strata::ops {

const OpDef Jitter::def = define<Jitter>({
    .name = "jitter",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Jitter> {
      const Value &x = *node.in.x, &places = *node.in.places;
      require(node, x.shape.rank() == 2, "x must be f32[N, d]");
      require(node, places.shape == Shape{x.shape[0], 2}, "places must be i32[N, 2]");
      return {.y = {x.dtype, x.shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 40); },
    .placements = [](const auto&, Axis) -> Splits<Jitter> {
      return {{{.x = kS0, .places = kS0}, {.y = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          if (!builder.wants(node.in.x)) return;
          const ValueId dy = builder.gradient_of(node.out.y);
          builder.add_gradient(
              node.in.x, add<Jitter>(builder.graph(), {.x = dy, .places = node.in.places}, node.attrs).y);
        },
});

const OpDef SamplePlaces::def = define<SamplePlaces>({
    .name = "sample_places",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<SamplePlaces> {
      const Value& samples = *node.in.samples;
      require(node, samples.shape.rank() == 1, "samples must be i32[sequences]");
      return {.places = {DType::kI32, {samples.shape[0] * node.attrs.rows, 2}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<SamplePlaces> {
      return {{{.samples = kS0}, {.places = kS0}}};
    },
});

}  // namespace strata::ops
