#include "runner/device/control_group.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace trainrun {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("of nested control groups of version 2, the tightest limit counts") {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  write(root / "list", "0::/job/step\n");
  write(root / "job/memory.max", "1000000\n");
  write(root / "job/memory.current", "900000\n");
  write(root / "job/memory.stat", "anon 5\ninactive_file 300000\n");
  write(root / "job/cpu.max", "150000 100000\n");
  write(root / "job/step/memory.max", "max\n");
  write(root / "job/step/memory.current", "10\n");
  write(root / "job/step/cpu.max", "max 100000\n");
  const ControlGroupLimits limits = control_group_limits(root / "list", root);
  CHECK(limits.memory == 1000000);
  CHECK(limits.memory_left == 400000);
  CHECK(limits.cpus == 1.5);
}

TEST_CASE("limits of version 1 are read where its controllers are, in a container from their root") {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  write(root / "list", "9:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n");
  write(root / "memory/memory.limit_in_bytes", "2000000\n");
  write(root / "memory/memory.usage_in_bytes", "500000\n");
  write(root / "cpu/cpu.cfs_quota_us", "50000\n");
  write(root / "cpu/cpu.cfs_period_us", "100000\n");
  const ControlGroupLimits limits = control_group_limits(root / "list", root);
  CHECK(limits.memory == 2000000);
  CHECK(limits.memory_left == 1500000);
  CHECK(limits.cpus == 0.5);
}

TEST_CASE("there are no limits where no group has one") {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder.path();
  write(root / "list", "0::/\n9:memory:/\n");
  write(root / "memory/memory.limit_in_bytes", "9223372036854771712\n");
  write(root / "memory/memory.usage_in_bytes", "500000\n");
  const ControlGroupLimits limits = control_group_limits(root / "list", root);
  CHECK_FALSE(limits.memory);
  CHECK_FALSE(limits.memory_left);
  CHECK_FALSE(limits.cpus);
  CHECK_FALSE(control_group_limits(root / "no such list", root).memory);
}

}  // namespace
}  // namespace trainrun
