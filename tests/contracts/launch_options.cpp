// Contracts of strata launch, with a launcher that records its arguments.
#include <cstdlib>
#include <filesystem>

#include "contracts/contract.h"
#include "contracts/options.h"
#include "fixtures/environment.h"
#include "observe/ledger.h"

namespace strata::contracts {
namespace {

// A desk with an mpirun that appends its arguments to `calls`, saves a checkpoint and exits with 137.
class LaunchDesk {
 public:
  LaunchDesk() {
    desk_.write_texts();
    desk_.write_run();
    std::filesystem::create_directories(desk_.path("bin"));
    desk_.put("bin/mpirun", R"(#!/bin/sh
[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit 0; }
cd )" + desk_.path("").string() +
                                R"(
printf '%s\n' "$*" >> calls
saved=run/checkpoints/step-0000000$(wc -l < calls)
mkdir -p $saved && echo '{}' > $saved/manifest.json
exit 137
)");
    desk_.put("bin/agent", "#!/bin/sh\n[ ! -e " + desk_.path("gone-").string() + "$1 ]\n");
    for (const char* name : {"bin/mpirun", "bin/agent"})
      std::filesystem::permissions(desk_.path(name), std::filesystem::perms::owner_all);
    desk_.put("hosts", "a slots=2\nb slots=2\nc slots=2\n");
  }

  const Desk& desk() const { return desk_; }
  // The last command of the launcher.
  std::string started(const std::string& words) const {
    EXPECT_EQ(desk_.strata("launch run.toml --max-restarts 0 " + words).code, 137) << words;
    const std::string calls = " " + desk_.read("calls");
    return " " + calls.substr(calls.rfind('\n', calls.size() - 2) + 1);
  }
  int calls() const {
    const std::string text = desk_.read("calls");
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

 private:
  Desk desk_;
  fixtures::Environment path_{"PATH", desk_.path("bin").string() + ":/usr/bin:/bin"};
  fixtures::Environment agent_{"OMPI_MCA_plm_rsh_agent", desk_.path("bin/agent").string()};
};

void inputs(const std::string&) {
  const LaunchDesk launch;
  EXPECT_TRUE(has(launch.started(""), " train run.toml\n"));
  EXPECT_EQ(observe::read_ledger(launch.desk().path("run/ledger.jsonl")).size(), 1u);
  launch.desk().refused("launch");
  launch.desk().refused("launch nowhere.toml");
}

void ranks(const std::string&) {
  const LaunchDesk launch;
  EXPECT_TRUE(has(launch.started("-n 3"), " -n 3 "));
  EXPECT_TRUE(has(launch.started(""), " -n 1 "));
  EXPECT_TRUE(has(launch.started("--set parallel.replicate=2 --set parallel.tensor=2"), " -n 4 "));
  EXPECT_TRUE(has(launch.started("--hosts hosts"), " -n 6 "));
  launch.desk().refused("launch run.toml -n 0");
}

void hosts(const std::string&) {
  const LaunchDesk launch;
  EXPECT_TRUE(has(launch.started("--hosts hosts -n 3"), " --host a:2,b:1 "));
  EXPECT_FALSE(has(launch.started("-n 3"), "--host"));
  launch.desk().put("odd", "a slots=none\n");
  EXPECT_TRUE(has(launch.desk().refused("launch run.toml --hosts odd"), "odd:1"));
}

void spares(const std::string&) {
  const LaunchDesk launch;
  EXPECT_TRUE(has(launch.started("--hosts hosts --spares 1"), " -n 4 "));
  launch.desk().put("gone-b", "");
  EXPECT_TRUE(has(launch.started("--hosts hosts --spares 1"), " --host a:2,c:2 "));
  launch.desk().refused("launch run.toml --spares 1");
}

void max_restarts(const std::string&) {
  const LaunchDesk launch;
  EXPECT_EQ(launch.desk().strata("launch run.toml --max-restarts 2").code, 137);
  EXPECT_EQ(launch.calls(), 3);
  launch.desk().refused("launch run.toml --max-restarts -1");
}

void passed_on(const std::string&) {
  const LaunchDesk launch;
  EXPECT_TRUE(has(launch.started("--set training.steps=3 --accept-changes"),
                  " train run.toml --set training.steps=3 --accept-changes\n"));
  // The folder is read here too.
  EXPECT_EQ(launch.desk().strata("launch run.toml --max-restarts 0 --set run.folder=\"other\"").code, 137);
  EXPECT_FALSE(launch.desk().exists("other/ledger.jsonl")) << "no rank has made the folder";
}

}  // namespace

Contracts launch_options() {
  return {{"launch RUN.toml", inputs},
          {"launch -n", ranks},
          {"launch --hosts", hosts},
          {"launch --spares", spares},
          {"launch --max-restarts", max_restarts},
          {"launch --set", passed_on},
          {"launch --accept-changes", passed_on}};
}

}  // namespace strata::contracts
