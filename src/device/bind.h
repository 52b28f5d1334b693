// How a device binds an op: from a node's values, by name, to a kernel that gets pointers, by name. The
// closure of the kernel, which holds everything else that it needs, is the plan.
//
//   template <>
//   BoundKernel bind<ops::Clamp>(Cpu, const Bind<ops::Clamp>& node) {
//     return node.kernel([n = node.in.x->shape.elements(), limit = static_cast<float>(node.attrs.limit),
//                         dtype = node.in.x->dtype](const Operands<ops::Clamp>& at) {
//       cpu::clamp_forward(n, at.out.y, at.in.x, limit, dtype);
//     });
//   }
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/bindings.h"
#include "graph/typed_op.h"

namespace strata::device {

namespace detail {

template <typename Element>
struct ElementOf {
  using Type = std::byte;  // whose dtype the binding knows
};
template <>
struct ElementOf<graph::F32> {
  using Type = float;
};
template <>
struct ElementOf<graph::F64> {
  using Type = double;
};
template <>
struct ElementOf<graph::I32> {
  using Type = int32_t;
};
template <>
struct ElementOf<graph::I64> {
  using Type = int64_t;
};
template <>
struct ElementOf<graph::U8> {
  using Type = uint8_t;
};

}  // namespace detail

// The operands of a member of the kind Many.
template <typename T>
class Pointers {
 public:
  Pointers() = default;
  Pointers(std::byte* const* first, size_t count) : first_(first), count_(count) {}
  size_t size() const { return count_; }
  T* operator[](size_t i) const { return reinterpret_cast<T*>(first_[i]); }
  // As the kernel got them.
  std::byte* const* data() const { return first_; }

 private:
  std::byte* const* first_ = nullptr;
  size_t count_ = 0;
};

template <typename Kind>
using ConstPointer = std::conditional_t<
    graph::KindOf<Kind>::many,
    Pointers<const typename detail::ElementOf<typename graph::KindOf<Kind>::Element>::Type>,
    const typename detail::ElementOf<typename graph::KindOf<Kind>::Element>::Type*>;
template <typename Kind>
using Pointer =
    std::conditional_t<graph::KindOf<Kind>::many,
                       Pointers<typename detail::ElementOf<typename graph::KindOf<Kind>::Element>::Type>,
                       typename detail::ElementOf<typename graph::KindOf<Kind>::Element>::Type*>;
template <typename Kind>
using Flag = bool;

// Operand addresses of a kernel call; nullptr for an absent operand.
template <typename Op>
struct Operands {
  typename Op::template In<ConstPointer> in;
  typename Op::template Out<Pointer> out;
  std::byte* scratch;
  Launch& launch;
};

namespace detail {

// Operand counts of a node, which separate the members of the kind Many.
struct Counts {
  size_t in = 0, out = 0;
};

template <typename Op>
Operands<Op> operands_of(const Counts& counts, Launch& launch, std::byte* const* p) {
  Operands<Op> operands{{}, {}, p[counts.in + counts.out], launch};
  const auto fill = [](auto& side, size_t count, std::byte* const* from) {
    graph::visit(side, count, [&](auto& member, auto kind, std::string_view, size_t first, size_t many) {
      using Member = std::remove_reference_t<decltype(member)>;
      if constexpr (kind.many) {
        member = Member(from + first, many);
      } else {
        member = reinterpret_cast<Member>(from[first]);
      }
    });
  };
  fill(operands.in, counts.in, p);
  fill(operands.out, counts.out, p + counts.in);
  return operands;
}

}  // namespace detail

// A node that a device is to bind.
template <typename Op>
struct Bind : graph::View<Op> {
  // For each output: whether the kernel adds to its content or overwrites it.
  typename Op::template Out<Flag> adds;
  PlanCache& cache;
  const hardware::DeviceSpec& device;  // that the plan is for; it need not be this machine

  explicit Bind(const BindRequest& request)
      : graph::View<Op>(request.view), adds{}, cache(request.cache), device(request.device) {
    graph::visit(adds, this->node.outputs.size(),
                 [&](bool& member, auto, std::string_view, size_t first, size_t count) {
                   member = count > 0 && request.accumulate[first];
                 });
  }

