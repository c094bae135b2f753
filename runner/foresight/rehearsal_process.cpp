#include "runner/foresight/rehearsal_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "registry/language/error.h"
#include "runner/base/own_process.h"

namespace trainrun {
namespace {

constexpr const char* kTooLittleMemory = "too little memory";     // of tools/main.cpp's message for std::bad_alloc
constexpr const char* kCannotAllocate = "can't allocate memory";  // LibTorch's
/// Of messages about batches with too few samples: of the check in model/data_checks.cpp, of our layers, of LibTorch.
constexpr std::array kTooFewSamples = {"cannot normalize one value per channel in training",
                                       "it normalizes over more than one value per",
                                       "Expected more than 1 value per channel when training"};

/// As the program gives it to itself where it trains (process/passive_waiting.h), which `explain` does not.
std::vector<std::string> environment_of_training() {
  std::vector<std::string> environment = own_environment();
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

}  // namespace

RehearsalResult rehearse_apart(std::vector<std::string> arguments, RehearsalAim aim) {
  arguments.emplace_back(aim == RehearsalAim::kMemory ? "--rehearse-memory" : "--rehearse");
  Pipe output;
  const pid_t child = start_process({.arguments = std::move(arguments),
                                     .environment = environment_of_training(),
                                     .output = output.writing(),
                                     .ends_first = true});
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
    result.is_too_small = std::any_of(kTooFewSamples.begin(), kTooFewSamples.end(),
                                      [&](const char* message) { return said.find(message) != std::string::npos; });
  }
  return result;
}

}  // namespace trainrun
