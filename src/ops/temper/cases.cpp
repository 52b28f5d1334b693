#include "ops/cases.h"

#include "ops/attention/case_operands.h"
#include "ops/temper/temper.h"

namespace strata::device {

using namespace op_rows;

template <>
void cases<ops::Temper>(Cases& to) {
  to.add<ops::Temper>("temper", {.qkv = heads::qkv(), .positions = heads::positions()}, {2, 0.3});
  to.untimed<ops::Temper>(kPass);
}

template <>
void cases<ops::ChunkBegins>(Cases& to) {
  to.add<ops::ChunkBegins>("chunk_begins", {.positions = heads::positions()}, {3});
  to.add<ops::ChunkBegins>("chunk_begins_of_documents",
                           {.positions = heads::positions(), .document_begins = heads::kv_begin()}, {3});
  to.untimed<ops::ChunkBegins>(kFewNumbers);
}

}  // namespace strata::device
