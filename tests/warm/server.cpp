// Preloaded into the program, makes it a server that has started already: for each request it forks a process that goes on
// into main with the arguments, variables, folder, streams and limits of whoever asked.
//
// Two thirds of a short call's time is LibTorch's start: relocations, and the registration of 3,000 operators. Tests
// call the program some thousand times. What is the same in every start is done once; main, and all after it, is each
// process's own. A request that could have started differently (a library's variable, another program, other cores) is
// refused, and the client then starts the program itself.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/warm/request.h"

namespace {

using trainrun::warm::Request;
using Main = int (*)(int, char**, char**);
using Variables = std::map<std::string, std::string, std::less<>>;

Main own_main = nullptr;
bool is_called = false;  // this process goes on as a call

// What libraries read as they are loaded. OMP_NUM_THREADS, which many tests set, can be made up for.
constexpr const char* kReadAtStart[] = {"OMP_",  "GOMP_",   "KMP_", "MKL_",  "LD_",   "MALLOC_", "GLIBC_", "ATEN_",
                                        "TORCH", "PYTORCH", "C10_", "NCCL_", "GLOO_", "CUDA_",   "NVIDIA_"};

bool is_read_at_start(std::string_view name) {
  for (const char* prefix : kReadAtStart) {
    if (name.substr(0, std::strlen(prefix)) == prefix) return true;
  }
  return false;
}

Variables variables_of(char** environment) {
  Variables variables;
  for (; *environment; ++environment) {
    const std::string_view text = *environment;
    const size_t sign = text.find('=');
    if (sign != std::string_view::npos) variables.emplace(text.substr(0, sign), text.substr(sign + 1));
  }
  return variables;
}

/// The variables that decide how libraries start, without OMP_NUM_THREADS.
Variables deciding(const Variables& all) {
  Variables some;
  for (const auto& [name, value] : all) {
    if (is_read_at_start(name) && name != "OMP_NUM_THREADS" && name != "LD_PRELOAD") some.emplace(name, value);
  }
  return some;
}

bool read_all(int connection, void* data, size_t size) {
  auto* place = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = read(connection, place, size);
    if (count <= 0) return false;
    place += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

/// Reads the request's fixed part and the three streams that come with it.
bool receive(int connection, Request& request, int (&streams)[3]) {
  iovec part{&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof streams)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (count <= 0 || !header || header->cmsg_len != CMSG_LEN(sizeof streams)) return false;
  std::memcpy(streams, CMSG_DATA(header), sizeof streams);
  return read_all(connection, reinterpret_cast<char*>(&request) + count, sizeof request - static_cast<size_t>(count));
}

/// The strings of a request, as main takes them.
struct Call {
  std::vector<char> text;
  char* folder = nullptr;
  std::vector<char*> arguments;  // both end with a null
  std::vector<char*> variables;
};

bool receive_call(int connection, const Request& request, Call& call) {
  call.text.resize(request.num_bytes);
  if (!read_all(connection, call.text.data(), call.text.size())) return false;
  char* next = call.text.data();
  auto take = [&next] {
    char* string = next;
    next += std::strlen(next) + 1;
    return string;
  };
  call.folder = take();
  for (uint32_t i = 0; i < request.num_arguments; ++i) call.arguments.push_back(take());
  for (uint32_t i = 0; i < request.num_variables; ++i) call.variables.push_back(take());
  call.arguments.push_back(nullptr);
  call.variables.push_back(nullptr);
  return true;
}

/// Whether a process that began with these variables would be as this one is. Other cores count only where the number of
/// threads follows from them.
bool starts_alike(const Request& request, const Request& own, const Variables& asked, const Variables& here) {
  return request.device == own.device && request.inode == own.inode && request.changed.tv_sec == own.changed.tv_sec &&
         request.changed.tv_nsec == own.changed.tv_nsec &&
         (asked.contains("OMP_NUM_THREADS") || std::memcmp(&request.cores, &own.cores, sizeof own.cores) == 0) &&
         deciding(asked) == deciding(here) && (asked.contains("OMP_NUM_THREADS") || !here.contains("OMP_NUM_THREADS"));
}

void set_threads(const Variables& asked) {
  const auto found = asked.find("OMP_NUM_THREADS");
  if (found == asked.end()) return;
  const int64_t count = std::strtol(found->second.c_str(), nullptr, 10);  // 0 for what is no number, as for libgomp
  auto* set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set && count > 0) set(static_cast<int>(count));
}

/// Goes on as the program that was asked for; does not return.
[[noreturn]] void become(const Request& request, Call& call, const Variables& asked, const int (&streams)[3]) {
  setsid();
  for (int i = 0; i < 3; ++i) dup2(streams[i], i);
  closefrom(3);
  umask(request.umask);
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) signal(number, request.ignored >> (number - 1) & 1 ? SIG_IGN : SIG_DFL);
  }
  for (size_t i = 0; i < request.limits.size(); ++i) setrlimit(static_cast<__rlimit_resource_t>(i), &request.limits[i]);
  if (chdir(call.folder) != 0 || sched_setaffinity(0, sizeof request.cores, &request.cores) != 0) _exit(127);
  environ = call.variables.data();
  is_called = true;
  set_threads(asked);
  std::exit(own_main(static_cast<int>(request.num_arguments), call.arguments.data(), environ));
}

