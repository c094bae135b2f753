#include "registry/formats/web/transfer.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

constexpr size_t kMostErrorText = 4096;
constexpr int kMostRedirects = 5;
constexpr long kFirstRedirect = 300;
constexpr long kFirstError = 400;
constexpr long kPartial = 206;
constexpr long kTooManyRequests = 429;
constexpr long kFirstServerFault = 500;

/// Where this system keeps the certificates that it trusts, or "" for where libcurl looks: in the place of the system
/// that it was built for, while a wheel's libcurl runs on others, too.
std::string trusted_certificates() {
  if (const char* named = std::getenv("SSL_CERT_FILE")) return named;
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    std::error_code unreadable;
    if (std::filesystem::exists(path, unreadable)) return path;
  }
  return "";
}

/// What the callbacks of one request need.
struct Exchange {
  const WebRequest& request;
  CURL* handle;
  WebAnswer answer;
};

size_t on_body(char* data, size_t size, size_t count, void* target) {
  auto& exchange = *static_cast<Exchange*>(target);
  long status = 0;
  curl_easy_getinfo(exchange.handle, CURLINFO_RESPONSE_CODE, &status);
  if (status >= kFirstError && exchange.request.keeps_error_text) {
    std::string& text = exchange.answer.error_text;
    text.append(data, std::min(size * count, kMostErrorText - text.size()));
  }
  if (status >= kFirstRedirect) return size * count;
  if (exchange.request.first_byte > 0 && status != kPartial) {
    exchange.answer.fault = WebAnswer::Fault::kNoRanges;
    return 0;
  }
  return exchange.request.on_data && !exchange.request.on_data(data, size * count) ? 0 : size * count;
}

size_t on_header(char* data, size_t size, size_t count, void* target) {
  auto& headers = static_cast<Exchange*>(target)->answer.headers;
  const std::string line(data, size * count);
  if (line.starts_with("HTTP/")) headers.clear();  // of another answer, as that of a proxy
  if (const auto colon = line.find(':'); colon != std::string::npos) {
    headers[lower_ascii(line.substr(0, colon))] = without_space(std::string_view(line).substr(colon + 1));
  }
  return size * count;
}

int on_transferred(void* target, curl_off_t total, curl_off_t done, curl_off_t sent, curl_off_t to_send) {
  const auto& exchange = *static_cast<const Exchange*>(target);
  if (!exchange.request.method.empty()) {
    exchange.request.on_progress(sent, to_send);
    return 0;
  }
  const int64_t before = exchange.request.first_byte;
  if (done > 0) exchange.request.on_progress(before + done, total > 0 ? before + total : 0);
  return 0;
}

using File = std::unique_ptr<std::FILE, decltype(&std::fclose)>;

/// The file that the request sends, open; null: none.
File body_file(const WebRequest& request, curl_off_t& size) {
  File file(nullptr, &std::fclose);
  if (request.body_path.empty()) return file;
  file.reset(std::fopen(request.body_path.c_str(), "rbe"));
  std::error_code error;
  size = static_cast<curl_off_t>(std::filesystem::file_size(request.body_path, error));
  if (!file || error) throw DataError(request.body_path + ": cannot be read, and is not sent");
  return file;
}

/// What a request sends. `file` is the file's, where it is one.
void set_body(CURL* handle, const WebRequest& request, std::FILE* file, curl_off_t size) {
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(handle, option, value); };
  if (file) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READDATA, static_cast<void*>(file));
    set(CURLOPT_INFILESIZE_LARGE, size);
    return;
  }
  if (request.method.empty()) return;
  set(CURLOPT_POSTFIELDS, request.body.c_str());
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

