// Bytes of a page as UTF-8: which encoding they are in, by the rules of the HTML standard, and the
// conversion.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

// The charset parameter of a Content-Type header's value; empty if there is none.
std::string charset_of_content_type(std::string_view content_type);

// The charset that the first bytes of a page declare: a byte order mark, <meta charset>, <meta http-equiv> or
// an XML declaration. Empty if they declare none.
std::string declared_charset(std::string_view html);

// Writes `bytes` as UTF-8. `charset`: the declared one (by the transport rather than the page); empty: UTF-8
// if the bytes are valid UTF-8, else windows-1252, as in browsers. Sequences that the encoding does not have
// become U+FFFD, at most one in a thousand bytes. Returns false, with the reason in `detail`, for an unknown
// encoding or bytes that are not in it.
bool decode_page(std::string_view bytes, std::string_view charset, std::string& utf8, std::string& detail);

}  // namespace strata::data
