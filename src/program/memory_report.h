// The contents of the arena: for people, and for tests that check the plan against the executor.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace strata::program {

// A range of the arena. Regions follow each other without gaps and make up the whole arena.
struct Region {
  std::string name;  // "parameter", "gradient", …, "batch", "workspace"
  int64_t offset = 0, bytes = 0;
  int64_t values = 0;
};
std::vector<Region> arena_regions(const ProgramSet& set);

// A buffer that is alive at the peak of a program's workspace.
struct PeakBuffer {
  graph::ValueId value = graph::kNone;  // kNone: the instruction's scratch
  int64_t offset = 0, bytes = 0;
};
struct Peak {
  int32_t instruction = 0;          // of the segments of a micro-batch, as consecutive lists
  int64_t alive = 0;                // bytes that live there
  int64_t bytes = 0;                // of the workspace without pools; the rest is lost to fragmentation
  std::vector<PeakBuffer> buffers;  // the largest first
};
Peak workspace_peak(const Program& program);

// Of activations, scratch and messages, when most of them live.
int64_t workspace_bytes(const Program& program);
// The program whose workspace is the largest: it decides the size of the arena.
size_t largest_program(const ProgramSet& set);

// Bytes needed outside the arena for what a concurrent save has not read when weights and states are about to
// change: the size of these, or what options.memory_budget leaves. 0: updates wait.
int64_t save_staging_bytes(const ProgramSet& set);

}  // namespace strata::program
