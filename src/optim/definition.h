// Definition of an optimizer: its name, keys, states and op, and its behaviour in shards.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "optim/signatures.h"

namespace strata::optim {

struct StateSpec : StateShape {
  std::string_view name;
  DType dtype = DType::kF32;
};

// Bounds of a constant's value.
struct ConstantBounds {
  std::optional<double> least = {}, most = {};   // included
  std::optional<double> above = {}, below = {};  // excluded
  std::vector<std::string> choices = {};         // of an enum, in its order
  bool counts = false;                           // may be written "500M"
  bool fixed = false;                            // stays within a run
};

// A member of an optimizer's constants that a run may set: a key of its table.
struct Constant {
  enum class Type : uint8_t { kNumber, kInteger, kBoolean, kChoice };
  const char *name, *help;
  Type type = Type::kNumber;
  ConstantBounds bounds;
  // Any of the types as a double.
  std::function<double(const Optimizer&)> get;
  std::function<void(Optimizer&, double)> set;

  template <typename Constants, typename T>
  Constant(const char* key, T Constants::*member, const char* text, ConstantBounds value = {})
      : name(key),
        help(text),
        type(std::is_same_v<T, bool>      ? Type::kBoolean
             : std::is_same_v<T, int64_t> ? Type::kInteger
             : std::is_enum_v<T>          ? Type::kChoice
                                          : Type::kNumber),
        bounds(std::move(value)),
        get([member](const Optimizer& of) { return static_cast<double>(of.as<Constants>().*member); }),
        set([member](Optimizer& of, double number) {
          Constants constants = of.as<Constants>();
          constants.*member = static_cast<T>(number);
          of = constants;
        }) {}
};
// The least of those that kernels take as fp32, and the largest count.
inline constexpr double kLeastConstant = 1e-37, kMostConstant = 1e15;

// Rows of a sharded parameter, for which there would be a node.
struct ShardedRows {
  graph::ValueId parameter = graph::kNone, gradient = graph::kNone;
  std::vector<graph::ValueId> states;
  UpdateAttrs attrs;
  int32_t layer = graph::kNone;
};

struct Definition {
  std::string_view name;  // of [optimizer] name
  std::string_view help;  // of its table [optimizer.NAME]; empty: its keys are those of [optimizer]
  std::vector<Constant> keys;
  // Constants that it shares with the run's AdamW; nullptr: none.
  void (*share)(Optimizer& own, const Optimizer& adamw) = nullptr;
  // Whether weights may be in bf16, and moments in fewer bits than fp32: StoredUpdate then computes the update.
  bool low_weights = false, low_moments = false;
  bool hidden_matrices = false;  // only for models::is_hidden_matrix(); AdamW has the other tensors
  // The optimizer that updates such rows in its place; nullptr: it updates all rows.
  std::optional<Optimizer> (*instead)(const Optimizer& own, const Shape& rows) = nullptr;

  // The rows that a node may be for: any, since elements are updated independently (neighbours share states);
  // one tensor with separate states; or one matrix, which is a segment of a tensor.
  enum class Unit : uint8_t { kRows, kTensor, kMatrix } unit = Unit::kRows;
  const graph::OpDef& (*op)(const Shape& rows);
  std::vector<StateSpec> (*states)(const Shape& rows);
  // The rule of a node for `rows` as its kernel applies it; nullptr: unchanged.
  UpdateRule (*applied)(const UpdateRule& rule, const Shape& rows) = nullptr;
  // The rows that a shard of a tensor comes in multiples of.
  int64_t (*alignment)(const Shape& rows) = [](const Shape&) { return int64_t{1}; };
  // Updates all rows that are in shards, if ranks need one another's; nullptr: a rank updates its own with
  // `op`.
  void (*add_sharded)(graph::Graph&, graph::ValueId scalars, const std::vector<ShardedRows>& all) = nullptr;
  // Whether a rank updates its own rows of a parameter in shards by `op` all the same; nullptr: never if
  // there is add_sharded.
  bool (*is_own)(const graph::Graph&, const graph::Value& parameter) = nullptr;
};

// All of them, in the order of optimizers.h.
std::span<const Definition* const> optimizers();

}  // namespace strata::optim
