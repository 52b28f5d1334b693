// Text inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace strata::observe {

// &, <, >, " and ' as entities; control characters (except tab and line end) and bytes that are not UTF-8 as
// U+FFFD, so that an XML reader accepts the result anywhere, attributes included.
std::string escape_markup(std::string_view text);

}  // namespace strata::observe
