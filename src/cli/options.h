// Declares verbs and their options. CLI11 parses; only options.cpp includes its header, which takes seconds
// to compile.
//
// A verb keeps its options in a struct that it shares with its action:
//
//   auto options = std::make_shared<Options>();
//   Verb verb = root.verb("doctor", "What this machine offers", "strata doctor --json");
//   verb.option("--output,-o", options->output, "The file to write").type_name("FILE").show_default();
//   verb.flag("--json", options->json, "Print one JSON object");
//   verb.action([options] { return doctor(*options); });
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata::cli {

// The action of the chosen verb, run after parsing; returns the exit code.
using Action = std::function<int()>;

// The values that shells offer, by option.
using Suggestions = std::map<const CLI::Option*, std::vector<std::string>>;

// An option of a verb: a handle, valid as long as the CommandLine. Setters return it for chaining.
class Option {
 public:
  Option required();
  Option type_name(const std::string& name);  // the value's name in help: "FILE"
  Option show_default();                      // help shows the variable's current value
  Option one_each();      // a list takes one value each time: later words are not swallowed
  Option positive();      // a whole number from 1 to 2147483647
  Option non_negative();  // from 0
  Option range(double lowest, double highest);
  Option one_of(const std::vector<std::string>& values);
  Option suggest(
      const std::vector<std::string>& values);  // completed by shells; other values are accepted too
  Option needs(const Option& other);
  Option excludes(const Option& other);

  bool given() const;  // once the command line is parsed

  std::vector<std::string> names() const;  // "-o", "--output"; a positional: only its name
  bool positional() const;
  std::string value_name() const;  // "FILE"; empty: a flag
  std::string help() const;
  std::vector<std::string> suggestions() const;  // of one_of and suggest

 private:
  friend class Verb;
  Option(CLI::Option* option, Suggestions* suggestions) : option_(option), suggestions_(suggestions) {}
  CLI::Option* option_;
  Suggestions* suggestions_;  // of the CommandLine
};

// A verb, or the program itself as the root: a handle, valid as long as the CommandLine.
class Verb {
 public:
  // A verb below this one, with an example at the end of its help.
  Verb verb(const std::string& name, const std::string& help, const std::string& example);

  // `names`: "--output,-o", or "NAME" for a positional. The value is stored while parsing and must live until
  // then. A list takes all words up to the next option unless one_each(); an optional stays empty if not
  // given.
  Option option(const std::string& names, std::string& value, const std::string& help);
  Option option(const std::string& names, int64_t& value, const std::string& help);
  Option option(const std::string& names, uint64_t& value, const std::string& help);
  Option option(const std::string& names, double& value, const std::string& help);
  Option option(const std::string& names, std::vector<std::string>& value, const std::string& help);
  Option option(const std::string& names, std::optional<std::string>& value, const std::string& help);
  Option option(const std::string& names, std::optional<int64_t>& value, const std::string& help);
  Option flag(const std::string& names, bool& value, const std::string& help);
  Option sets(std::vector<std::string>& value);  // --set KEY=VALUE, repeatable
  Option json(bool& value);                      // --json

  // The action of this verb, unless one of the verbs below it is chosen.
  void action(Action run);

  std::string name() const;
  void group(const std::string& heading);  // in the list of verbs in the parent's help
  std::string help() const;                // the line
  std::string help_text() const;           // all that --help prints
  std::string example() const;
  std::vector<Option> options() const;
  std::vector<Verb> verbs() const;

 private:
  friend class CommandLine;
  Verb(CLI::App* app, Action* chosen, Suggestions* suggestions)
      : app_(app), chosen_(chosen), suggestions_(suggestions) {}
  CLI::App* app_;
  Action* chosen_;  // of the CommandLine
  Suggestions* suggestions_;
};

// The result of parsing a command line.
struct Parsed {
  std::vector<Verb> verbs;  // the recognized ones: the root, the verb, the verb below it
  bool answered = false;    // --help or --version, already printed
  std::string error;        // empty: none
  Action action;            // empty: the verb only has others below it
};

// The tree of verbs, and its parser.
class CommandLine {
 public:
  // `version`: what --version prints, also with --json.
  CommandLine(const std::string& name, const std::string& help, std::function<std::string(bool json)> version,
              const std::string& example);
  CommandLine(CommandLine&&) noexcept;
  ~CommandLine();

  Verb root();
  Parsed parse(int argc, const char* const* argv);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::cli
