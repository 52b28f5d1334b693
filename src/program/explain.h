// A program for people: every instruction with its operands, work and expected time; the memory plan; totals.
#pragma once

#include <string>

#include "hardware/cluster_spec.h"
#include "program/predict.h"
#include "program/program.h"

namespace strata::program {

// "forward", "backward_later"; of another chunk than the first "forward/1".
std::string text_of(const SegmentAt& at, bool accumulates = false);
// Stable while the configuration is: "forward.17", "backward_later.3", "forward/1.5".
std::string instruction_id(const SegmentAt& at, size_t index, bool accumulates = false);
// F, R, I, W, U, E (encode) or S (setup).
char letter_of(graph::Phase phase);

// The instructions of one program, at most 110 columns wide; repeated layers are printed once, with their
// count.
std::string explain_program(const Program& program, const hardware::Machine& machine);
// Regions of the arena, its peak and who makes it.
std::string explain_memory(const ProgramSet& set);
// Weights that ranks put together in a step, by the type in which they are sent; those in fp32 that a recipe reads as
// codes by name. Empty if there are none.
std::string explain_gathers(const ProgramSet& set);
// Work and expected time by kernel family.
std::string explain_totals(const StepTotal& total);

// Identifies a set of programs by everything that decides what runs: every instruction's op, attributes,
// shapes, operand addresses and scratch, and the memory layout. Equal for programs that are equal to the
// byte.
std::string fingerprint(const ProgramSet& set);

// All of it, nothing collapsed: a JSON object.
std::string explain_json(const ProgramSet& set, const hardware::Machine& machine);

}  // namespace strata::program
