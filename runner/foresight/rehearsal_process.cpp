#include "runner/foresight/rehearsal_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "registry/language/error.h"
#include "runner/base/exec_texts.h"

namespace trainrun {
namespace {

constexpr const char* kTooLittleMemory = "too little memory";     // of tools/main.cpp's message for std::bad_alloc
constexpr const char* kCannotAllocate = "can't allocate memory";  // LibTorch's

/// As the program gives it to itself where it trains (process/passive_waiting.h), which `explain` does not.
std::vector<std::string> environment_of_training() {
  std::vector<std::string> environment;
  for (char** one = environ; *one; ++one) environment.emplace_back(*one);
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return environment;
  environment.emplace_back("OMP_WAIT_POLICY=passive");
  environment.emplace_back("GOMP_SPINCOUNT=2000");
  return environment;
}

/// Both ends of a pipe, closed at the end.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  ~Pipe() {
    close_writing();
    ::close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int writing() const { return ends_[1]; }
  void close_writing() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  /// All that comes until the other side closes.
  std::string read_all() const {
    std::string text;
    std::array<char, 4096> part{};
    for (;;) {
      const ssize_t count = ::read(ends_[0], part.data(), part.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return text;
      text.append(part.data(), static_cast<size_t>(count));
    }
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

pid_t start_rehearsal(std::vector<std::string> arguments, const Pipe& output) {
  std::vector<std::string> environment = environment_of_training();
  const std::vector<char*> argv = exec_texts(arguments);
  const std::vector<char*> envp = exec_texts(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Error(std::string("cannot start a process: ") + std::strerror(errno));
  if (child > 0) return child;
  // Only what is safe between fork and exec.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) static_cast<void>(!::write(score, "1000", 4));  // where that fails, any process may be chosen
  if (::dup2(output.writing(), STDOUT_FILENO) < 0 || ::dup2(output.writing(), STDERR_FILENO) < 0) ::_exit(1);
  ::execve("/proc/self/exe", argv.data(), envp.data());
  ::_exit(127);
}

}  // namespace

RehearsalResult rehearse_apart(const std::vector<std::string>& arguments) {
  Pipe output;
  const pid_t child = start_rehearsal(arguments, output);
  output.close_writing();
  const std::string said = output.read_all();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  RehearsalResult result;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    const size_t begin = said.rfind(kRehearsalMark);  // notes may come before
    const auto json = begin == std::string::npos
                          ? nlohmann::json()
                          : nlohmann::json::parse(said.substr(begin + std::strlen(kRehearsalMark)), nullptr, false);
    if (json.is_object()) {
      result.rehearsal = rehearsal_of(json);
      return result;
    }
  }
  result.was_killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                      said.find(kTooLittleMemory) != std::string::npos ||
                      said.find(kCannotAllocate) != std::string::npos;
  if (!result.was_killed) {
    result.error = said.empty() && WIFSIGNALED(status)
                       ? "the process that rehearses the job was ended by signal " + std::to_string(WTERMSIG(status))
                       : said;
  }
  return result;
}

}  // namespace trainrun
