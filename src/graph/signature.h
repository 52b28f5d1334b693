// Signatures of ops: which operands an op has, as members with names and kinds. One list serves everybody who
// touches an operand: who builds a graph (graph ids), an op's rules (values), its cases (contents), the
// reference kernels (arrays) and the bindings of a device (pointers) use the same members.
//
//   struct ScaleRows {
//     template <template <typename> class Of>
//     struct In {
//       Of<Act> x;                   // [N, D]
//       Of<Optional<F32>> bias = {};  // [D]
//       static constexpr std::string_view names = "x bias";
//     };
//     template <template <typename> class Of>
//     struct Out {
//       Of<Act> y;  // [N, D]
//       static constexpr std::string_view names = "y";
//     };
//     using Attrs = NoAttrs;
//     static const OpDef def;
//   };
//
// `names` are the members' own, in order. A node keeps its operands in that order, kNone where an optional
// one is not there. All members of the kind Many have the same number of operands; those of one member are
// consecutive.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/attributes.h"
#include "graph/graph.h"

namespace strata::graph {

// --- Kinds of operands: their elements
namespace kinds {

// Hidden states and other activations: fp32, bf16 or fp16. All that one op reads have the same type.
struct Act {};
struct Weight {};  // fp32, or in a device's packed layout
struct Any {};     // anything that the op's rules allow
struct F32 {};
struct F64 {};
struct I32 {};
struct I64 {};
struct U8 {};
// May be absent.
template <typename Kind>
struct Optional {};
// As many as the node has.
template <typename Kind>
struct Many {};

}  // namespace kinds
using namespace kinds;

template <typename Kind>
struct KindOf {
  using Element = Kind;
  static constexpr bool optional = false, many = false;
};
template <typename Kind>
struct KindOf<Optional<Kind>> : KindOf<Kind> {
  static constexpr bool optional = true;
};
template <typename Kind>
struct KindOf<Many<Kind>> : KindOf<Kind> {
  static constexpr bool many = true;
};

struct NoAttrs {
  bool operator==(const NoAttrs&) const = default;
  void describe(AttributeText&) const {}
};

// A side whose members hold nothing but their kinds.
template <typename Kind>
struct Declared {
  using Type = Kind;
};

namespace detail {

constexpr size_t count_words(std::string_view text) {
  size_t words = 0;
  for (size_t i = 0; i < text.size(); ++i) words += text[i] != ' ' && (i == 0 || text[i - 1] == ' ');
  return words;
}

// The members of a side, in order. It has as many as names, else this does not compile.
template <typename Side>
constexpr auto members_of(Side& side) {
  constexpr size_t kCount = count_words(Side::names);
  if constexpr (kCount == 0) {
    return std::tuple<>();
  } else if constexpr (kCount == 1) {
    auto& [a] = side;
    return std::tie(a);
  } else if constexpr (kCount == 2) {
    auto& [a, b] = side;
    return std::tie(a, b);
  } else if constexpr (kCount == 3) {
    auto& [a, b, c] = side;
    return std::tie(a, b, c);
  } else if constexpr (kCount == 4) {
    auto& [a, b, c, d] = side;
    return std::tie(a, b, c, d);
  } else if constexpr (kCount == 5) {
    auto& [a, b, c, d, e] = side;
    return std::tie(a, b, c, d, e);
  } else if constexpr (kCount == 6) {
    auto& [a, b, c, d, e, f] = side;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (kCount == 7) {
    auto& [a, b, c, d, e, f, g] = side;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (kCount == 8) {
    auto& [a, b, c, d, e, f, g, h] = side;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (kCount == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = side;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (kCount == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = side;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (kCount == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = side;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (kCount == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = side;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  } else {
    static_assert(kCount <= 12, "members_of() ends at twelve operands: add a line");
  }
}

template <typename Member>
struct MemberKind;
template <typename Kind>
struct MemberKind<Declared<Kind>> {
  using Type = Kind;
};

// The kinds of a side's members, in order.
template <typename Tuple>
struct KindsOf;
template <typename... Members>
struct KindsOf<std::tuple<Members&...>> {
  using Type = std::tuple<KindOf<typename MemberKind<Members>::Type>...>;
  static constexpr size_t count = sizeof...(Members);
  static constexpr size_t many = (0 + ... + size_t{KindOf<typename MemberKind<Members>::Type>::many});
};

}  // namespace detail

// The kinds of a side's members: Clamp::In, RmsNorm::Out.
template <template <template <typename> class> class Side>
using Kinds = detail::KindsOf<decltype(detail::members_of(std::declval<Side<Declared>&>()))>;

namespace detail {

template <size_t count>
constexpr std::array<std::string_view, count> split_words(std::string_view text) {
  std::array<std::string_view, count> words;
  for (std::string_view& word : words) {
    word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return words;
}

// The names of a side's members, in order. Without its visibility g++ 12 exports it from a shared library.
template <template <template <typename> class> class Side>
__attribute__((visibility("hidden"))) inline constexpr auto kNames =
    split_words<Kinds<Side>::count>(Side<Declared>::names);

}  // namespace detail

// How many operands each member of the kind Many has in a list of `operands`; none if there is no list yet.
template <template <template <typename> class> class Side>
constexpr size_t many_count(size_t operands) {
  if constexpr (Kinds<Side>::many == 0) {
    return 0;
  } else {
    constexpr size_t kAlone = Kinds<Side>::count - Kinds<Side>::many;
    return operands < kAlone ? 0 : (operands - kAlone) / Kinds<Side>::many;
  }
}

// Calls take(member, KindOf<…>, name, first, count) for the members of a side that holds anything; [first,
// first + count) are its operands in a list of `operands` operands.
template <template <template <typename> class> class Side, template <typename> class Of, typename Take>
constexpr void visit(Side<Of>& side, size_t operands, Take&& take) {
  const size_t each = many_count<Side>(operands);
  const auto members = detail::members_of(side);
  size_t first = 0;
  const auto one = [&](auto& member, auto kind, std::string_view name) {
    const size_t count = kind.many ? each : 1;
    take(member, kind, name, first, count);
    first += count;
  };
  [&]<size_t... i>(std::index_sequence<i...>) {
    (one(std::get<i>(members), std::tuple_element_t<i, typename Kinds<Side>::Type>{},
         detail::kNames<Side>[i]),
     ...);
  }
  (std::make_index_sequence<Kinds<Side>::count>{});
}

// The position of the first operand of the member of this name, in a list of `operands` operands; -1: there
// is none.
template <template <template <typename> class> class Side>
constexpr int position_of(std::string_view name, size_t operands = Kinds<Side>::count) {
  int found = -1;
  Side<Declared> side{};
  visit(side, operands, [&](auto&, auto, std::string_view own, size_t first, size_t) {
    if (own == name) found = static_cast<int>(first);
  });
  return found;
}

}  // namespace strata::graph
