// Control groups in a made-up /proc and /sys/fs/cgroup, as for containers, batch jobs and services.
#include "base/control_group.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/memory.h"
#include "fixtures/scratch_folder.h"

namespace strata {
namespace {

constexpr const char* kNone1 = "9223372036854771712\n";  // "no limit" of version 1

class ControlGroup : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& content) {
    const Path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << content;
  }
  void own_groups(const std::string& content) { put("proc/self/cgroup", content); }
  // In /sys/fs/cgroup.
  void group(const std::string& path, const std::map<std::string, std::string>& files) {
    for (const auto& [name, content] : files) put("sys/fs/cgroup/" + path + "/" + name, content);
  }
  ControlGroupLimits limits() const { return read_control_groups(root_.path()); }
  Path in_groups(const std::string& path) const { return root_ / ("sys/fs/cgroup/" + path); }

  ScratchFolder root_;
};

TEST_F(ControlGroup, MissingGroupsHaveNoLimit) {
  const ControlGroupLimits none = limits();
  EXPECT_FALSE(none.cpu || none.memory || none.available || none.holdable(0));
}

TEST_F(ControlGroup, ContainerSeesItsGroupAsTheRoot) {
  own_groups("0::/\n");
  group("", {{"cpu.max", "150000 100000\n"},
             {"memory.max", "700000000\n"},
             {"memory.current", "300000000\n"},
             {"memory.stat", "anon 100\nfile 250\nactive_file 40000000\ninactive_file 60000000\n"}});
  const ControlGroupLimits found = limits();
  ASSERT_TRUE(found.cpu && found.memory && found.available);
  EXPECT_EQ(found.cpu->processors, 1.5);
  EXPECT_EQ(found.cpu->threads(), 2) << "one thread would leave a third of the quota unused";
  EXPECT_EQ(found.cpu->source, in_groups("cpu.max"));
  EXPECT_EQ(*found.memory, (MemoryLimit{700'000'000, in_groups("memory.max")}));
  EXPECT_EQ(found.available->bytes, 500'000'000) << "cached files can be dropped";
}

TEST_F(ControlGroup, QuotasAreRoundedUpToThreads) {
  const auto threads = [](double processors) { return CpuQuota{processors, {}}.threads(); };
  EXPECT_EQ(threads(0.1), 1);
  EXPECT_EQ(threads(1), 1);
  EXPECT_EQ(threads(1.01), 2);
  EXPECT_EQ(threads(4), 4);
  EXPECT_GT(threads(1e300), 1000);
}

// Slurm, systemd and Kubernetes without a namespace: the group is named by its whole path.
TEST_F(ControlGroup, ParentsLimitTheirChildren) {
  own_groups("0::/slurm/job_7/step_0\n");
  group("slurm", {{"cpu.max", "max 100000\n"}, {"memory.max", "max\n"}});
  group("slurm/job_7", {{"cpu.max", "400000 200000\n"},
                        {"memory.max", "900\n"},
                        {"memory.current", "850\n"},
                        {"memory.stat", "anon 850\n"}});
  group("slurm/job_7/step_0",
        {{"cpu.max", "300000 100000\n"}, {"memory.max", "500\n"}, {"memory.current", "100\n"}});
  group("slurm/job_8", {{"cpu.max", "100000 100000\n"}, {"memory.max", "1\n"}});  // of another job
  const ControlGroupLimits found = limits();
  EXPECT_EQ(found.cpu->processors, 2);
  EXPECT_EQ(found.cpu->source, in_groups("slurm/job_7/cpu.max"));
  EXPECT_EQ(*found.memory, (MemoryLimit{500, in_groups("slurm/job_7/step_0/memory.max")}));
  EXPECT_EQ(*found.available, (MemoryLimit{50, in_groups("slurm/job_7/memory.max")}))
      << "other steps of the job use the rest";
}

TEST_F(ControlGroup, MaxMeansNoLimitAndThePeriodHasADefault) {
  own_groups("0::/a/b\n");
  group("a", {{"cpu.max", "200000\n"}, {"memory.max", "max\n"}, {"memory.high", "800\n"}});
  group("a/b", {{"cpu.max", "max 100000\n"}, {"memory.max", "max\n"}});
  const ControlGroupLimits found = limits();
  EXPECT_EQ(found.cpu->processors, 2);
  EXPECT_EQ(*found.memory, (MemoryLimit{800, in_groups("a/memory.high")}));
}

TEST_F(ControlGroup, Version1HasAHierarchyForEachController) {
  own_groups("9:name=systemd:/\n4:memory:/lxc/x\n2:cpu,cpuacct:/docker/y\n1:cpuset:/\n");
  group("memory", {{"memory.limit_in_bytes", kNone1}});
  group("memory/lxc", {{"memory.limit_in_bytes", "4000\n"}, {"memory.usage_in_bytes", "3500\n"}});
  group("memory/lxc/x", {{"memory.limit_in_bytes", "3000\n"},
                         {"memory.usage_in_bytes", "1000\n"},
                         {"memory.stat", "active_file 1\ntotal_active_file 100\ntotal_inactive_file 200\n"}});
  group("cpu,cpuacct", {{"cpu.cfs_quota_us", "-1\n"}, {"cpu.cfs_period_us", "100000\n"}});
  group("cpu,cpuacct/docker/y", {{"cpu.cfs_quota_us", "50000\n"}, {"cpu.cfs_period_us", "100000\n"}});
  const ControlGroupLimits found = limits();
  EXPECT_EQ(found.cpu->processors, 0.5);
  EXPECT_EQ(found.cpu->threads(), 1);
  EXPECT_EQ(found.cpu->source, in_groups("cpu,cpuacct/docker/y/cpu.cfs_quota_us"));
  EXPECT_EQ(found.memory->bytes, 3000);
  EXPECT_EQ(found.available->bytes, 500) << "the limit of the parent";
  EXPECT_EQ(found.headrooms.size(), 2U);
  EXPECT_EQ(found.headrooms[1].memory, 2300);
}

