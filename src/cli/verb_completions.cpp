// strata completions bash|zsh|fish
#include "cli/describe.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace strata::cli {

void add_completions(Verb root) {
  auto shell = std::make_shared<std::string>();
  Verb verb = root.verb("completions", "Completions for a shell",
                        "strata completions bash > ~/.local/share/bash-completion/completions/strata");
  verb.option("SHELL", *shell, "bash, zsh or fish").required().one_of({"bash", "zsh", "fish"});
  verb.action([shell] {
    const auto verbs = describe_commands();
    print_out(*shell == "bash"  ? bash_completion(verbs)
              : *shell == "zsh" ? zsh_completion(verbs)
                                : fish_completion(verbs));
    return 0;
  });
}

}  // namespace strata::cli
