#pragma once

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace trainrun {

/// System calls that change files.
inline constexpr std::array<std::pair<long, const char*>, 16> kFileCalls = {{
    {SYS_openat, "openat"},
    {SYS_open, "open"},
    {SYS_write, "write"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_fsync, "fsync"},
    {SYS_close, "close"},
    {SYS_mkdir, "mkdir"},
    {SYS_rename, "rename"},
    {SYS_renameat, "rename"},
    {SYS_renameat2, "exchange"},
    {SYS_unlink, "unlink"},
    {SYS_unlinkat, "unlink"},
    {SYS_rmdir, "rmdir"},
    {SYS_symlink, "symlink"},
    {SYS_ftruncate, "ftruncate"},
    {SYS_flock, "flock"},
}};

/// System calls that look at files.
inline constexpr std::array<std::pair<long, const char*>, 13> kReadCalls = {{
    {SYS_read, "read"},
    {SYS_pread64, "read"},
    {SYS_stat, "stat"},
    {SYS_lstat, "stat"},
    {SYS_fstat, "stat"},
    {SYS_newfstatat, "stat"},
    {SYS_statx, "stat"},
    {SYS_fstatfs, "statfs"},
    {SYS_access, "access"},
    {SYS_getdents64, "getdents"},
    {SYS_readlink, "readlink"},
    {SYS_readlinkat, "readlink"},
    {SYS_getcwd, "getcwd"},
}};

/// What befalls a process at its system calls that change files, or, for `reads`, that look at them as well.
struct Fault {
  int kill_before = -1;  // SIGKILL instead of this call, counted from 0
  int fail_at = -1;      // this call fails with `error_number`
  int error_number = 0;
  int signal_at = -1;  // the process gets `signal` as it makes this call
  int signal = SIGTERM;
  /// Calls of these names are not carried out, and give this error (0: success). Without fsync, a test is quick.
  std::map<std::string, int> always = {};
  bool reads = false;
};

struct CallsOutcome {
  bool killed = false;
  int exit_code = -1;              // if not killed
  std::vector<std::string> calls;  // made, by name, in order
};

namespace detail {

/// The name of the call that a process is about to make, or "" for one that is not counted.
inline std::string name_of_call(pid_t process, const user_regs_struct& registers, bool reads) {
  const auto find = [&](const auto& calls) -> std::string {
    for (const auto& [number, name] : calls) {
      if (number == static_cast<long>(registers.orig_rax)) return name;
    }
    return "";
  };
  std::string name = find(kFileCalls);
  if (name.empty() && reads) name = find(kReadCalls);
  if (name != "write" && name != "read") return name;
  // A sanitizer writes to pipes of its own.
  const std::string file = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(registers.rdi);
  std::error_code closed;
  return std::filesystem::is_regular_file(file, closed) ? name : "";
}

[[noreturn]] inline void run_child(const std::function<int()>& work) {
  ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  ::raise(SIGSTOP);
  int code = 99;
  try {
    code = work();
  } catch (const std::exception&) {
    code = 98;
  }
  ::_exit(code);
}

}  // namespace detail

/// Runs `work` in a process of its own, under ptrace, as strace would, with a fault at one of its calls. Its exit code
/// is what `work` returns; 98 if it throws. Only x86-64, only the thread that calls `work`.
inline CallsOutcome run_with_fault(const std::function<int()>& work, const Fault& fault) {
  const pid_t child = ::fork();
  if (child == 0) detail::run_child(work);
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  int status = 0;
  const auto wait = [&] {
    if (::waitpid(child, &status, 0) < 0) throw std::system_error(errno, std::generic_category(), "waitpid");
  };
  wait();
  if (!WIFSTOPPED(status)) throw std::runtime_error("this machine does not let a process trace another (ptrace)");
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);

  CallsOutcome outcome;
  bool entering = false;
  std::optional<int> result;  // of a call that is not carried out
  long deliver = 0;           // a signal that has come to the process
  while (true) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, deliver);
    wait();
    deliver = 0;
    if (WIFEXITED(status) || WIFSIGNALED(status)) break;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
      if (WSTOPSIG(status) == fault.signal) deliver = fault.signal;
      continue;
    }
    entering = !entering;
    user_regs_struct registers{};
    ::ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    if (!entering && result) {
      registers.rax = static_cast<unsigned long long>(-static_cast<long long>(*result));
      ::ptrace(PTRACE_SETREGS, child, nullptr, &registers);
      result.reset();
    }
    const std::string name = entering ? detail::name_of_call(child, registers, fault.reads) : "";
    if (name.empty()) continue;
    const int index = static_cast<int>(outcome.calls.size());
    outcome.calls.push_back(name);
    if (index == fault.kill_before) {
      ::kill(child, SIGKILL);
      wait();
      break;
    }
    if (index == fault.signal_at) ::kill(child, fault.signal);
    const auto always = fault.always.find(name);
    if (always != fault.always.end()) result = always->second;
    if (index == fault.fail_at) result = fault.error_number;
    if (result) {
      registers.orig_rax = static_cast<unsigned long long>(-1);  // no such call: it is not carried out
      ::ptrace(PTRACE_SETREGS, child, nullptr, &registers);
    }
  }
  outcome.killed = WIFSIGNALED(status);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace trainrun
