#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace trainrun {

/// One request of a web server. http, https.
struct WebRequest {
  std::string url;
  bool head = false;              // asks for the headers alone
  bool follows_elsewhere = true;  // redirects to another server, too; those to the same are always followed
  int64_t first_byte = 0;         // everything from there on
  int64_t stall_seconds = 30;     // without a byte after which the server is given up
  int retries = 0;                // how often a server that answers 429 or from 500 is asked again
  int64_t connect_seconds = 20;   // after which a server that does not answer is given up
  std::string token;              // sent as a bearer's to the server of `url`, and to no other; "" for none
  std::string login;              // "user:password", likewise, for basic authentication; "" for none
  std::string method;             // "POST", "PUT", "PATCH": sends `body`, or the file; "" for GET, or HEAD
  std::string body;
  std::string body_path;          // of a file, which is sent in place of `body`, by PUT; "" for none
  std::string content_type;       // of what is sent
  bool keeps_error_text = false;  // what the server says with a status from 400 is kept
  /// Takes the next piece of the body; false ends the transfer.
  std::function<bool(const char* data, size_t size)> on_data;
  /// Bytes of the body so far and altogether (0: not known), now and then; of what is sent, where something is.
  std::function<void(int64_t done, int64_t total)> on_progress;
};

struct WebAnswer {
  enum class Fault {
    kNone,
    kNoAnswer,  // the server was not reached, or the transfer broke off
    kStatus,    // from 400
    kNoRanges,  // it would have sent the file from its start
  };
  Fault fault = Fault::kNone;
  long status = 0;
  std::string message;                         // of the fault
  std::string error_text;                      // the beginning of what the server says to it, if it is kept
  std::map<std::string, std::string> headers;  // of the last answer, names in lower case
  std::string url;                             // that it came from, after redirects
  std::string elsewhere;                       // the redirect that was not followed; "" for none
};

/// Sends the request and those that redirects ask for, at most 5. Before it asks again it waits for as long as Retry-After
/// says, or else half a second, then twice as long each time; where a server wants more than a minute, its answer stands.
WebAnswer send(const WebRequest& request);

/// "https://host:port" of a URL.
std::string server_of(const std::string& url);

}  // namespace trainrun
