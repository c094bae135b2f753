#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace trainrun::test {

/// A web server on this machine, one request at a time, that can misbehave as servers do.
class HttpServer {
 public:
  struct File {
    std::string content;
    bool ranges = true;         // answers a Range request with that range
    int num_interruptions = 0;  // of the first so many answers only half of the body is sent
    int status = 200;
  };

  HttpServer() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, generic, size) != 0 || listen(listener_, 16) != 0 ||
        getsockname(listener_, generic, &size) != 0) {
      throw std::runtime_error("cannot listen on 127.0.0.1");
    }
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
    thread_ = std::thread([this] { serve(); });
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer() {
    shutdown(listener_, SHUT_RDWR);  // ends accept
    thread_.join();
    close(listener_);
  }

  void add(const std::string& name, File file) {
    const std::lock_guard lock(mutex_);
    files_[name] = std::move(file);
  }
  const std::string& url() const { return url_; }
  /// "NAME" or "NAME FIRST-" of each request so far.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (true) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      send_all(connection, answer(read_request(connection)));
      shutdown(connection, SHUT_WR);
      char rest[256];
      while (recv(connection, rest, sizeof rest, 0) > 0) {
      }
      close(connection);
    }
  }

  static std::string read_request(int connection) {
    std::string request;
    char piece[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = recv(connection, piece, sizeof piece, 0);
      if (got <= 0) break;
      request.append(piece, static_cast<size_t>(got));
    }
    return request;
  }

  static void send_all(int connection, const std::string& text) {
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t got = send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (got <= 0) return;
      sent += static_cast<size_t>(got);
    }
  }

  static std::string head(const std::string& status, size_t length, const std::string& more = "") {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(length) + "\r\nConnection: close\r\n" + more +
           "\r\n";
  }

  std::string answer(const std::string& request) {
    const size_t begin = request.find('/') + 1;
    const std::string name = request.substr(begin, request.find(' ', begin) - begin);
    const size_t range = request.find("Range: bytes=");
    size_t first = 0;
    if (range != std::string::npos) first = std::stoul(request.substr(range + 13));
    const std::lock_guard lock(mutex_);
    requests_.push_back(range == std::string::npos ? name : name + " " + std::to_string(first) + "-");
    const auto it = files_.find(name);
    if (it == files_.end()) return head("404 Not Found", 0);
    File& file = it->second;
    if (file.status != 200) return head(std::to_string(file.status) + " Error", 0);
    if (!file.ranges) first = 0;
    const std::string total = std::to_string(file.content.size());
    if (first > 0 && first >= file.content.size()) {
      return head("416 Range Not Satisfiable", 0, "Content-Range: bytes */" + total + "\r\n");
    }
    std::string body = file.content.substr(first);
    const std::string range_line = "Content-Range: bytes " + std::to_string(first) + "-" +
                                   std::to_string(file.content.size() - 1) + "/" + total + "\r\n";
    const std::string header =
        first > 0 ? head("206 Partial Content", body.size(), range_line) : head("200 OK", body.size());
    if (file.num_interruptions > 0) {
      --file.num_interruptions;
      body.resize(body.size() / 2);
    }
    return header + body;
  }

  int listener_ = -1;
  std::string url_;
  mutable std::mutex mutex_;
  std::map<std::string, File> files_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace trainrun::test
