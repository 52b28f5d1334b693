// Stages from lists, layout strings and costs.
#include "parallel/stage_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata::parallel {
namespace {

std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "taken";
}

TEST(StageLayout, PublishedStrings) {
  struct {
    std::string text;
    int32_t prediction_layers, stages;
    std::vector<int32_t> layers;  // of the first stages
  } const rows[] = {
      {"Et|(tt|)*30mL", 1, 32, {1, 2, 2}},
      {"Et|(tt|)*30L", 0, 32, {1, 2, 2}},
      {"Et*2|(tt|)*22t|(tt|)*7mL", 1, 32, {2, 2, 2}},
      {"Et*4|(t*4|)*14tmL", 1, 16, {4, 4, 4}},
      {" E,t * 4 , | ( t*4 | ) * 14 , t,m,L ", 1, 16, {4, 4, 4}},
  };
  for (const auto& row : rows) {
    const ModelParts model{.layers = 61, .prediction_layers = row.prediction_layers};
    const StageLayout layout = parse_layout(row.text, model, row.stages);
    ASSERT_EQ(std::ssize(layout), row.stages) << row.text;
    int32_t layers = 0;
    for (const StageParts& stage : layout) {
      EXPECT_EQ(stage.first_layer, layers);
      layers += stage.layers;
    }
    EXPECT_EQ(layers, 61);
    for (size_t s = 0; s < row.layers.size(); ++s) EXPECT_EQ(layout[s].layers, row.layers[s]) << row.text;
    EXPECT_TRUE(layout.front().has_embedding && layout.back().has_head);
    EXPECT_EQ(layout.back().prediction_layers, row.prediction_layers);
    EXPECT_EQ(parse_layout(layout_text(layout), model, row.stages), layout);
  }
}

TEST(StageLayout, EmptyStages) {
  const StageLayout layout = parse_layout("E|t||ttL", {.layers = 3}, 4);
  EXPECT_EQ(
      layout,
      (StageLayout{
          {true, 0, 0, 0, false}, {false, 0, 1, 0, false}, {false, 1, 0, 0, false}, {false, 1, 2, 0, true}}));
  EXPECT_EQ(layout_text(layout), "E|t||ttL");
}

TEST(StageLayout, RejectsOtherStrings) {
  const struct {
    std::string text, message;
  } rows[] = {
      {"tt|ttL", "character 1: the first stage does not begin with E"},
      {"|Ett|ttL", "character 2: the first stage does not begin with E"},
      {"", "character 1: no L at the end"},
      {"Ett|tt", "character 7: no L at the end"},
      {"EtL|ttL", "character 4: found | after L"},
      {"Et|EtttL", "character 4: a second E"},
      {"Et|tmttL", "character 6: found t after m"},
      {"Ett|xtL", "character 5: found 'x'"},
      {"Et|((t|)*2)*2L", "character 5: a group within a group"},
      {"Et|(tt|L", "character 4: no ) closes this ("},
      {"Et|(tt|)L", "character 8: no *n after the )"},
      {"Et*|ttL", "character 3: no positive number after the *"},
      {"Et*0|ttL", "character 3: no positive number"},
      {"Et*99999999999999999999|L", "more than 65536 parts"},
      {"Ett|t|tL", "found 3 stages, expected 2"},
      {"Ett|tL", "found 3 t and 0 m, but the model has 4 layers and 0 prediction layers"},
  };
  for (const auto& row : rows) {
    const std::string message = refusal([&] { parse_layout(row.text, {.layers = 4}, 2); });
    EXPECT_NE(message.find(row.message), std::string::npos) << message;
  }
}

TEST(StageLayout, AnyStringIsRejectedOrReadBack) {
  std::mt19937 random(3);
  constexpr std::string_view kAlphabet = "Etttm|||L()*23, x";
  int taken = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string text = random() % 2 ? "Et" : "";
    for (size_t length = random() % 9; length-- > 0;) text += kAlphabet[random() % kAlphabet.size()];
    if (random() % 2) text += 'L';
    const auto count = [&](char letter) {
      return static_cast<int32_t>(std::count(text.begin(), text.end(), letter));
    };
    const ModelParts model{.layers = count('t'), .prediction_layers = count('m')};
    const int32_t stages = count('|') + 1;
    StageLayout layout;
    if (refusal([&] { layout = parse_layout(text, model, stages); }) != "taken") continue;
    ++taken;
    EXPECT_EQ(parse_layout(layout_text(layout), model, stages), layout) << text;
  }
  EXPECT_GT(taken, 100);
}

