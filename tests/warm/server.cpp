// Preloaded into the program, makes it a server that has started already: for each request it forks a process that goes on
// into main with the arguments, variables, folder, streams and limits of whoever asked.
//
// Two thirds of a short call's time is LibTorch's start: relocations, and the registration of 3,000 operators. Tests
// call the program some thousand times. What is the same in every start is done once; main, and all after it, is each
// process's own. A request that could have started differently (a library's variable, another program) is
// refused, and the client then starts the program itself.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
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
bool is_called = false;      // this process goes on as a call
char client[PATH_MAX] = {};  // what stands for the program in what it starts of itself; "": the program does

// What libraries read as they are loaded. OMP_NUM_THREADS, which many tests set, can be made up for.
constexpr const char* kReadAtStart[] = {"OMP_",   "GOMP_", "KMP_",    "MKL_",    "LD_",   "MALLOC_",
                                        "GLIBC_", "ATEN_", "TORCH",   "PYTORCH", "C10_",  "NCCL_",
                                        "GLOO_",  "CUDA_", "NVIDIA_", "ASAN_",   "UBSAN_"};

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

/// The variables that decide how libraries start, without OMP_NUM_THREADS, and without those that are read later: a folder of
/// weights that `hub:` reads, and the instructions that the first kernel of a process looks up.
Variables deciding(const Variables& all) {
  Variables some;
  for (const auto& [name, value] : all) {
    const bool is_other =
        name == "OMP_NUM_THREADS" || name == "LD_PRELOAD" || name == "TORCH_HOME" || name == "ATEN_CPU_CAPABILITY";
    if (is_read_at_start(name) && !is_other) some.emplace(name, value);
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

/// Whether a process that began with these variables would be as this one is, but for its threads.
bool starts_alike(const Request& request, const Request& own, const Variables& asked, const Variables& here) {
  return request.device == own.device && request.inode == own.inode && request.changed.tv_sec == own.changed.tv_sec &&
         request.changed.tv_nsec == own.changed.tv_nsec && deciding(asked) == deciding(here) &&
         (asked.contains("OMP_NUM_THREADS") || !here.contains("OMP_NUM_THREADS"));
}

/// As many as the variable says, or one for each core, as libgomp takes as it is loaded.
void set_threads(const Variables& asked, const cpu_set_t& cores) {
  const auto found = asked.find("OMP_NUM_THREADS");
  int64_t count = CPU_COUNT(&cores);
  if (found != asked.end())
    count = std::strtol(found->second.c_str(), nullptr, 10);  // 0 for what is no number, as there
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
  set_threads(asked, request.cores);
  std::exit(own_main(static_cast<int>(request.num_arguments), call.arguments.data(), environ));
}

/// A call whose program has not ended.
struct Running {
  pid_t program;
  int ended;  // can be read when it has
  int connection;
};

/// Starts the program that is asked for, if it would start alike.
void answer(int connection, const Request& own, std::vector<Running>& running) {
  Request request{};
  int streams[3] = {-1, -1, -1};
  Call call;
  const bool is_whole = receive(connection, request, streams) && receive_call(connection, request, call);
  const Variables asked = is_whole ? variables_of(call.variables.data()) : Variables();
  const bool is_alike = is_whole && starts_alike(request, own, asked, variables_of(environ));
  if (is_whole) (void)!write(connection, is_alike ? &trainrun::warm::kBegun : &trainrun::warm::kRefused, 1);
  const pid_t program = is_alike ? fork() : -1;
  if (program == 0) become(request, call, asked, streams);
  for (const int stream : streams) close(stream);
  if (program < 0) {
    close(connection);
    return;
  }
  (void)!write(connection, &program, sizeof program);
  running.push_back({program, static_cast<int>(syscall(SYS_pidfd_open, program, 0)), connection});
}

/// Reports a program's end, and ends one whose answer nobody waits for any more. Whether the call is over.
bool attend(const Running& call, bool has_ended, bool is_left) {
  if (!has_ended && !is_left) return false;
  if (!has_ended) {
    kill(-call.program, SIGKILL);
    kill(call.program, SIGKILL);  // its group may not be there yet
  }
  int status = 0;
  waitpid(call.program, &status, 0);
  (void)!write(call.connection, &status, sizeof status);
  close(call.ended);
  close(call.connection);
  return true;
}

int listening_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  unlink(path.c_str());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool listens =
      bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && listen(listener, 64) == 0;
  return listens ? listener : -1;
}

/// What each process would otherwise do first of all, and what depends on nothing that a call brings with it: a kernel in
/// the tables of 3,000 operators, whose pages would be copied for that, and the catalog. Most of the time of a short call.
bool prepare() {
  auto* shape_mode = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "_ZN8trainrun18install_shape_modeEv"));
  auto* catalog = reinterpret_cast<const void* (*)()>(dlsym(RTLD_DEFAULT, "_ZN8trainrun15builtin_catalogEv"));
  if (!shape_mode || !catalog) return false;
  shape_mode();
  catalog();
  return true;
}

