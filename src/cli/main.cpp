#include "cli/verbs.h"

int main(int argc, char** argv) {
  return strata::cli::run_command_line(argc, argv);
}