TEST(StageLayout, Lists) {
  const int64_t layers[] = {3, 5, 4};
  const ModelParts model{.layers = 12, .prediction_layers = 1};
  EXPECT_EQ(layout_text(layout_of_list(layers, model, 3)), "Ettt|ttttt|ttttmL");
  EXPECT_NE(refusal([&] { layout_of_list(layers, model, 4); }).find("found 3 numbers, expected 4"),
            std::string::npos);
  EXPECT_NE(refusal([&] { layout_of_list(layers, {.layers = 14}, 3); }).find("the model has 14. Add 2"),
            std::string::npos);
  EXPECT_NE(refusal([&] { layout_of_list(layers, {.layers = 10}, 3); }).find("Remove 2"), std::string::npos);
  const int64_t negative[] = {5, -1};
  EXPECT_NE(refusal([&] { layout_of_list(negative, {.layers = 4}, 2); }).find("stage 0: found 5"),
            std::string::npos);
}

PartCosts even_layers(int32_t layers) {
  return {.layers = std::vector<double>(static_cast<size_t>(layers), 1.0)};
}

std::string balanced(const PartCosts& costs, int32_t stages) {
  return layout_text(balanced_layout(costs, {.layers = static_cast<int32_t>(costs.layers.size())}, stages));
}

TEST(Balance, EmbeddingAndHeadCount) {
  PartCosts costs = even_layers(10);
  EXPECT_EQ(balanced(costs, 4), "Ett|tt|ttt|tttL");  // the first stages have less
  costs.head = 2;
  EXPECT_EQ(balanced(costs, 4), "Ettt|ttt|ttt|tL");
  costs.head = 3;
  EXPECT_EQ(balanced(costs, 2), "Etttttt|ttttL");
  costs.head = 20;
  EXPECT_EQ(balanced(costs, 3), "Ettttt|ttttt|L");
  costs.embedding = 1.5;
  EXPECT_EQ(balanced(costs, 1), "EttttttttttL");
  EXPECT_EQ(balanced(even_layers(1), 3), "E|t|L");
  EXPECT_NE(refusal([&] { balanced(even_layers(1), 4); }).find("a model of 1 layers has at most 3"),
            std::string::npos);
  // The 126 layers of Llama 3.1 405B make 16 x 8 if embedding and head count as one layer each.
  PartCosts llama = even_layers(126);
  llama.embedding = llama.head = 1;
  const StageLayout layout = balanced_layout(llama, {.layers = 126}, 16);
  EXPECT_EQ(layout.front().layers, 7);
  EXPECT_EQ(layout.back().layers, 7);
  for (size_t s = 1; s + 1 < layout.size(); ++s) EXPECT_EQ(layout[s].layers, 8);
}

// Tries all splits of `items` into `stages` ranges, for the least cost of the most expensive range.
std::pair<double, double> best_by_trying(const std::vector<double>& items, size_t stages, size_t first = 0) {
  double cost = 0;
  if (stages == 1) {
    for (size_t i = first; i < items.size(); ++i) cost += items[i];
    return {cost, cost * cost};
  }
  std::pair<double, double> best = {std::numeric_limits<double>::infinity(), 0};
  for (size_t end = first + 1; end + stages - 1 <= items.size(); ++end) {
    cost += items[end - 1];
    const auto rest = best_by_trying(items, stages - 1, end);
    const std::pair<double, double> found = {std::max(cost, rest.first), cost * cost + rest.second};
    if (found.first < best.first - 1e-12) best.first = found.first;
  }
  return best;
}

