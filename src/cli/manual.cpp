// Manual pages in the man macros.
#include <fmt/core.h>

#include <algorithm>

#include "base/version.h"
#include "cli/describe.h"

namespace strata::cli {
namespace {

// Text for roff: backslashes and hyphens escaped, no line that begins with a control character.
std::string roff(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_start = c == '\n';
  }
  return out;
}

std::string synopsis(const VerbText& verb) {
  std::string out = "strata" + (verb.path.empty() ? "" : " " + verb.path);
  if (!verb.verbs.empty()) {
    const bool has_task = std::any_of(verb.options.begin(), verb.options.end(),
                                      [](const OptionText& option) { return !option.value.empty(); });
    return out + (has_task ? " [options] [VERB]" : " VERB");
  }
  out += " [options]";
  for (const OptionText& option : verb.options) {
    if (option.positional) out += " " + option.names[0];
  }
  return out;
}

std::string options_part(const VerbText& verb) {
  std::string out;
  for (const OptionText& option : verb.options) {
    std::string names;
    for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + name;
    if (!option.value.empty() && !option.positional) names += " " + option.value;
    out += ".TP\n.B " + roff(names) + "\n" + roff(option.help) + "\n";
  }
  return out;
}

std::string verb_part(const VerbText& verb) {
  std::string out = ".SS " + roff(synopsis(verb)) + "\n" + roff(verb.help) + ".\n" + options_part(verb);
  if (!verb.example.empty()) out += ".PP\nExample:\n.PP\n.EX\n" + roff(verb.example) + "\n.EE\n";
  return out;
}

constexpr const char* kExitStatus =
    ".SH EXIT STATUS\n0 done; 1 a bug of the program; 2 the configuration or arguments; 3 the content of "
    "data, tokenizer or "
    "model; 4 files, network, device or memory; 5 training diverged; 75 stopped by the time limit after a "
    "clean save; "
    "130, 143 interrupted after a clean save.\n";

}  // namespace

std::string manual_page(const std::vector<VerbText>& verbs, const std::string& verb) {
  std::string page_name = verb.empty() ? "strata" : "strata-" + verb;
  const VerbText* main_verb = nullptr;
  for (const VerbText& text : verbs) {
    if (text.path == verb) main_verb = &text;
  }
  std::string out = fmt::format(
      ".TH {} 1 \"\" \"strata {}\" \"Strata\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n", roff(page_name),
      program_version(), roff(page_name), roff(main_verb->help), roff(synopsis(*main_verb)));
  if (verb.empty()) {
    out += ".SH VERBS\n";
    for (const VerbText& text : verbs) {
      if (text.path.empty() || text.path.find(' ') != std::string::npos) continue;
      out += ".TP\n.BR strata\\-" + roff(text.path) + " (1)\n" + roff(text.help) + "\n";
    }
    out += ".SH OPTIONS\n" + options_part(*main_verb);
  } else {
    out += ".SH DESCRIPTION\n";
    for (const VerbText& text : verbs) {
      if (text.path == verb || text.path.starts_with(verb + " ")) out += verb_part(text);
    }
  }
  return out + kExitStatus + ".SH SEE ALSO\n" +
         (verb.empty() ? "Every verb has a separate page.\n" : ".BR strata (1)\n");
}

}  // namespace strata::cli
