// Repair of text that lost its encoding or carries what no reader sees.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

struct Repairs {
  bool encoding = true;       // UTF-8 that was read as Windows-1252: "Ã©" is "é"
  bool c1_controls = true;    // U+0080 to U+009F as the Windows-1252 characters they stand for
  bool control_chars = true;  // ftfy's list: ASCII controls but tab, line feed, form feed, carriage return;
                              // byte order marks, deprecated format characters, interlinear annotation
  bool terminal_escapes = true;  // ESC [ … letter
  bool line_breaks = false;      // CRLF, CR, LS, PS and NEL as line feeds
};

// False if nothing is to be repaired; `out` is then unchanged.
// Misread sequences are recognized by a narrow rule: characters whose Windows-1252 bytes are well-formed
// UTF-8; two-byte ones only after Â or Ã, or next to another such sequence. ftfy's "badness" is not weighed.
bool repair(std::string_view text, const Repairs& repairs, std::string& out);

// Unicode normalisation: "NFC", "NFKC", "NFD" or "NFKD". False if a quick check of its code points shows that
// the text is in that form; `out` is then unchanged.
bool normalize_text(std::string_view text, std::string_view form, std::string& out);

}  // namespace strata::data