struct FreeHeaders {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, FreeHeaders>;

void add_header(Headers& headers, const std::string& line) {
  curl_slist* first = headers.release();
  curl_slist* longer = curl_slist_append(first, line.c_str());
  headers.reset(longer ? longer : first);
}

Headers headers_of(const WebRequest& request, const std::string& token) {
  Headers headers;
  if (!token.empty()) add_header(headers, "Authorization: Bearer " + token);
  if (request.method.empty()) return headers;
  add_header(headers, "Content-Type: " + request.content_type);
  add_header(headers, "Expect:");  // some servers let a client wait that asks first whether it may send
  return headers;
}

/// One request, whose redirects are the caller's. `is_trusted`: the server is the one that `token` and `login` are for.
WebAnswer send_one(const std::string& url, const WebRequest& request, bool is_trusted) {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(curl_easy_init(), &curl_easy_cleanup);
  if (initialised != CURLE_OK || !handle) throw DataError("libcurl cannot be initialised");
  char detail[CURL_ERROR_SIZE] = "";
  Exchange exchange{request, handle.get(), {}};
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(handle.get(), option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "trainrun/" TRAINRUN_VERSION);
  if (!request.keeps_error_text) set(CURLOPT_FAILONERROR, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.connect_seconds));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_seconds));
  if (request.head) set(CURLOPT_NOBODY, 1L);
  const std::string range = std::to_string(request.first_byte) + "-";
  if (request.first_byte > 0) set(CURLOPT_RANGE, range.c_str());
  const std::string certificates = trusted_certificates();
  if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());
  curl_off_t body_size = 0;
  const File file = body_file(request, body_size);
  set_body(handle.get(), request, file.get(), body_size);
  if (is_trusted && !request.login.empty()) set(CURLOPT_USERPWD, request.login.c_str());
  const Headers headers = headers_of(request, is_trusted ? request.token : "");
  if (headers) set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(detail));
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
  if (request.on_progress) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &on_transferred);
    set(CURLOPT_XFERINFODATA, static_cast<void*>(&exchange));
  }
  const CURLcode code = curl_easy_perform(handle.get());
  WebAnswer& answer = exchange.answer;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &answer.status);
  answer.url = url;
  if (const char* redirect = nullptr; curl_easy_getinfo(handle.get(), CURLINFO_REDIRECT_URL, &redirect) == CURLE_OK)
    answer.elsewhere = redirect ? redirect : "";
  const bool is_refused = code == CURLE_OK && answer.status >= kFirstError;
  if ((code == CURLE_OK && !is_refused) || answer.fault != WebAnswer::Fault::kNone) return answer;
  answer.fault = answer.status >= kFirstError ? WebAnswer::Fault::kStatus : WebAnswer::Fault::kNoAnswer;
  answer.message = is_refused  ? "it answers " + std::to_string(answer.status)
                   : detail[0] ? detail
                               : curl_easy_strerror(code);
  return answer;
}

/// For how long to wait before a server is asked again for the time `attempt`; nothing: its answer stands.
std::optional<std::chrono::milliseconds> pause_before(const WebAnswer& answer, int attempt) {
  constexpr std::chrono::milliseconds kFirstPause(500);
  constexpr std::chrono::seconds kLongestPause(60);
  constexpr size_t kMostDigits = 6;
  const bool is_busy = answer.fault == WebAnswer::Fault::kStatus &&
                       (answer.status == kTooManyRequests || answer.status >= kFirstServerFault);
  if (!is_busy) return std::nullopt;
  const auto said = answer.headers.find("retry-after");
  if (said == answer.headers.end()) return kFirstPause * (1 << attempt);
  const std::string& text = said->second;
  const bool is_number = !text.empty() && text.size() <= kMostDigits &&
                         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
  if (!is_number) return std::nullopt;  // a date, hours away perhaps
  const std::chrono::seconds pause(std::stol(text));
  return pause > kLongestPause ? std::nullopt : std::optional<std::chrono::milliseconds>(pause);
}

/// The request and its redirects, once.
WebAnswer send_once(const WebRequest& request) {
  std::string url = request.url;
  for (int redirects = 0;; ++redirects) {
    // A token is for one server: not for those that it sends us to, which may be anybody's.
    const bool is_same = server_of(url) == server_of(request.url);
    WebAnswer answer = send_one(url, request, is_same);
    if (answer.fault != WebAnswer::Fault::kNone || answer.elsewhere.empty()) return answer;
    const bool stays = server_of(answer.elsewhere) == server_of(url);
    if (!stays && !request.follows_elsewhere) return answer;
    if (redirects == kMostRedirects) {
      answer.fault = WebAnswer::Fault::kNoAnswer;
      answer.message = "more than " + std::to_string(kMostRedirects) + " redirects";
      return answer;
    }
    url = answer.elsewhere;
  }
}

}  // namespace

std::string server_of(const std::string& url) {
  const auto scheme = url.find("://");
  return lower_ascii(url.substr(0, url.find_first_of("/?#", scheme == std::string::npos ? 0 : scheme + 3)));
}

WebAnswer send(const WebRequest& request) {
  for (int attempt = 0;; ++attempt) {
    WebAnswer answer = send_once(request);
    const auto pause = attempt < request.retries ? pause_before(answer, attempt) : std::nullopt;
    if (!pause) return answer;
    std::this_thread::sleep_for(*pause);
  }
}

}  // namespace trainrun
