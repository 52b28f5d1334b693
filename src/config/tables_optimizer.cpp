// [optimizer] and [schedule] of RUN.toml. Most keys of the former come from the optimizers' definitions
// (optim/definition.h).
#include "base/error.h"
#include "config/fields.h"
#include "optim/definition.h"

namespace strata::config {

Names<OptimizerKind> names_of(OptimizerKind) {
  Names<OptimizerKind> all;
  for (const optim::Definition* one : optim::optimizers())
    all.push_back({static_cast<OptimizerKind>(all.size()), one->name});
  return all;
}

namespace {

// The optimizer whose constants a table's struct holds.
using HeldOptimizer = optim::Optimizer& (*)(void* table);

template <typename T>
struct OneValue {
  T value;
};

template <typename T>
KeySpec constant_key_of(const optim::Constant& constant, HeldOptimizer of) {
  const optim::ConstantBounds& bounds = constant.bounds;
  KeySpec spec = key(constant.name, &OneValue<T>::value, constant.help,
                     {.least = bounds.least,
                      .most = bounds.most,
                      .above = bounds.above,
                      .below = bounds.below,
                      .counts = bounds.counts});
  spec.read = [of, read = spec.read, set = constant.set](void* table, const ConfigValue& value) {
    OneValue<T> one{};
    if (!read(&one, value)) return false;
    set(of(table), static_cast<double>(one.value));
    return true;
  };
  spec.write = [of, write = spec.write, get = constant.get](const void* table) {
    const OneValue<T> one{static_cast<T>(get(of(const_cast<void*>(table))))};
    return write(&one);
  };
  return bounds.fixed ? on_resume(std::move(spec), ResumeClass::kRefused) : spec;
}

// For a constant that is an enum: its index among the choices.
KeySpec choice_key_of(const optim::Constant& constant, HeldOptimizer of) {
  KeySpec spec = key(constant.name, &OneValue<std::string>::value, constant.help);
  spec.shape = choice(constant.bounds.choices);
  spec.shape.base = ValueShape::Base::kChoice;
  spec.read = [of, choices = constant.bounds.choices, set = constant.set](void* table,
                                                                          const ConfigValue& value) {
    const auto* text = value.get_if<std::string>();
    const auto found = text ? std::find(choices.begin(), choices.end(), *text) : choices.end();
    if (found == choices.end()) return false;
    set(of(table), static_cast<double>(found - choices.begin()));
    return true;
  };
  spec.write = [of, choices = constant.bounds.choices, get = constant.get](const void* table) {
    return plain(choices.at(static_cast<size_t>(get(of(const_cast<void*>(table))))));
  };
  return constant.bounds.fixed ? on_resume(std::move(spec), ResumeClass::kRefused) : spec;
}

std::vector<KeySpec> constant_keys(const optim::Definition& definition, HeldOptimizer of) {
  std::vector<KeySpec> keys;
  for (const optim::Constant& constant : definition.keys) {
    switch (constant.type) {
      case optim::Constant::Type::kNumber:
        keys.push_back(constant_key_of<double>(constant, of));
        break;
      case optim::Constant::Type::kInteger:
        keys.push_back(constant_key_of<int64_t>(constant, of));
        break;
      case optim::Constant::Type::kBoolean:
        keys.push_back(constant_key_of<bool>(constant, of));
        break;
      case optim::Constant::Type::kChoice:
        keys.push_back(choice_key_of(constant, of));
        break;
    }
  }
  return keys;
}

}  // namespace

// [optimizer.NAME] for all optimizers that have one; written if the optimizer is used.
std::vector<TableSpec> optimizer_sub_tables() {
  std::vector<TableSpec> tables;
  const auto all = optim::optimizers();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i]->help.empty()) continue;
    tables.push_back(
        {.name = fmt::format("optimizer.{}", all[i]->name),
         .help = std::string(all[i]->help),
         .resume = ResumeClass::kAccept,
         .keys = constant_keys(
             *all[i],
             [](void* table) -> optim::Optimizer& { return *static_cast<optim::Optimizer*>(table); }),
         .list = false,
         .later = false,
         .count =
             [i](const RunConfig& config) {
               return size_t{config.optimizer.uses(static_cast<OptimizerKind>(i)) ? 1u : 0u};
             },
         .at = [i](RunConfig& config, size_t) -> void* { return &config.optimizer.constants[i]; }});
  }
  return tables;
}

TableSpec optimizer_table() {
  std::vector<KeySpec> keys{
      on_resume(key("name", &OptimizerTable::name,
                    "The update rule. muon updates matrices within blocks and leaves all others to adamw."),
                ResumeClass::kRefused),
      key("lr", &OptimizerTable::lr, "Peak learning rate.", between(kLeastReal, kMostReal)),
  };
  for (const optim::Definition* one : optim::optimizers()) {
    if (!one->help.empty()) continue;
    for (KeySpec& spec : constant_keys(*one, [](void* table) -> optim::Optimizer& {
           return static_cast<OptimizerTable*>(table)->constants.front();
         }))
      keys.push_back(std::move(spec));
  }
  keys.push_back(key("weight_decay", &OptimizerTable::weight_decay,
                     "Applies to tensors with two or more dimensions, not to norms and biases.",
                     between(0, 1e6)));
  keys.push_back(
      key("state_dtype", &OptimizerTable::state_dtype,
          "Type of the moments of adamw, lion and adopt; fp8: e4m3 with a scale for every 256, in tensors of "
          "at least 4096 elements."));
  return table("optimizer", ResumeClass::kAccept, &RunConfig::optimizer,
               "The update of weights by gradients.", std::move(keys));
}

TableSpec optimizer_group_table() {
  using T = OptimizerGroup;
  return list("optimizer.group", ResumeClass::kAccept, &RunConfig::optimizer, &OptimizerTable::group,
              "Tensors with separate settings; the first matching group applies.",
              {
                  key("match", &T::match, "Tensor names, with * and ?: \"*embed_tokens*\"."),
                  key("lr_scale", &T::lr_scale, "Factor on the learning rate.", between(0, 1e6)),
                  key("weight_decay", &T::weight_decay, "Overrides the optimizer's.", between(0, 1e6)),
                  on_resume(key("name", &T::name, "Overrides the optimizer's."), ResumeClass::kRefused),
              });
}

TableSpec schedule_table() {
  return table("schedule", ResumeClass::kAccept, &RunConfig::schedule, "The learning rate over the run.",
               {
                   key("name", &ScheduleTable::name, "The curve after the warm-up."),
                   key("warmup_steps", &ScheduleTable::warmup_steps,
                       "Step s of 1…warmup uses lr·s/warmup; auto: 5 % of the horizon, at least 10 steps.",
                       word("auto", count_between(0, kMostNumber))),
                   key("min_lr_ratio", &ScheduleTable::min_lr_ratio,
                       "The last learning rate, as a share of lr.", between(0, 1)),
                   key("steps", &ScheduleTable::steps, "The horizon, fixed at the first start.",
                       word("training", count_between(1, kMostNumber))),
                   key("decay_ratio", &ScheduleTable::decay_ratio,
                       "wsd: the share of the horizon that decays.", between(0, 1)),
                   key("decay", &ScheduleTable::decay, "wsd: shape of the decay."),
               });
}

}  // namespace strata::config