// With version 1 a container sees its group as the root of each hierarchy, but /proc contains the host's
// path.
TEST_F(ControlGroup, IgnoresPathsOutsideTheContainer) {
  own_groups("4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/../../elsewhere\n");
  group("memory", {{"memory.limit_in_bytes", "3000\n"}});
  group("cpu", {{"cpu.cfs_quota_us", "300000\n"}, {"cpu.cfs_period_us", "100000\n"}});
  group("elsewhere", {{"memory.max", "1\n"}});
  EXPECT_EQ(limits().memory->bytes, 3000);
  EXPECT_EQ(limits().cpu->processors, 3);
}

TEST_F(ControlGroup, AHybridMachineHasBothVersions) {
  own_groups("4:memory:/job\n1:cpu:/\n0::/user.slice\n");
  group("memory/job", {{"memory.limit_in_bytes", "3000\n"}});
  group("unified/user.slice", {{"memory.max", "2000\n"}, {"cpu.max", "250000 100000\n"}});
  EXPECT_EQ(limits().memory->bytes, 2000);
  EXPECT_EQ(limits().cpu->processors, 2.5);
}

TEST_F(ControlGroup, IgnoresInvalidLimits) {
  for (const char* content : {"", "\n", "much\n", "-5\n", "1e9\n", "99999999999999999999999\n", "0 0\n"}) {
    own_groups("0::/a\n");
    group("a", {{"cpu.max", content}, {"cpu.cfs_quota_us", content}});
    group("cpu", {{"cpu.cfs_quota_us", content}, {"cpu.cfs_period_us", "0\n"}});
    EXPECT_FALSE(limits().cpu) << content;
  }
  // Folders instead of files, which cannot be read, and an empty /proc/self/cgroup.
  std::filesystem::create_directories(in_groups("b/memory.max"));
  std::filesystem::create_directories(in_groups("b/memory.current"));
  std::filesystem::create_symlink("nowhere", in_groups("b/cpu.max"));
  for (const char* own : {"0::/b\n", "", "nonsense\n", ":::\n", "0:\n", "0::\n", "0::/b (deleted)\n"}) {
    own_groups(own);
    EXPECT_FALSE(limits().memory || limits().cpu) << own;
  }
  // A limit counts even if its current usage is unknown.
  group("b", {{"memory.high", "1000\n"}});
  own_groups("0::/b\n");
  EXPECT_EQ(limits().available->bytes, 1000);
}

TEST_F(ControlGroup, ExceededLimitLeavesNothing) {
  group("", {{"memory.max", "1000\n"}, {"memory.current", "4000\n"}});
  EXPECT_EQ(limits().available->bytes, 0);
}

TEST_F(ControlGroup, MemoryIsTheMinimumOfTheMachineAndItsGroups) {
  put("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   50 kB\nSwapFree:  10 kB\n");
  EXPECT_EQ(available_memory(root_.path()), 50 * 1024);
  EXPECT_EQ(holdable_memory(root_.path()), 60 * 1024);
  own_groups("0::/a\n");
  group("a", {{"memory.max", "30720\n"}, {"memory.current", "10240\n"}});
  EXPECT_EQ(available_memory(root_.path()), 20 * 1024);
  EXPECT_EQ(holdable_memory(root_.path()), 30 * 1024) << "includes all free swap space";
  group("a", {{"memory.swap.max", "4096\n"}, {"memory.swap.current", "1024\n"}});
  EXPECT_EQ(holdable_memory(root_.path()), 23 * 1024);
  group("a", {{"memory.swap.max", "max\n"}});
  EXPECT_EQ(holdable_memory(root_.path()), 30 * 1024);
  group("a", {{"memory.max", "1000000000\n"}});
  EXPECT_EQ(available_memory(root_.path()), 50 * 1024) << "the machine has less than the limit";
  EXPECT_EQ(holdable_memory(root_.path()), 60 * 1024);
}

TEST_F(ControlGroup, MessagesNameTheLimit) {
  put("proc/meminfo", "MemAvailable:   50 kB\n");
  EXPECT_EQ(where_memory_ends(root_.path()), "on this machine");
  group("", {{"memory.max", "1000\n"}, {"memory.current", "4000\n"}});
  EXPECT_EQ(where_memory_ends(root_.path()), "under the limit in " + in_groups("memory.max").string());
  EXPECT_GT(holdable_memory(root_.path()), 0) << "0 would mean unknown";
}

TEST_F(ControlGroup, Version1CanLimitMemoryAndSwapTogether) {
  put("proc/meminfo", "MemAvailable:   50000 kB\nSwapFree:  10000 kB\n");
  own_groups("4:memory:/a\n");
  group("memory/a", {{"memory.limit_in_bytes", "3000\n"},
                     {"memory.usage_in_bytes", "1000\n"},
                     {"memory.memsw.limit_in_bytes", "3500\n"},
                     {"memory.memsw.usage_in_bytes", "1000\n"}});
  EXPECT_EQ(available_memory(root_.path()), 2000);
  EXPECT_EQ(holdable_memory(root_.path()), 2500);
}

}  // namespace
}  // namespace strata
