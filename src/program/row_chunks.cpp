#include "program/row_chunks.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/op.h"
#include "graph/reshard.h"
#include "ops/linear/linear.h"

namespace strata::program {
namespace {

using graph::Graph;
using graph::kNone;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::Placement;
using graph::Reshard;
using graph::ReshardAttrs;
using graph::Role;
using graph::Value;
using graph::ValueId;

// With fewer rows kernels add in another order, and a matmul is hardly worth its call.
constexpr int64_t kFewestRows = 64;

void check_rows(int64_t share, int64_t chunks, const Words& words) {
  const auto fits = [&](int64_t parts) {
    return parts == 1 || (share % parts == 0 && share / parts >= kFewestRows);
  };
  if (fits(chunks)) return;
  int64_t nearest = 1;
  for (int64_t parts = 2; parts <= share / kFewestRows; ++parts) {
    if (fits(parts) && std::abs(parts - chunks) <= std::abs(nearest - chunks)) nearest = parts;
  }
  throw ConfigError(
      "[{}] a rank of {} has {} rows of a micro-batch, which do not make {} equal parts of at least {}; set "
      "it "
      "to {}",
      words.overlap_chunks, words.tensor, share, chunks, kFewestRows, nearest);
}

class RowCutter {
 public:
  RowCutter(Graph& graph, RowViews& views, int64_t chunks, const Words& words)
      : graph_(graph), views_(views), chunks_(chunks), words_(words) {}

  void run() {
    find_uses();
    std::vector<Node> old = std::move(graph_.nodes());
    graph_.nodes().clear();
    // The position of the matmul: before the weight gradient, which then overlaps the last reduce-scatter.
    std::vector<size_t> collective_of(old.size(), kNobody);
    std::vector<bool> moves(old.size(), false);
    for (size_t i = 0; i < old.size(); ++i) {
      const size_t product = product_of(old, i);
      if (product == kNobody) continue;
      collective_of[product] = i;
      moves[i] = true;
    }
    for (size_t i = 0; i < old.size(); ++i) {
      if (collective_of[i] != kNobody) {
        cut(old[collective_of[i]], old[i]);
      } else if (!moves[i]) {
        graph_.nodes().push_back(std::move(old[i]));
      }
    }
    number_producers();
  }

 private:
  static constexpr size_t kNobody = ~size_t{0};
  struct Use {
    size_t reader = kNobody, writer = kNobody;  // the last
    int readers = 0;
  };

  void find_uses() {
    uses_.resize(static_cast<size_t>(graph_.value_count()));
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      for (const ValueId input : node.inputs) {
        if (input == kNone) continue;
        Use& use = uses_[static_cast<size_t>(input)];
        use.reader = i;
        ++use.readers;
      }
      for (const ValueId output : node.outputs) {
        if (output != kNone) uses_[static_cast<size_t>(output)].writer = i;
      }
    }
  }

  static bool gathers(const ReshardAttrs& attrs) {
    return attrs.from == Placement::sharded(0) && attrs.to == Placement::replicated();
  }
  static const graph::Cut& cut_of(const ReshardAttrs& attrs) {
    return gathers(attrs) ? attrs.cuts.front().from : attrs.cuts.front().to;
  }

  // The matmul that a collective of the residual stream overlaps in parts; kNobody: it stays whole.
  size_t product_of(const std::vector<Node>& nodes, size_t i) const {
    const Node& node = nodes[i];
    const bool forward = node.phase == Phase::kForward;
    if (node.op != &graph::Reshard::def || node.inputs.size() != 1) return kNobody;
    const auto& attrs = node.attrs.as<ReshardAttrs>();
    const bool scatters = attrs.from == Placement::partial() && attrs.to == Placement::sharded(0);
    if (attrs.axis != graph::Axis::kTensor) return kNobody;
    if (!(forward && gathers(attrs)) && !((forward || node.phase == Phase::kInputGrad) && scatters))
      return kNobody;
    // A part of equal shares, in their order.
    if (const graph::Cut& rows = cut_of(attrs);
        rows.parts.size() != 1 || rows.alignment != 0 || rows.sequence != 0)
      return kNobody;
    const Use& use = uses_[static_cast<size_t>(scatters ? node.inputs.front() : node.outputs.front())];
    if (use.readers != 1) return kNobody;
    const size_t at = scatters ? use.writer : use.reader;
    const Node& product = nodes[at];
    const bool fits = product.op == (forward ? &ops::Linear::def : &ops::LinearGradInput::def) &&
                      product.phase == node.phase && product.chunk == node.chunk;
    for (const Node* one : {&node, &product}) {
      if (graph_.value(one->inputs.front()).role != Role::kActivation ||
          graph_.value(one->outputs.front()).role != Role::kActivation)
        return kNobody;
    }
    return fits && (scatters || product.inputs.front() == node.outputs.front()) ? at : kNobody;
  }

