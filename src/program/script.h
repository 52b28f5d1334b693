// The order of a step: which segments run, for which micro-batch, one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::program {

// The segments of a program; each is a flat list, run as a whole. It begins and ends with all queues idle.
enum class Segment : uint8_t {
  kSetup,       // constant tables; once
  kEncode,      // packs weights: all after loading, and at the end of every update (as the
                // variant that accumulates) those that the update did not write itself
  kForward,     // F of a micro-batch
  kBackward,    // B: I and W interleaved, so that no gradient of an output outlives its layer
  kInputGrad,   // I, if separate from W
  kWeightGrad,  // W
  kUpdate,      // the optimizer
};
inline constexpr int kSegments = 7;
// Accumulators are overwritten by the first action of a segment in a step and added to by the later ones:
// each segment of a micro-batch has a list of instructions for either, and kEncode for its two uses.
inline constexpr int kVariants = 2;
std::string_view name_of(Segment segment);
// "backward", "backward_later".
std::string name_of(Segment segment, bool accumulates);
char letter_of(Segment segment);  // S, E, F, B, I, W, U
bool is_of_micro_batch(Segment segment);

enum class Backward : uint8_t {
  kCombined,  // B
  kSplit,     // I and W, as schedules want that fill their bubbles with W
};

// One run of a segment.
struct Action {
  Segment segment = Segment::kForward;
  int32_t micro_batch = 0;
  bool accumulates = false;  // which of the segment's variants
  // The pipeline stage, counted from 0 among those that this rank has: each has its own segments of a
  // micro-batch.
  int32_t chunk = 0;
  bool operator==(const Action&) const = default;
};
using Script = std::vector<Action>;

// "F0", "B0", "I3", "W3"; of another chunk than the first "F0/1"; "update".
std::string str(const Action& action);

// A segment of a chunk; chunk 0 of what has no micro-batch.
struct SegmentAt {
  Segment segment = Segment::kForward;
  int32_t chunk = 0;
  constexpr SegmentAt(Segment which = Segment::kForward, int32_t of = 0) : segment(which), chunk(of) {}
  bool operator==(const SegmentAt&) const = default;
};
// The segments of a micro-batch in the order in which it passes them: forward by ascending chunk, all others
// by descending.
std::vector<SegmentAt> in_order_of_micro_batch(int32_t chunks);
// All segments: those before the micro-batches, those of a micro-batch, and those after.
std::vector<SegmentAt> all_segments(int32_t chunks);

struct ScriptOptions {
  bool trains = true;  // else there is only F
  Backward backward = Backward::kCombined;
  int32_t micro_batches = 1;
  int32_t chunks = 1;
};

// The schedule of a step: `order`, which holds the actions of all micro-batches, or if it is empty one
// micro-batch after the other; then, when training, the update and the packing of the new weights. Decides
// which actions accumulate, regardless of `order`. Throws ConfigError if an action is missing, repeated,
// of no use here, or before one that it needs.
Script make_script(const ScriptOptions& options, const Script& order = {});

// Places of two actions in a script, the first and the last of something.
struct Span {
  int32_t first = -1, last = -1;  // −1: there is none
};
// From the first to the last action of these segments of each micro-batch, by micro-batch.
std::vector<Span> spans_of(const Script& script, int32_t micro_batches, std::span<const SegmentAt> segments);

// Whether every micro-batch is done before another begins, and passes its segments in their order.
bool is_sequential(const Script& script);

}  // namespace strata::program