double squares_by_trying(const std::vector<double>& items, size_t stages, double most, size_t first = 0) {
  double cost = 0;
  if (stages == 1) {
    for (size_t i = first; i < items.size(); ++i) cost += items[i];
    return cost <= most + 1e-9 ? cost * cost : std::numeric_limits<double>::infinity();
  }
  double best = std::numeric_limits<double>::infinity();
  for (size_t end = first + 1; end + stages - 1 <= items.size(); ++end) {
    cost += items[end - 1];
    if (cost > most + 1e-9) break;
    best = std::min(best, cost * cost + squares_by_trying(items, stages - 1, most, end));
  }
  return best;
}

TEST(Balance, MatchesTryingAllSplits) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const auto layers = static_cast<int32_t>(1 + random() % 9);
    const auto stages = static_cast<int32_t>(1 + random() % static_cast<uint32_t>(std::min(layers + 2, 6)));
    // Small integers, so that many splits are equally good.
    const auto cost = [&] { return static_cast<double>(random() % 5) + (trial % 2 == 0 ? 0.0 : 0.37); };
    PartCosts costs{.embedding = cost(), .layers = {}, .prediction_layer = cost(), .head = cost()};
    for (int32_t i = 0; i < layers; ++i) costs.layers.push_back(cost());
    const ModelParts model{.layers = layers, .prediction_layers = 1};
    std::vector<double> items = {costs.embedding};
    items.insert(items.end(), costs.layers.begin(), costs.layers.end());
    items.push_back(costs.prediction_layer + costs.head);
    const StageLayout layout = balanced_layout(costs, model, stages);
    double dearest = 0, squares = 0;
    for (const StageParts& stage : layout) {
      dearest = std::max(dearest, cost_of(stage, costs));
      squares += cost_of(stage, costs) * cost_of(stage, costs);
    }
    const double best = best_by_trying(items, static_cast<size_t>(stages)).first;
    EXPECT_NEAR(dearest, best, 1e-9) << layout_text(layout);
    EXPECT_NEAR(squares, squares_by_trying(items, static_cast<size_t>(stages), best), 1e-6)
        << layout_text(layout);
    EXPECT_EQ(parse_layout(layout_text(layout), model, stages), layout);
  }
}

TEST(StageLayout, SharedTables) {
  const ModelParts decoder{.layers = 4};
  const StageLayout layout = parse_layout("Et|t|t|tL", decoder, 4);
  EXPECT_EQ(shared_tables(layout, decoder).embedding, std::vector<int32_t>{0});
  EXPECT_EQ(shared_tables(layout, decoder).head, std::vector<int32_t>{3});
  const ModelParts tied{.layers = 4, .tied_embeddings = true};
  EXPECT_EQ(shared_tables(layout, tied).embedding, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(shared_tables(layout, tied).head, (std::vector<int32_t>{0, 3}));
  const ModelParts predicting{.layers = 4, .prediction_layers = 1};
  const StageLayout apart = parse_layout("Et|t|ttm|L", predicting, 4);
  EXPECT_EQ(shared_tables(apart, predicting).embedding, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(shared_tables(apart, predicting).head, (std::vector<int32_t>{2, 3}));
}

TEST(StageLayout, EncoderAndDecoder) {
  const ModelParts model{.layers = 6, .encoder_layers = 3};
  const StageLayout within = parse_layout("Et|tt|t|t|tL", model, 5);
  EXPECT_EQ(shared_tables(within, model).embedding, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(boundary_after(within, model, 0), (Boundary{true, false}));
  // The encoder ends with the stage: the decoder begins with its own tokens.
  EXPECT_EQ(boundary_after(within, model, 1), (Boundary{false, true}));
  EXPECT_EQ(boundary_after(within, model, 2), (Boundary{true, true}));
  EXPECT_EQ(boundary_after(within, model, 3), (Boundary{true, true}));
  const StageLayout head_only = parse_layout("Etttt|tt|L", model, 3);
  EXPECT_EQ(boundary_after(head_only, model, 1), (Boundary{true, false}));
  EXPECT_EQ(shared_tables(head_only, model).embedding, std::vector<int32_t>{0});
  EXPECT_EQ(boundary_after(within, {.layers = 6}, 2), (Boundary{true, false}));
}

}  // namespace
}  // namespace strata::parallel
