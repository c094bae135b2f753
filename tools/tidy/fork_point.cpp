// Preloaded into a compiler: forks it where it opens a file NAME.fork_point, once for each line of that file. A line is
// the file that the copy reads in its place and, after a tab, where what the copy prints goes; its exit code goes to the
// same name with ".status". The compiler itself ends when they all have. See parsing.py.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

namespace {

using Open = int (*)(const char*, int, ...);

Open real_open() {
  static const auto found = reinterpret_cast<Open>(dlsym(RTLD_NEXT, "open"));
  return found;
}

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  _exit(1);
}

void print_to(const std::string& path) {
  const int file = real_open()(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0 || dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0) give_up("fork_point: output");
}

/// Returns in each copy, with the file that it shall read; never in the process that called.
int fork_for_each_line(const char* path, int flags) {
  std::ifstream lines{std::string(path)};
  std::string line;
  while (std::getline(lines, line)) {
    const size_t tab = line.find('\t');
    const std::string output = tab == std::string::npos ? "" : line.substr(tab + 1);
    line.resize(std::min(tab, line.size()));
    (void)std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) give_up("fork_point: fork");
    if (child == 0) {
      if (!output.empty()) print_to(output);
      return real_open()(line.c_str(), flags);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
      if (errno != EINTR) give_up("fork_point: waitpid");
    }
    if (!output.empty()) std::ofstream(output + ".status") << (WIFEXITED(status) ? WEXITSTATUS(status) : 1) << "\n";
  }
  _exit(0);
}

}  // namespace

extern "C" int open(const char* path, int flags, ...) {
  if (std::string_view(path).ends_with(".fork_point")) return fork_for_each_line(path, flags);
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  return real_open()(path, flags, mode);
}
