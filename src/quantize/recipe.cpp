#include "quantize/recipe.h"

#include <algorithm>
#include <array>

namespace strata::quantize {
namespace {

constexpr Format kForward = Format::kE4M3, kBackward = Format::kE5M2;

std::array<Recipe, 7> make_recipes() {
  const ScaleRule block = ScaleRule::block_row(kForward), mx = ScaleRule::mx(kForward);
  const ScaleRule row = ScaleRule::row(kForward), nvfp4 = ScaleRule::nvfp4_row();
  return {{
      {.name = "block",
       .input = {block, block},
       .weight = {ScaleRule::block_square(kForward)},
       .gradient = {block, block}},
      {.name = "tensor",
       .input = {ScaleRule::tensor(kForward)},
       .weight = {ScaleRule::tensor(kForward)},
       .gradient = {ScaleRule::tensor(kBackward)}},
      {.name = "delayed",
       .input = {ScaleRule::delayed(kForward)},
       .weight = {ScaleRule::delayed(kForward)},
       .gradient = {ScaleRule::delayed(kBackward)}},
      {.name = "row", .input = {row, row}, .weight = {row, row}, .gradient = {row, row}},
      {.name = "row_hp_wgrad",
       .input = {row},
       .weight = {row, ScaleRule::tensor(kForward)},
       .gradient = {row},
       .quantizes_weight_gradient = false},
      {.name = "mxfp8", .input = {mx, mx}, .weight = {mx, mx}, .gradient = {mx, mx}},
      {.name = "nvfp4",
       .input = {nvfp4, nvfp4},
       .weight = {ScaleRule::nvfp4_square()},
       .gradient = {nvfp4, nvfp4},
       .rounds_gradients_stochastically = true,
       .transforms_weight_gradient = true},
  }};
}

const std::array<Recipe, 7>& all() {
  static const std::array<Recipe, 7> kAll = make_recipes();
  return kAll;
}

}  // namespace

std::span<const Recipe> recipes() {
  return all();
}

const Recipe* find_recipe(std::string_view name) {
  const auto found =
      std::find_if(all().begin(), all().end(), [&](const Recipe& one) { return one.name == name; });
  return found == all().end() ? nullptr : found;
}

}  // namespace strata::quantize
