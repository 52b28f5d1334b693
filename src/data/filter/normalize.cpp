// Unicode repair and normalisation; keeps every document.
#include "base/error.h"
#include "data/filter/kinds.h"
#include "data/filter/repair.h"

namespace strata::data {
namespace {

constexpr std::string_view kKind = "normalize";

struct Scratch {
  std::string text;
};

class Normalize final : public DocumentStage {
 public:
  explicit Normalize(const StageParameters& parameters)
      : repairs_{.encoding = parameters.get<bool>("fix_encoding"),
                 .c1_controls = parameters.get<bool>("fix_c1_controls"),
                 .control_chars = parameters.get<bool>("remove_control_chars"),
                 .terminal_escapes = parameters.get<bool>("remove_terminal_escapes"),
                 .line_breaks = parameters.get<bool>("fix_line_breaks")},
        form_(parameters.get<std::string>("normalization")) {
    for (const std::string_view known : {"", "NFC", "NFD", "NFKC", "NFKD"}) {
      if (form_ == known) return;
    }
    throw ConfigError("[{}] normalization = \"{}\", expected NFC, NFD, NFKC, NFKD or nothing", kKind, form_);
  }

  std::string_view apply(TextView& text, const Document&, StageStats& stats) const override {
    std::string& out = text.scratch<Scratch>().text;
    if (repair(text.bytes(), repairs_, out)) {
      text.replace(out);
      stats.count("repaired");
    }
    if (!form_.empty() && normalize_text(text.bytes(), form_, out)) {
      text.replace(out);
      stats.count("normalized");
    }
    return text.bytes().empty() ? "empty" : std::string_view();
  }

 private:
  const Repairs repairs_;
  const std::string form_;
};

}  // namespace

StageKind normalize_kind() {
  return {.name = std::string(kKind),
          .help = "repairs wrong encodings and control characters (parameters as ftfy), normalises Unicode",
          .parameters =
              {
                  {"normalization", std::string("NFC"), "NFC, NFD, NFKC, NFKD; empty: none"},
                  {"fix_encoding", true, "whether UTF-8 that was read as Windows-1252 is read again"},
                  {"fix_c1_controls", true, "whether U+0080 to U+009F become Windows-1252 characters"},
                  {"remove_control_chars", true, "whether control characters and byte order marks go"},
                  {"remove_terminal_escapes", true, "whether colour codes of terminals go"},
                  {"fix_line_breaks", false, "whether all line ends become line feeds"},
              },
          .make = [](const StageParameters& parameters) -> AnyStage {
            return std::make_unique<Normalize>(parameters);
          }};
}

}  // namespace strata::data
