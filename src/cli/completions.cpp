// Shell completions: verbs, options and known values from the command tree; files otherwise.
#include <fmt/core.h>

#include <algorithm>

#include "cli/describe.h"

namespace strata::cli {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : " ") + name;
  return out;
}

// Words that may follow if no option needs a value: verbs, options, argument values.
std::string words(const VerbText& verb) {
  std::vector<std::string> out = verb.verbs;
  for (const OptionText& option : verb.options) {
    const auto& more = option.positional ? option.choices : option.names;
    out.insert(out.end(), more.begin(), more.end());
  }
  return joined(out);
}

// Whether the word after the option is its value.
bool takes_value(const OptionText& option) {
  return !option.positional && !option.value.empty();
}

// "train --set"|"train -s": a pattern of a shell's case for an option of a verb.
std::string option_pattern(const VerbText& verb, const OptionText& option) {
  std::string out;
  for (const std::string& name : option.names)
    out += (out.empty() ? "\"" : "|\"") + verb.path + " " + name + "\"";
  return out;
}

// 'text' for a shell, quotes inside included.
std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The part of a bash function that finds the verb that the words so far lead to.
std::string find_verb(const std::vector<VerbText>& verbs) {
  std::string known;
  for (const VerbText& verb : verbs) {
    if (!verb.path.empty()) known += "|\"" + verb.path + "\"";
  }
  return known.empty() ? "\"\"" : known.substr(1);
}

}  // namespace

std::string bash_completion(const std::vector<VerbText>& verbs) {
  std::string cases, values;
  for (const VerbText& verb : verbs) {
    cases += fmt::format("    \"{}\") words=\"{}\" ;;\n", verb.path, words(verb));
    for (const OptionText& option : verb.options) {
      if (takes_value(option))
        values +=
            fmt::format("    {}) words=\"{}\" ;;\n", option_pattern(verb, option), joined(option.choices));
    }
  }
  return fmt::format(
      "# bash completion of strata\n"
      "_strata() {{\n"
      "  local at=\"\" next word words i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${{COMP_WORDS[i]}}\n"
      "    next=${{at:+$at }}$word\n"
      "    case \"$next\" in {}) at=$next ;; esac\n"
      "  done\n"
      "  case \"$at\" in\n{}  esac\n"
      "  case \"$at ${{COMP_WORDS[COMP_CWORD-1]}}\" in\n{}  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
      "  if [ ${{#COMPREPLY[@]}} -eq 0 ]; then COMPREPLY=($(compgen -f -- \"${{COMP_WORDS[COMP_CWORD]}}\")); "
      "fi\n"
      "  if [[ \"${{COMPREPLY[0]}}\" == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
      "}}\n"
      "complete -o filenames -F _strata strata\n",
      find_verb(verbs), cases, values);
}

std::string zsh_completion(const std::vector<VerbText>& verbs) {
  std::string cases, values;
  for (const VerbText& verb : verbs) {
    std::string entries;
    const auto entry = [&](const std::string& name, const std::string& help) {
      entries += " " + single_quoted(name + ":" + help);
    };
    for (const VerbText& below : verbs) {
      for (const std::string& name : verb.verbs) {
        if (below.path == (verb.path.empty() ? name : verb.path + " " + name)) entry(name, below.help);
      }
    }
    for (const OptionText& option : verb.options) {
      if (!option.positional) {
        entry(option.names.back(), option.help);
      } else {
        for (const std::string& choice : option.choices) entry(choice, option.help);
      }
      if (!takes_value(option)) continue;
      values +=
          fmt::format("    {}) {} ;;\n", option_pattern(verb, option),
                      option.choices.empty() ? "_files; return"
                                             : "compadd -S '' -- " + joined(option.choices) + "; return");
    }
    cases += fmt::format("    \"{}\") entries=({}) ;;\n", verb.path, entries);
  }
  return fmt::format(
      "#compdef strata\n"
      "_strata() {{\n"
      "  local at=\"\" next word i\n"
      "  local -a entries\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    word=${{words[i]}}\n"
      "    next=${{at:+$at }}$word\n"
      "    case \"$next\" in {}) at=$next ;; esac\n"
      "  done\n"
      "  case \"$at ${{words[CURRENT-1]}}\" in\n{}  esac\n"
      "  case \"$at\" in\n{}  esac\n"
      "  _describe strata entries || _files\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = _strata ]; then _strata \"$@\"; else compdef _strata strata; fi\n",
      find_verb(verbs), values, cases);
}

std::string fish_completion(const std::vector<VerbText>& verbs) {
  std::string out = "# fish completion of strata\n";
  for (const VerbText& verb : verbs) {
    // True where the words so far lead to this verb and to none below it.
    std::string condition;
    for (size_t begin = 0; begin < verb.path.size();) {
      const size_t end = std::min(verb.path.find(' ', begin), verb.path.size());
      condition += (condition.empty() ? "" : "; and ") +
                   ("__fish_seen_subcommand_from " + verb.path.substr(begin, end - begin));
      begin = end + 1;
    }
    if (verb.path.empty()) {
      condition = "__fish_use_subcommand";
    } else if (!verb.verbs.empty()) {
      condition += "; and not __fish_seen_subcommand_from";
      for (const std::string& name : verb.verbs) condition += " " + name;
    }
    for (const std::string& name : verb.verbs) {
      std::string help;
      for (const VerbText& below : verbs) {
        if (below.path == (verb.path.empty() ? name : verb.path + " " + name)) help = below.help;
      }
      out += fmt::format("complete -c strata -f -n '{}' -a {} -d {}\n", condition, name, single_quoted(help));
    }
    for (const OptionText& option : verb.options) {
      if (option.positional) {
        if (!option.choices.empty()) {
          out += fmt::format("complete -c strata -n '{}' -a '{}' -d {}\n", condition, joined(option.choices),
                             single_quoted(option.help));
        }
        continue;
      }
      out += fmt::format("complete -c strata -n '{}'", condition);
      for (const std::string& name : option.names) {
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      const std::string choices =
          option.choices.empty() ? "" : fmt::format(" -f -a '{}'", joined(option.choices));
      out +=
          fmt::format("{}{} -d {}\n", option.value.empty() ? "" : " -r", choices, single_quoted(option.help));
    }
  }
  return out;
}

}  // namespace strata::cli
