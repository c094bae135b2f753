#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "registry/formats/files/descriptor.h"

namespace trainrun {

/// Answers requests at a listening socket, on a thread of its own: one comes in, one answer goes out, and the connection is
/// closed. A request is one line, or the head of an HTTP request with GET. While nobody connects the thread sleeps.
class RequestSocket {
 public:
  /// Called on the socket's thread with the line, or the head; the answer, or nothing if `answer` brings it later.
  using Handler = std::function<std::optional<std::string>(uint64_t client, const std::string& request)>;
  /// Whether a connection, by its file, is answered at all.
  using Trust = std::function<bool(int)>;

  /// `listening`: does not block.
  RequestSocket(Descriptor listening, Handler handler, Trust trusts);
  /// Sends what is still to be sent, for a second at most.
  ~RequestSocket();
  RequestSocket(const RequestSocket&) = delete;
  RequestSocket& operator=(const RequestSocket&) = delete;

  void answer(uint64_t client, std::string text);

 private:
  struct Client {
    Descriptor file;
    std::string in;
    std::string out;
    bool is_asked = false;     // its request was handed over
    bool is_answered = false;  // it is closed once `out` is sent
  };

  void run();
  void wake() const;
  void take_answers();
  void accept_client();
  /// False: it is gone, or done with.
  bool serve(uint64_t number, Client& client, short events);
  bool read_request(uint64_t number, Client& client);

  Descriptor listening_;
  Handler handler_;
  Trust trusts_;
  Descriptor waking_;  // an eventfd
  uint64_t next_ = 1;
  std::map<uint64_t, Client> clients_;  // the thread's own
  std::mutex mutex_;
  std::deque<std::pair<uint64_t, std::string>> answers_;
  bool closing_ = false;
  std::thread thread_;
};

/// The answer to an HTTP request: "200 OK", "text/plain".
std::string http_answer(const std::string& status, const std::string& type, const std::string& body);

}  // namespace trainrun
