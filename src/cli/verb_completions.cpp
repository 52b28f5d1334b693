// strata completions bash|zsh|fish
#include "cli/describe.h"
#include "cli/options.h"

namespace strata::cli {

void add_completions(CLI::App& root, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = add_verb(root, "completions", "Completions for a shell",
                            "strata completions bash > ~/.local/share/bash-completion/completions/strata");
  verb->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->callback([&action, shell] {
    action = [shell] {
      const auto verbs = describe_commands();
      print_out(*shell == "bash"  ? bash_completion(verbs)
                : *shell == "zsh" ? zsh_completion(verbs)
                                  : fish_completion(verbs));
      return 0;
    };
  });
}

}  // namespace strata::cli