/// Waits for the program's end and reports it; ends the program when nobody waits for the answer any more.
void attend(int connection, pid_t program) {
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, program, 0));
  pollfd watched[] = {{ended, POLLIN, 0}, {connection, POLLRDHUP, 0}};
  while (poll(watched, 2, -1) < 0) {
  }
  if (!watched[0].revents) kill(-program, SIGKILL);
  int status = 0;
  waitpid(program, &status, 0);
  (void)!write(connection, &status, sizeof status);
}

void answer(int connection, const Request& own) {
  signal(SIGCHLD, SIG_DFL);
  Request request{};
  int streams[3];
  Call call;
  if (!receive(connection, request, streams) || !receive_call(connection, request, call)) return;
  const Variables asked = variables_of(call.variables.data());
  const bool alike = starts_alike(request, own, asked, variables_of(environ));
  (void)!write(connection, alike ? &trainrun::warm::kBegun : &trainrun::warm::kRefused, 1);
  if (!alike) return;
  const pid_t program = fork();
  if (program == 0) become(request, call, asked, streams);
  for (const int stream : streams) close(stream);
  if (program < 0) return;
  (void)!write(connection, &program, sizeof program);
  attend(connection, program);
}

/// Serves until its parent ends. Says on standard output that it is ready.
int serve(const std::string& path, const char* program) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGCHLD, SIG_IGN);
  Request own{};
  trainrun::warm::describe_program(program, own);
  sched_getaffinity(0, sizeof own.cores, &own.cores);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return 1;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  unlink(path.c_str());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener, 64) != 0)
    return 1;
  (void)!write(STDOUT_FILENO, "ready\n", 6);
  while (true) {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    if (fork() == 0) {
      close(listener);
      answer(connection, own);
      _exit(0);
    }
    close(connection);
  }
}

int main_or_server(int argc, char** argv, char** environment) {
  const char* path = std::getenv(trainrun::warm::kSocketVariable);
  if (!path) return own_main(argc, argv, environment);
  unsetenv("LD_PRELOAD");
  return serve(path, argv[0]);
}

}  // namespace

/// In place of the C library's: the ranks that a called launcher starts are called, too. The client takes the rank's place
/// as the launcher's child. Nothing may be allocated here: it is called between fork and exec.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's are reserved
extern "C" int execve(const char* path, char* const* arguments, char* const* environment) noexcept {
  const bool is_rank = is_called && std::strcmp(path, "/proc/self/exe") == 0;
  return static_cast<int>(syscall(SYS_execve, is_rank ? TRAINRUN_WARM_CLIENT_PATH : path, arguments, environment));
}

/// In place of the C library's: by the time that main begins, every library has started.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's own name
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*loader_fini)(), void* stack_end) {
  own_main = main;
  auto* start = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(main_or_server, argc, argv, init, fini, loader_fini, stack_end);
}