/// Serves until its parent ends or, for `idle_s` > 0, until nobody has called for so long. Says on standard output that it
/// is ready.
int serve(const std::string& path, const char* program, int idle_s) {
  if (idle_s == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  Request own{};
  trainrun::warm::describe_program(program, own);
  const int listener = listening_at(path);
  if (listener < 0 || !prepare()) return 1;
  (void)!write(STDOUT_FILENO, "ready\n", 6);
  std::vector<Running> running;
  while (true) {
    std::vector<pollfd> watched = {{listener, POLLIN, 0}};
    for (const Running& call : running) {
      watched.push_back({call.ended, POLLIN, 0});
      watched.push_back({call.connection, POLLRDHUP, 0});
    }
    const bool may_end = idle_s > 0 && running.empty();
    const int events = poll(watched.data(), watched.size(), may_end ? idle_s * 1000 : -1);
    if (events == 0) return 0;
    if (events < 0) continue;
    size_t place = 1;
    std::erase_if(running, [&](const Running& call) {
      const bool has_ended = watched[place].revents != 0;
      const bool is_left = watched[place + 1].revents != 0;
      place += 2;
      return attend(call, has_ended, is_left);
    });
    if (!watched[0].revents) continue;
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    const timeval patience{10, 0};  // with who stopped in the middle of asking
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    answer(connection, own, running);
  }
}

int main_or_server(int argc, char** argv, char** environment) {
  const char* path = std::getenv(trainrun::warm::kSocketVariable);
  if (!path) return own_main(argc, argv, environment);
  const char* own_client = std::getenv(trainrun::warm::kClientVariable);
  if (own_client) std::strncpy(client, own_client, sizeof client - 1);
  const char* idle_s = std::getenv(trainrun::warm::kIdleVariable);
  for (const char* ours : {"LD_PRELOAD", "LD_BIND_NOW"}) unsetenv(ours);
  return serve(path, argv[0], idle_s ? static_cast<int>(std::strtol(idle_s, nullptr, 10)) : 0);
}

/// What is started in place of `path`: where a call starts its own program, the client, which calls it.
const char* stand_in_for(const char* path) {
  return is_called && client[0] && std::strcmp(path, "/proc/self/exe") == 0 ? client : path;
}

}  // namespace

/// In place of the C library's: the ranks that a called launcher starts are called, too. The client takes the rank's place
/// as the launcher's child. Nothing may be allocated here: it is called between fork and exec.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's are reserved
extern "C" int execve(const char* path, char* const* arguments, char* const* environment) noexcept {
  return static_cast<int>(syscall(SYS_execve, stand_in_for(path), arguments, environment));
}

/// In place of the C library's, likewise: `export --verify` runs the recipe in a process of its own.
// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the C library's are reserved
extern "C" int posix_spawnp(pid_t* process, const char* file, const posix_spawn_file_actions_t* actions,
                            const posix_spawnattr_t* attributes, char* const* arguments, char* const* environment) {
  static auto* const spawn = reinterpret_cast<decltype(&posix_spawnp)>(dlsym(RTLD_NEXT, "posix_spawnp"));
  return spawn(process, stand_in_for(file), actions, attributes, arguments, environment);
}

/// In place of the C library's: what a test has saved matters until the test ends, so no disk is waited for. Tests of what
/// outlives a power failure start the program itself.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): the C library's are reserved
extern "C" int fsync(int file) { return is_called ? 0 : static_cast<int>(syscall(SYS_fsync, file)); }
extern "C" int fdatasync(int file) { return is_called ? 0 : static_cast<int>(syscall(SYS_fdatasync, file)); }
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

/// In place of the C library's: by the time that main begins, every library has started.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's own name
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*loader_fini)(), void* stack_end) {
  own_main = main;
  auto* start = reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(main_or_server, argc, argv, init, fini, loader_fini, stack_end);
}
