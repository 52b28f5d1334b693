// In place of verb_checkpoint_convert.cpp while the trainer converts no checkpoints.
#include "cli/verbs.h"

namespace strata::cli {

void add_checkpoint_conversions(Verb) {}

}  // namespace strata::cli
