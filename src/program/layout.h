// Lays out the arena, and emits instructions with these addresses.
#pragma once

#include "program/draft.h"

namespace strata::program {

// Everything that persists, then the batch buffers.
void lay_out_persistent(ProgramSet& set, const Drafts& drafts);
void lay_out_batches(ProgramSet& set, const Drafts& drafts);
// Caches outlive a program's segments but not a generation: they are placed at the start of the workspace,
// each at the same place in every generating program that has it.
void lay_out_caches(ProgramSet& set, const Drafts& drafts);

// Fills the segments of a draft that is laid out.
void emit(Draft& draft, const ProgramSet& set, int64_t workspace_offset);

}  // namespace strata::program