  // `run(operands)` is called unchanged from several threads at the same time: it must not modify its
  // captures.
  template <typename Run>
  BoundKernel kernel(Run run, int64_t scratch_bytes = 0) const {
    struct Plan {
      Run run;
      detail::Counts counts;
    };
    const Kernel call = [](Launch& launch, void* held, std::byte* const* p) {
      const Plan& plan = *static_cast<const Plan*>(held);
      plan.run(detail::operands_of<Op>(plan.counts, launch, p));
    };
    return {call, std::make_shared<const Plan>(Plan{std::move(run), counts()}), scratch_bytes};
  }

  // For a kernel with separate state, such as a library's handles: each executor makes a State from the plan,
  // which must outlive it, and calls `run(state, operands)`. Nodes that share a plan and a `run` that holds
  // nothing share the state.
  template <typename State, typename Plan, typename Run>
  BoundKernel kernel_with(std::shared_ptr<const Plan> plan, Run run, int64_t scratch_bytes) const {
    if constexpr (std::is_empty_v<Run> && Kinds::many == 0) {
      const Kernel call = [](Launch& launch, void* state, std::byte* const* p) {
        Run{}(*static_cast<State*>(state), detail::operands_of<Op>(kFixed, launch, p));
      };
      return {call, std::move(plan), scratch_bytes, [](const void* of) -> std::shared_ptr<void> {
                return std::make_shared<State>(*static_cast<const Plan*>(of));
              }};
    } else {
      struct Held {
        std::shared_ptr<const Plan> plan;
        Run run;
        detail::Counts counts;
      };
      struct Instance {
        explicit Instance(const Held& of) : held(of), state(*of.plan) {}
        const Held& held;
        State state;
      };
      const Kernel call = [](Launch& launch, void* instance, std::byte* const* p) {
        auto& [held, state] = *static_cast<Instance*>(instance);
        held.run(state, detail::operands_of<Op>(held.counts, launch, p));
      };
      return {call, std::make_shared<const Held>(Held{std::move(plan), std::move(run), counts()}),
              scratch_bytes, [](const void* of) -> std::shared_ptr<void> {
                return std::make_shared<Instance>(*static_cast<const Held*>(of));
              }};
    }
  }

 private:
  struct Kinds {
    static constexpr size_t in = graph::Kinds<Op::template In>::count,
                            out = graph::Kinds<Op::template Out>::count;
    static constexpr size_t many = graph::Kinds<Op::template In>::many + graph::Kinds<Op::template Out>::many;
  };
  static constexpr detail::Counts kFixed{Kinds::in, Kinds::out};
  detail::Counts counts() const { return {this->node.inputs.size(), this->node.outputs.size()}; }
};

// The row of an op in the table of a device, which is the type `Device`: bind<Op>(Device{}, node) binds it.
template <typename Op, typename Device>
Binding row(Device device) {
  return {&Op::def, [device](const BindRequest& request) { return bind<Op>(device, Bind<Op>(request)); }};
}

// The row of an update that can write packed layouts of its parameter: writes<Op>(Device{}, …) decides which.
template <typename Op, typename Device>
Binding encoding_row(Device device) {
  Binding made = row<Op>(device);
  made.writes = [](const graph::NodeView& update, const graph::Value& encoded,
                   const hardware::DeviceSpec& of) {
    return writes(Device{}, graph::View<Op>(update), encoded, of);
  };
  return made;
}

// The packed layout that the op's kernel needs for an input.
template <typename Op>
struct Wanted {
  graph::InputName<Op> input;
  graph::Encoding encoding;
  DType dtype;
};
template <typename Op>
using Encodings = std::vector<Wanted<Op>>;

// For an op whose inputs the device needs packed; `Device` lists them.
struct WithEncodings {};
inline constexpr WithEncodings with_encodings;
template <typename Op, typename Device>
Binding row(Device device, WithEncodings) {
  Binding made = row<Op>(device);
  made.encodings = [](const graph::NodeView& view, const hardware::DeviceSpec& spec) {
    std::vector<WantedEncoding> list;
    for (const Wanted<Op>& wanted : encodings<Op>(Device{}, graph::View<Op>(view), spec))
      list.push_back({wanted.input.position, wanted.encoding, wanted.dtype});
    return list;
  };
  return made;
}

}  // namespace strata::device
