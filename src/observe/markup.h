// Escapes text for HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace strata::observe {

// Replaces &, <, >, " and ' by entities, and control characters (except tab and newline) and invalid UTF-8 by
// U+FFFD, so that an XML parser accepts the result anywhere, attributes included.
std::string escape_markup(std::string_view text);

}  // namespace strata::observe
