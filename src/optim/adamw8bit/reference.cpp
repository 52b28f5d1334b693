#include <algorithm>
#include <array>

#include "optim/adamw8bit/adamw8bit.h"
#include "optim/reference.h"
#include "tensor/dynamic_map.h"

namespace strata::reference {
namespace {

// The code nearest to x among values up to `most`: a search, one by one.
double nearest_code(const std::array<float, 256>& map, double x, double most) {
  const double share = most > 0 ? x / most : 0;
  size_t nearest = 0;
  for (size_t code = 1; code < map.size(); ++code) {
    if (std::abs(static_cast<double>(map[code]) - share) <
        std::abs(static_cast<double>(map[nearest]) - share))
      nearest = code;
  }
  return static_cast<double>(nearest);
}

const std::array<float, 256>& m_map() {
  return signed_dynamic_map().values;
}
const std::array<float, 256>& v_map() {
  return unsigned_dynamic_map().values;
}
double decoded(const std::array<float, 256>& map, const Array& codes, int64_t i, double scale) {
  return static_cast<double>(map[static_cast<size_t>(codes.index_at(i))]) * scale;
}

// Codes and scales of states in bytes.
void put_bytes(const std::array<float, 256>& map, const std::vector<double>& x, const Array& codes,
               const Array& scales) {
  for (size_t begin = 0; begin < x.size(); begin += kQuantizationBlock) {
    const size_t end = std::min(x.size(), begin + kQuantizationBlock);
    double most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i]));
    scales.put(static_cast<int64_t>(begin / kQuantizationBlock), most);
    for (size_t i = begin; i < end; ++i) codes.put(static_cast<int64_t>(i), nearest_code(map, x[i], most));
  }
}

// --- Of tensors whose blocks ranks share

// The elements that a rank holds of a tensor, one by one.
struct HeldElements {
  struct Element {
    int64_t memory, block;  // counted from the tensor's begin
  };
  HeldElements(const optim::AdamW8BitShardAttrs& attrs, const Shape& shape, const Array& rank) {
    const graph::Coordinates& at = graph::coordinates_in(rank.data);
    const graph::Span across = optim::held_of_part(attrs.columns, 0, at);
    const int64_t columns = attrs.columns.size();
    first = optim::row_range(attrs.update, shape).first * across.size();
    int64_t row = 0, begin = 0;
    for (size_t part = 0; part < attrs.rows.parts.size(); ++part) {
      const graph::Span held = optim::held_of_part(attrs.rows, part, at);
      for (int64_t r = held.begin; r < held.end; ++r) {
        for (int64_t c = across.begin; c < across.end; ++c) {
          elements.push_back({(row + r - held.begin) * across.size() + c - across.begin,
                              ((begin + r) * columns + c) / kQuantizationBlock});
        }
      }
      row += attrs.rows.parts[part].capacity();
      begin += attrs.rows.parts[part].size;
    }
  }

  int64_t first = 0;  // of the tensor, in the parameter's memory
  std::vector<Element> elements;
};

struct BothMoments {
  double m, v;
};
template <typename Op>
BothMoments moved_moments(const Arrays<Op>& at, const AdamWStep& adamw, const HeldElements::Element& element,
                          double g) {
  return {adamw.m(decoded(m_map(), at.in.m, element.memory, at.in.m_scale.at(element.block)), g),
          adamw.v(decoded(v_map(), at.in.v, element.memory, at.in.v_scale.at(element.block)), g)};
}

AdamWStep step_of(const optim::UpdateRule& rule, const UpdateScalars& scalars) {
  return {rule.optimizer.as<optim::AdamW8Bit>().adamw, scalars,
          static_cast<double>(scalars.lr) * rule.lr_scale};
}

}  // namespace

template <>
void compute(const Arrays<optim::AdamW8BitUpdate>& at) {
  const Update update(at);
  if (update.scalars.skip != 0) return;
  const AdamWStep adamw = step_of(at.attrs.rule, update.scalars);
  std::vector<double> m, v;
  for (int64_t i = 0; i < update.count; ++i) {
    const double g = update.g(i);
    const int64_t block = i / kQuantizationBlock;
    m.push_back(adamw.m(decoded(m_map(), at.in.m, i, at.in.m_scale.at(block)), g));
    v.push_back(adamw.v(decoded(v_map(), at.in.v, i, at.in.v_scale.at(block)), g));
    update.put_p(i, update.p(i) * update.keep - adamw.of(m.back(), v.back()));
  }
  put_bytes(m_map(), m, at.out.m, at.out.m_scale);
  put_bytes(v_map(), v, at.out.v, at.out.v_scale);
}

template <>
void compute(const Arrays<optim::AdamW8BitLargest>& at) {
  const UpdateScalars scalars = scalars_of(at.in.scalars);
  const AdamWStep adamw = step_of(at.attrs.update.rule, scalars);
  const HeldElements held(at.attrs, at.in.gradient.shape, at.in.rank);
  const int64_t blocks = at.attrs.blocks();
  std::vector<double> largest(static_cast<size_t>(2 * blocks));
  for (const auto& element : held.elements) {
    if (scalars.skip != 0) break;
    const double g = at.in.gradient.at(held.first + element.memory) * static_cast<double>(scalars.grad_scale);
    const BothMoments now = moved_moments(at, adamw, element, g);
    double& m = largest[static_cast<size_t>(element.block)];
    double& v = largest[static_cast<size_t>(blocks + element.block)];
    m = std::max(m, std::abs(now.m));
    v = std::max(v, now.v);
  }
  put_all(at.out.largest, largest);
}

template <>
void compute(const Arrays<optim::AdamW8BitShard>& at) {
  const UpdateScalars scalars = scalars_of(at.in.scalars);
  if (scalars.skip != 0) return;
  const optim::UpdateRule& rule = at.attrs.update.rule;
  const AdamWStep adamw = step_of(rule, scalars);
  const HeldElements held(at.attrs, at.in.parameter.shape, at.in.rank);
  const int64_t blocks = at.attrs.blocks();
  std::vector<double> largest(static_cast<size_t>(2 * blocks));
  for (int64_t i = 0; i < at.in.largest.shape.elements(); ++i) {
    double& most = largest[static_cast<size_t>(i % (2 * blocks))];
    most = std::max(most, at.in.largest.at(i));
  }
  const double keep = 1 - static_cast<double>(scalars.lr) * rule.lr_scale * rule.weight_decay;
  for (const auto& element : held.elements) {
    const int64_t place = held.first + element.memory;
    const double g = at.in.gradient.at(place) * static_cast<double>(scalars.grad_scale);
    const BothMoments now = moved_moments(at, adamw, element, g);
    at.out.parameter.put(place, at.in.parameter.at(place) * keep - adamw.of(now.m, now.v));
    const double m_most = largest[static_cast<size_t>(element.block)];
    const double v_most = largest[static_cast<size_t>(blocks + element.block)];
    at.out.m.put(element.memory, nearest_code(m_map(), now.m, m_most));
    at.out.v.put(element.memory, nearest_code(v_map(), now.v, v_most));
  }
  for (int64_t block = 0; block < blocks; ++block) {
    at.out.m_scale.put(block, largest[static_cast<size_t>(block)]);
    at.out.v_scale.put(block, largest[static_cast<size_t>(blocks + block)]);
  }
}

}  // namespace strata::reference
