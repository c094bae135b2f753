#include "runner/control/request_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "runner/process/thread_signals.h"

namespace trainrun {
namespace {

constexpr size_t kMostClients = 16;
constexpr size_t kLongestRequest = 16384;
constexpr std::chrono::milliseconds kPatience(1000);

}  // namespace

RequestSocket::RequestSocket(Descriptor listening, Handler handler, Trust trusts)
    : listening_(std::move(listening)),
      handler_(std::move(handler)),
      trusts_(std::move(trusts)),
      waking_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (waking_.number() < 0) throw FileError("eventfd", "make", errno);
  thread_ = std::thread([this] { run(); });
}

RequestSocket::~RequestSocket() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  wake();
  thread_.join();
}

void RequestSocket::answer(uint64_t client, std::string text) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answers_.emplace_back(client, std::move(text));
  }
  wake();
}

void RequestSocket::wake() const {
  const uint64_t one = 1;
  static_cast<void>(!::write(waking_.number(), &one, sizeof one));
}

void RequestSocket::take_answers() {
  uint64_t count = 0;
  static_cast<void>(!::read(waking_.number(), &count, sizeof count));
  std::deque<std::pair<uint64_t, std::string>> answers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answers.swap(answers_);
  }
  for (auto& [number, text] : answers) {
    const auto client = clients_.find(number);
    if (client == clients_.end()) continue;  // it did not wait
    client->second.out += text;
    client->second.is_answered = true;
  }
}

void RequestSocket::accept_client() {
  Descriptor file(::accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (file.number() < 0 || clients_.size() >= kMostClients || !trusts_(file.number())) return;
  clients_[next_++].file = std::move(file);
}

bool RequestSocket::read_request(uint64_t number, Client& client) {
  char piece[1024];
  const ssize_t size = ::read(client.file.number(), static_cast<char*>(piece), sizeof piece);
  if (size == 0) return client.is_asked;  // whoever asked may have closed its own direction
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  client.in.append(static_cast<char*>(piece), static_cast<size_t>(size));
  if (client.in.size() > kLongestRequest) return false;
  const bool is_http = client.in.starts_with("GET ");
  const auto end = client.in.find(is_http ? "\r\n\r\n" : "\n");
  if (client.is_asked || end == std::string::npos) return true;
  client.is_asked = true;
  if (auto text = handler_(number, client.in.substr(0, end))) {
    client.out += *text;
    client.is_answered = true;
  }
  return true;
}

bool RequestSocket::serve(uint64_t number, Client& client, short events) {
  if ((events & POLLIN) != 0 && !read_request(number, client)) return false;
  if ((events & (POLLERR | POLLHUP)) != 0 && (events & POLLIN) == 0) return false;
  while (client.is_answered && !client.out.empty()) {
    const ssize_t sent = ::send(client.file.number(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    client.out.erase(0, static_cast<size_t>(sent));
  }
  return !client.is_answered;
}

void RequestSocket::run() {
  leave_signals_to_others();
  std::optional<std::chrono::steady_clock::time_point> end;
  while (true) {
    std::vector<pollfd> files = {{listening_.number(), POLLIN, 0}, {waking_.number(), POLLIN, 0}};
    std::vector<uint64_t> numbers;
    for (const auto& [number, client] : clients_) {
      const auto wanted = static_cast<short>(client.is_answered ? POLLOUT : client.is_asked ? 0 : POLLIN);
      files.push_back({client.file.number(), wanted, 0});
      numbers.push_back(number);
    }
    constexpr int kMilliseconds = 50;
    ::poll(files.data(), files.size(), end ? kMilliseconds : -1);
    if ((files[1].revents & POLLIN) != 0) take_answers();
    for (size_t i = 0; i < numbers.size(); ++i) {
      Client& client = clients_[numbers[i]];
      if (!serve(numbers[i], client, files[i + 2].revents)) clients_.erase(numbers[i]);
    }
    if ((files[0].revents & POLLIN) != 0 && !end) accept_client();
    const auto now = std::chrono::steady_clock::now();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (closing_ && !end) end = now + kPatience;
    }
    if (!end) continue;
    bool is_sending = false;
    for (const auto& [number, client] : clients_) is_sending = is_sending || client.is_answered;
    if (!is_sending || now > *end) return;
  }
}

std::string http_answer(const std::string& status, const std::string& type, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace trainrun
