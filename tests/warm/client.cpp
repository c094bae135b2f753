// A program, for tests: calls it by a server that has started it already (see server.cpp), else starts it itself. It is built
// for each program: TRAINRUN_WARM_SOCKET_PATH is its server's, TRAINRUN_WARM_PROGRAM_PATH the program, "" for the one that
// TRAINRUN_BINARY names.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/warm/request.h"

namespace {

using trainrun::warm::Request;

uint64_t ignored_signals() {
  uint64_t ignored = 0;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
      ignored |= uint64_t{1} << (number - 1);
  }
  return ignored;
}

/// Whether nothing was handed down that the server does not pass on: signals that are blocked and, for `heeds_files`, other
/// open files.
bool is_plain(bool heeds_files) {
  for (int file = 0; heeds_files && file < 256; ++file) {
    if ((fcntl(file, F_GETFD) >= 0) != (file < 3)) return false;
  }
  sigset_t blocked;
  sigprocmask(SIG_SETMASK, nullptr, &blocked);
  return sigisemptyset(&blocked) == 1;
}

int connected(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  path.copy(address.sun_path, path.size());
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? connection : -1;
}

bool send_all(int connection, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t count = send(connection, data, size, MSG_NOSIGNAL);
    if (count <= 0) return false;
    data += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

/// Sends the request, the first bytes of it with the standard streams.
bool send_request(int connection, const Request& request, const std::string& strings) {
  const int streams[] = {0, 1, 2};
  iovec part{const_cast<Request*>(&request), sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof streams)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(header), streams, sizeof streams);
  const ssize_t count = sendmsg(connection, &message, MSG_NOSIGNAL);
  return count > 0 &&
         send_all(connection, reinterpret_cast<const char*>(&request) + count,
                  sizeof request - static_cast<size_t>(count)) &&
         send_all(connection, strings.data(), strings.size());
}

volatile pid_t called = 0;

/// What this process is asked to do, the program does. It cannot be stopped or killed in this way.
void pass_signals_on() {
  struct sigaction action{};
  action.sa_handler = [](int number) { kill(called, number); };
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT}) {
    sigaction(number, &action, nullptr);
  }
}

/// Ends as the program ended.
[[noreturn]] void end_as(int status) {
  if (WIFSIGNALED(status)) {
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/// Returns if the server is not there or refuses.
void call_by_server(int argc, char** argv, const char* program) {
  const int connection = connected(TRAINRUN_WARM_SOCKET_PATH);
  char* folder = getcwd(nullptr, 0);
  if (connection < 0 || !folder) return;
  std::string strings = folder;
  strings += '\0';
  Request request{};
  auto add = [&strings](const char* text) { strings.append(text, std::strlen(text) + 1); };
  add(program);
  for (int i = 1; i < argc; ++i) add(argv[i]);
  for (char** variable = environ; *variable; ++variable, ++request.num_variables) add(*variable);
  request.num_arguments = static_cast<uint32_t>(argc);
  request.num_bytes = static_cast<uint32_t>(strings.size());
  trainrun::warm::describe_program(program, request);
  request.umask = umask(0);
  umask(request.umask);
  request.ignored = ignored_signals();
  sched_getaffinity(0, sizeof request.cores, &request.cores);
  for (size_t i = 0; i < request.limits.size(); ++i) getrlimit(static_cast<__rlimit_resource_t>(i), &request.limits[i]);
  char begun = 0;
  if (!send_request(connection, request, strings) || read(connection, &begun, 1) != 1 ||
      begun != trainrun::warm::kBegun)
    return;
  pid_t program_id = 0;
  if (recv(connection, &program_id, sizeof program_id, MSG_WAITALL) != sizeof program_id) _exit(125);
  called = program_id;
  pass_signals_on();
  int status = 0;
  if (recv(connection, &status, sizeof status, MSG_WAITALL) != sizeof status) _exit(125);
  end_as(status);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string own_program = TRAINRUN_WARM_PROGRAM_PATH;
  const char* program = own_program.empty() ? std::getenv("TRAINRUN_BINARY") : own_program.c_str();
  if (!program) return 127;
  // ctest starts the others, and hands down what whoever started it has open.
  if (is_plain(own_program.empty())) call_by_server(argc, argv, program);
  argv[0] = const_cast<char*>(program);
  execv(program, argv);
  return 127;
}
