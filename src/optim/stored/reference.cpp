#include "optim/stored/stored.h"

#include <algorithm>
#include <bit>

#include "optim/optimizers.h"
#include "optim/reference.h"
#include "optim/update_rules.h"
#include "quantize/formats.h"

namespace strata::reference {
namespace {

using optim::Storage;

// A widened array, and its values; those that are stored in full are used in their place.
struct Wide {
  Array array;
  std::vector<double> values;
};

double scaled(const Array& codes, const Array& scales, int64_t i) {
  const auto code = static_cast<uint32_t>(codes.data[i]);
  return static_cast<double>(quantize::decode(quantize::Format::kE4M3, code)) *
         scales.at(i / optim::kMomentBlock);
}

Wide widened(const Array& stored, const Array* scales, const Array* rest) {
  Wide wide{stored, {}};
  if (stored.dtype != DType::kBF16 && stored.dtype != DType::kE4M3 && rest == nullptr) return wide;
  for (int64_t i = 0; i < stored.shape.elements(); ++i) {
    wide.values.push_back(stored.dtype == DType::kE4M3 ? scaled(stored, *scales, i)
                                                       : stored.at(i) + (rest != nullptr ? rest->at(i) : 0));
  }
  wide.array.dtype = DType::kF64;
  wide.array.data = reinterpret_cast<std::byte*>(wide.values.data());
  return wide;
}

void put_scaled(const Array& codes, const Array& scales, const std::vector<double>& values) {
  const double most = quantize::largest_of(quantize::Format::kE4M3);
  for (int64_t begin = 0; begin < std::ssize(values); begin += optim::kMomentBlock) {
    const int64_t end = std::min(begin + optim::kMomentBlock, std::ssize(values));
    double largest = 1e-12;
    for (int64_t i = begin; i < end; ++i)
      largest = std::max(largest, std::abs(values[static_cast<size_t>(i)]));
    const auto scale = static_cast<float>(largest / most);
    scales.put(begin / optim::kMomentBlock, static_cast<double>(scale));
    for (int64_t i = begin; i < end; ++i) {
      const auto value = static_cast<float>(values[static_cast<size_t>(i)] / static_cast<double>(scale));
      codes.data[i] = static_cast<std::byte>(quantize::encode(quantize::Format::kE4M3, value));
    }
  }
}

// bf16 of a value by the random word of its place in the whole tensor; -1: padding, to nearest.
double rounded(double value, const quantize::StochasticBits& bits, int64_t place) {
  const auto number = static_cast<float>(value);
  if (place < 0) return static_cast<double>(static_cast<float>(BF16(number)));
  const uint32_t sum = std::bit_cast<uint32_t>(number) + (quantize::random_word(bits, place) >> 16);
  return static_cast<double>(std::bit_cast<float>(sum & 0xffff0000u));
}

class Places {
 public:
  explicit Places(const Arrays<optim::StoredUpdate>& at)
      : attrs_(at.attrs), own_(at.attrs, at.in.parameter.shape) {
    if (!attrs_.held) return;
    graph::Coordinates rank;
    for (const graph::Axis axis : graph::kAllAxes)
      rank[axis] = static_cast<int32_t>(at.in.rank.index_at(static_cast<int64_t>(axis)));
    rows_ = &attrs_.held->rows.on(rank);
    columns_ = &attrs_.held->columns.on(rank);
  }
  // Of element i of the parameter.
  int64_t operator()(int64_t i) const {
    if (rows_ == nullptr) return attrs_.whole_row * own_.columns + i;
    const int64_t width = attrs_.held->whole_columns;
    const int64_t place = optim::placed_run(*rows_, *columns_, own_.columns, width, i, i + 1).place;
    return place < 0 ? -1 : attrs_.whole_row * width + place;
  }

 private:
  const optim::UpdateAttrs& attrs_;
  optim::UpdateElements own_;
  const std::vector<graph::HeldSpan>*rows_ = nullptr, *columns_ = nullptr;
};

}  // namespace

template <>
void compute(const Arrays<optim::StoredUpdate>& at) {
  const UpdateScalars scalars = scalars_of(at.in.scalars);
  if (scalars.skip != 0) return;
  const optim::UpdateRule& rule = at.attrs.rule;
  const optim::UpdateElements own(at.attrs, at.in.parameter.shape);
  const auto specs = optim::stored_states(rule, optim::with_rows(at.in.parameter.shape, own.rows));
  const auto find = [&](const std::string& name) -> const Array* {
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i].name == name) return &at.out.states[i];
    return nullptr;
  };
  const Array* const rest = find("compensation");
  // A compensation has the rows of the states; a widened weight all of the parameter.
  Wide parameter = widened(at.out.parameter, nullptr, nullptr);
  for (int64_t i = 0; rest != nullptr && i < own.count; ++i)
    parameter.values[static_cast<size_t>(own.first + i)] += rest->at(own.state_first + i);
  // The optimizer's own op, on widened operands.
  const std::vector<optim::StateSpec> full =
      rule.optimizer.definition().states(optim::with_rows(at.in.parameter.shape, own.rows));
  std::vector<Wide> states;
  for (const optim::StateSpec& spec : full) {
    const std::string name(spec.name);
    states.push_back(widened(*find(name), find(name + "_scale"), nullptr));
  }
  Call call;
  call.attrs = at.attrs;
  call.out.push_back(parameter.array);
  for (const Wide& state : states) call.out.push_back(state.array);
  call.in = call.out;
  call.in.push_back(at.in.gradient);
  call.in.push_back(at.in.scalars);
  if (rule.optimizer.is<optim::Lion>()) {
    compute<optim::LionUpdate>(Arrays<optim::LionUpdate>(call));
  } else if (rule.optimizer.is<optim::Adopt>()) {
    compute<optim::AdoptUpdate>(Arrays<optim::AdoptUpdate>(call));
  } else if (rule.optimizer.is<optim::AdamW8Bit>()) {
    compute<optim::AdamW8BitUpdate>(Arrays<optim::AdamW8BitUpdate>(call));
  } else {
    compute<optim::AdamWUpdate>(Arrays<optim::AdamWUpdate>(call));
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const std::string name(full[i].name);
    if (states[i].values.empty()) continue;
    const Array& stored = *find(name);
    if (stored.dtype == DType::kE4M3) {
      put_scaled(stored, *find(name + "_scale"), states[i].values);
      continue;
    }
    for (int64_t e = own.state_first; e < own.state_first + own.count; ++e)
      stored.put(e, states[i].values[static_cast<size_t>(e)]);
  }
  if (rule.storage.weights != DType::kBF16) return;
  const Places place_of(at);
  const quantize::StochasticBits bits{{rule.storage.seed, at.attrs.stream},
                                      static_cast<uint32_t>(scalars.update)};
  for (int64_t i = own.first; i < own.first + own.count; ++i) {
    const double value = parameter.values[static_cast<size_t>(i)];
    at.out.parameter.put(i, rule.storage.is_stochastic() ? rounded(value, bits, place_of(i)) : value);
    if (rest != nullptr) rest->put(own.state_first + i - own.first, value - at.out.parameter.at(i));
  }
}

}  // namespace strata::reference
