// Classifies an element of a page by its tag, role, class and id.
#pragma once

#include <gumbo.h>

#include <optional>
#include <string_view>

#include "data/input/html_nodes.h"

namespace strata::data {

bool closes_itself(std::string_view tag);  // lower case: no end tag, or one that is mostly left out
bool is_block(GumboTag tag);               // begins and ends a line
bool is_never_text(GumboTag tag);          // scripts, forms' fields, embedded things
bool is_skipped(GumboTag tag, std::string_view class_names);  // its text is none of the page's
std::optional<HtmlName> html_name(std::string_view name);     // of an attribute, lower case
bool is_list(GumboTag tag);                                   // of items or definitions
bool breaks_table(GumboTag tag);  // makes a table that holds it a matter of layout
bool is_main(GumboTag tag, std::string_view role, std::string_view item_property);
bool is_boilerplate_tag(GumboTag tag);
bool is_boilerplate_role(std::string_view role);
bool is_boilerplate_name(std::string_view class_or_id);  // sidebar, site-footer, cookieBanner, …
bool is_inline_mark(std::string_view class_names);       // permanent links and text for screen readers only

}  // namespace strata::data