  ValueId rows_of(ValueId whole, int64_t first, int64_t rows) {
    Value value = graph_.value(whole);
    const int64_t offset = first * value.bytes() / value.shape[0];
    value.shape.set(0, rows);
    const ValueId id = graph_.add_value(std::move(value));
    views_[id] = {whole, offset};
    return id;
  }

  void add(const Node& like, ValueId input, ValueId output) {
    Node node = like;
    node.inputs.front() = input;
    node.outputs.front() = output;
    graph_.nodes().push_back(std::move(node));
  }

  void cut(const Node& collective, const Node& product) {
    auto attrs = collective.attrs.as<ReshardAttrs>();
    const bool gathers_rows = gathers(attrs);
    graph::Cut& part_cut = gathers_rows ? attrs.cuts.front().from : attrs.cuts.front().to;
    const int64_t ranks = part_cut.ranks, share = part_cut.parts.front() / ranks;
    check_rows(share, chunks_, words_);
    const int64_t rows = share / chunks_;
    part_cut.parts = {rows * ranks};
    Node moved = collective;
    moved.attrs = attrs;

    const ValueId shared = gathers_rows ? collective.inputs.front() : collective.outputs.front();
    const ValueId whole = gathers_rows ? product.outputs.front() : product.inputs.front();
    // All ranks' rows of a part, consecutively.
    Value part = graph_.value(gathers_rows ? collective.outputs.front() : collective.inputs.front());
    part.shape.set(0, rows * ranks);
    std::vector<ValueId> parts;
    for (int64_t i = 0; i < chunks_; ++i) parts.push_back(graph_.add_value(part));

    const auto move = [&](int64_t i) {
      const ValueId mine = rows_of(shared, i * rows, rows), all = parts[static_cast<size_t>(i)];
      add(moved, gathers_rows ? mine : all, gathers_rows ? all : mine);
    };
    const auto multiply = [&](int64_t i) {
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const ValueId of_part = rows_of(parts[static_cast<size_t>(i)], rank * rows, rows);
        const ValueId of_whole = rows_of(whole, rank * share + i * rows, rows);
        add(product, gathers_rows ? of_part : of_whole, gathers_rows ? of_whole : of_part);
      }
    };
    if (gathers_rows) move(0);
    for (int64_t i = 0; i < chunks_; ++i) {
      if (gathers_rows && i + 1 < chunks_) move(i + 1);
      multiply(i);
      if (!gathers_rows) move(i);
    }
  }

  void number_producers() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      for (const ValueId output : graph_.nodes()[i].outputs) {
        if (output == kNone || !graph::is_temporary(graph_.value(output).role)) continue;
        graph_.value(view_of(views_, output).whole).producer = static_cast<NodeId>(i);
      }
    }
    for (const auto& [id, view] : views_) graph_.value(id).producer = graph_.value(view.whole).producer;
  }

  Graph& graph_;
  RowViews& views_;
  const int64_t chunks_;
  const Words& words_;
  std::vector<Use> uses_;
};

}  // namespace

void cut_rows_pass(Graph& graph, RowViews& views, int64_t chunks, const Words& words) {
  if (chunks > 1) RowCutter(graph, views, chunks, words).run();
}

}  // namespace strata::program
