#include "runner/report/report_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <system_error>

#include "registry/language/text_forms.h"
#include "registry/language/text_view.h"
#include "registry/tensors/component_error.h"
#include "runner/report/page/html.h"

namespace trainrun {
namespace {

constexpr int kMostWaiting = 16;
constexpr const char* kText = "text/plain; charset=utf-8";

Descriptor listening_at_port(int port, int& bound) {
  const auto fail = [&](const char* what) {
    return Error("cannot " + std::string(what) + " 127.0.0.1:" + std::to_string(port) + ": " +
                 std::generic_category().message(errno) +
                 "; --port takes another one, and without it one that is free is taken");
  };
  Descriptor file(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (file.number() < 0) throw fail("open a socket for");
  const int yes = 1;
  ::setsockopt(file.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(file.number(), generic, size) != 0 || ::listen(file.number(), kMostWaiting) != 0) throw fail("listen at");
  if (::getsockname(file.number(), generic, &size) != 0) throw fail("listen at");
  bound = ntohs(address.sin_port);
  return file;
}

/// What the head of a request says its server is called: "localhost:8080"; "" for nothing.
std::string host_of(const std::string& head) {
  for (size_t begin = head.find("\r\n"); begin != std::string::npos; begin = head.find("\r\n", begin)) {
    begin += 2;
    const std::string line = head.substr(begin, head.find("\r\n", begin) - begin);
    const auto colon = line.find(':');
    if (colon == std::string::npos || lower_ascii(line.substr(0, colon)) != "host") continue;
    return lower_ascii(std::string(without_space(std::string_view(line).substr(colon + 1))));
  }
  return "";
}

}  // namespace

ReportServer::ReportServer(int port, std::function<RunReport()> read) : read_(std::move(read)) {
  Descriptor listening = listening_at_port(port, port_);
  requests_ = std::make_unique<RequestSocket>(
      std::move(listening), [this](uint64_t, const std::string& request) { return std::optional(answer(request)); },
      [](int) { return true; });
}

std::string ReportServer::answer(const std::string& request) const {
  const std::string end = ":" + std::to_string(port_);
  const std::string host = host_of(request);
  if (host != "localhost" + end && host != "127.0.0.1" + end) {
    return http_answer("403 Forbidden", kText, "this page is served to http://localhost" + end + " alone\n");
  }
  const std::string path = request.substr(0, request.find(" HTTP/"));
  if (path != "GET /" && path != "GET /data") return http_answer("404 Not Found", kText, "there are / and /data\n");
  try {
    const RunReport report = read_();
    if (path == "GET /") return http_answer("200 OK", "text/html; charset=utf-8", to_html(report, /*is_watched=*/true));
    return http_answer("200 OK", "application/json", watched_data(report));
  } catch (const std::exception& error) {
    return http_answer("500 Internal Server Error", kText, error_text(error) + "\n");
  }
}

}  // namespace trainrun
