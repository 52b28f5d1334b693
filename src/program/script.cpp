#include "program/script.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/error.h"

namespace strata::program {
namespace {

constexpr std::array<std::string_view, kSegments> kNames = {
    "setup", "encode", "forward", "backward", "input_grad", "weight_grad", "update"};

// What a micro-batch goes through in a chunk, in order.
std::vector<Segment> stages_of(const ScriptOptions& options) {
  if (!options.trains) return {Segment::kForward};
  if (options.backward == Backward::kCombined) return {Segment::kForward, Segment::kBackward};
  return {Segment::kForward, Segment::kInputGrad, Segment::kWeightGrad};
}

// Checks the order of one chunk.
void check_order(std::span<const Action> order, const std::vector<Segment>& stages, int32_t micro_batches,
                 int32_t chunk) {
  std::vector<size_t> done(static_cast<size_t>(micro_batches), 0);  // stages of each micro-batch
  for (const Action& action : order) {
    if (action.chunk != chunk) continue;
    const auto stage = std::find(stages.begin(), stages.end(), action.segment) - stages.begin();
    if (stage == std::ssize(stages)) {
      throw ConfigError(
          "[schedule] {} is not one of this program's actions: a micro-batch has {}{}", str(action),
          str({stages.front(), 0, false, chunk}),
          stages.size() == 1 ? "" : fmt::format(" to {}", str({stages.back(), 0, false, chunk})));
    }
    if (action.micro_batch < 0 || action.micro_batch >= micro_batches) {
      throw ConfigError("[schedule] {} is of micro-batch {}, and there are {} from 0 on", str(action),
                        action.micro_batch, micro_batches);
    }
    size_t& of_this = done[static_cast<size_t>(action.micro_batch)];
    if (of_this > static_cast<size_t>(stage)) throw ConfigError("[schedule] {} is there twice", str(action));
    if (of_this < static_cast<size_t>(stage)) {
      throw ConfigError("[schedule] {} comes before {}, which it needs", str(action),
                        str({stages[of_this], action.micro_batch, false, chunk}));
    }
    ++of_this;
  }
  for (size_t i = 0; i < done.size(); ++i) {
    if (done[i] < stages.size()) {
      throw ConfigError("[schedule] {} is missing",
                        str({stages[done[i]], static_cast<int32_t>(i), false, chunk}));
    }
  }
}

}  // namespace

std::string_view name_of(Segment segment) {
  return kNames[static_cast<size_t>(segment)];
}

std::string name_of(Segment segment, bool accumulates) {
  return std::string(name_of(segment)) + (accumulates ? "_later" : "");
}

char letter_of(Segment segment) {
  return "SEFBIWU"[static_cast<size_t>(segment)];
}

bool is_of_micro_batch(Segment segment) {
  return segment == Segment::kForward || segment == Segment::kBackward || segment == Segment::kInputGrad ||
         segment == Segment::kWeightGrad;
}

std::string str(const Action& action) {
  if (!is_of_micro_batch(action.segment)) return std::string(name_of(action.segment));
  const std::string text = fmt::format("{}{}", letter_of(action.segment), action.micro_batch);
  return action.chunk == 0 ? text : fmt::format("{}/{}", text, action.chunk);
}

std::vector<SegmentAt> in_order_of_micro_batch(int32_t chunks) {
  std::vector<SegmentAt> order;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) order.push_back({Segment::kForward, chunk});
  for (const Segment segment : {Segment::kBackward, Segment::kInputGrad, Segment::kWeightGrad}) {
    for (int32_t chunk = chunks; chunk-- > 0;) order.push_back({segment, chunk});
  }
  return order;
}

std::vector<SegmentAt> all_segments(int32_t chunks) {
  std::vector<SegmentAt> order{{Segment::kSetup}, {Segment::kEncode}};
  const auto of_micro_batch = in_order_of_micro_batch(chunks);
  order.insert(order.end(), of_micro_batch.begin(), of_micro_batch.end());
  order.push_back({Segment::kUpdate});
  return order;
}

Script make_script(const ScriptOptions& options, const Script& order) {
  const std::vector<Segment> stages = stages_of(options);
  Script script = order;
  if (order.empty()) {
    script.reserve(static_cast<size_t>(options.micro_batches) * stages.size() + 2);
    const auto in_order = in_order_of_micro_batch(options.chunks);
    for (int32_t i = 0; i < options.micro_batches; ++i) {
      for (const SegmentAt& at : in_order) {
        if (std::find(stages.begin(), stages.end(), at.segment) != stages.end())
          script.push_back({at.segment, i, false, at.chunk});
      }
    }
  } else {
    for (int32_t chunk = 0; chunk < options.chunks; ++chunk)
      check_order(order, stages, options.micro_batches, chunk);
  }
  std::vector<SegmentAt> seen;
  for (Action& action : script) {
    const SegmentAt at{action.segment, action.chunk};
    action.accumulates = std::find(seen.begin(), seen.end(), at) != seen.end();
    if (!action.accumulates) seen.push_back(at);
  }
  if (options.trains) {
    script.push_back({Segment::kUpdate});
    script.push_back({Segment::kEncode, 0, true});
  }
  return script;
}

std::vector<Span> spans_of(const Script& script, int32_t micro_batches, std::span<const SegmentAt> segments) {
  std::vector<Span> spans(static_cast<size_t>(micro_batches));
  for (size_t i = 0; i < script.size(); ++i) {
    const SegmentAt at{script[i].segment, script[i].chunk};
    if (std::find(segments.begin(), segments.end(), at) == segments.end()) continue;
    Span& span = spans[static_cast<size_t>(script[i].micro_batch)];
    if (span.first < 0) span.first = static_cast<int32_t>(i);
    span.last = static_cast<int32_t>(i);
  }
  return spans;
}

bool is_sequential(const Script& script) {
  size_t micro_batches = 0, runs = 0;  // runs of actions of one micro-batch
  int32_t current = -1, chunks = 1;
  for (const Action& action : script) chunks = std::max(chunks, action.chunk + 1);
  const std::vector<SegmentAt> order = in_order_of_micro_batch(chunks);
  auto place = order.begin();
  for (const Action& action : script) {
    if (!is_of_micro_batch(action.segment)) continue;
    micro_batches += action.segment == Segment::kForward && action.chunk == 0;
    if (action.micro_batch != current) {
      ++runs;
      place = order.begin();
    }
    current = action.micro_batch;
    place = std::find(place, order.end(), SegmentAt{action.segment, action.chunk});
    if (place == order.end()) return false;
  }
  return runs == micro_batches;
}

}  // namespace strata::program
