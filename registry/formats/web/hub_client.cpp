#include "registry/formats/web/hub_client.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/file_lock.h"
#include "registry/formats/web/digests.h"
#include "registry/formats/web/download.h"
#include "registry/formats/web/network.h"
#include "registry/formats/web/transfer.h"
#include "registry/language/error.h"
#include "registry/language/hex.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr long kUnauthorized = 401;
constexpr long kForbidden = 403;
constexpr long kNotFound = 404;
constexpr long kTooMany = 429;
constexpr long kFirstServerError = 500;
constexpr size_t kMostListingBytes = 64 << 20;
constexpr int kRetries = 3;  // where the hub has no time, or a fault of its own

std::string header(const WebAnswer& answer, const char* name) {
  const auto found = answer.headers.find(name);
  return found == answer.headers.end() ? "" : found->second;
}

/// One sentence on a request that failed. `what`: "bert-base-cased: config.json".
std::string sentence(const HubName& name, const std::string& what, const WebAnswer& answer) {
  const std::string kind = name.kind == HubKind::kModel ? "model" : "data set";
  const std::string has_token =
      hub_token().empty() ? "set HF_TOKEN to a token that may read it" : "the token in use may not read it";
  const std::string code = header(answer, "x-error-code");
  if (answer.fault == WebAnswer::Fault::kNoAnswer) {
    return what + ": cannot be fetched from " + hub_endpoint() + ": " + answer.message +
           "; check the network or HF_ENDPOINT, or name a folder";
  }
  if (answer.status == kUnauthorized) {
    return what + ": " + hub_endpoint() + " answers 401: there is no " + kind + " " + name.id +
           ", or it is private; check the name, or " + has_token;
  }
  if (answer.status == kForbidden) {
    return what + ": " + hub_endpoint() + " answers 403: access is restricted; ask for it at " + hub_page(name) +
           ", and " + (hub_token().empty() ? has_token : "use the token of the account that has it (HF_TOKEN)");
  }
  if (answer.status == kNotFound && (code == "RevisionNotFound" || name.revision != "main")) {
    return what + ": " + hub_endpoint() + " answers 404: there is no revision " + name.revision + " of " + name.id +
           ", or no such " + kind + "; see " + hub_page(name) + "/tree/main for those there are";
  }
  if (answer.status == kNotFound) {
    return what + ": " + hub_endpoint() + " answers 404: there is no " + kind + " " + name.id +
           "; check the name, or name a folder (./" + name.id + ")";
  }
  if (answer.status == kTooMany) {
    const std::string wait = header(answer, "retry-after");
    return what + ": " + hub_endpoint() + " answers 429: too many requests; try again " +
           (wait.empty() ? "later" : "in " + wait + " s") + (hub_token().empty() ? ", or set HF_TOKEN" : "");
  }
  if (answer.status >= kFirstServerError) {
    return what + ": " + hub_endpoint() + " answers " + std::to_string(answer.status) +
           ": the server has a fault of its own; try again later";
  }
  return what + ": " + hub_endpoint() + " answers " + std::to_string(answer.status) + ": " + answer.message;
}

/// A part of a path, with what a URL must not have in it as %XX.
std::string escaped(const std::string& text, bool keeps_slashes) {
  std::string result;
  for (const char letter : text) {
    const auto c = static_cast<unsigned char>(letter);
    const bool is_plain =
        std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && keeps_slashes);
    if (is_plain) {
      result += letter;
    } else {
      result += '%' + hex_number(c, 2, HexCase::kUpper);
    }
  }
  return result;
}

/// What the hub says of a file before it is fetched.
struct HubFile {
  std::string etag;
  std::optional<int64_t> size;  // bytes
};

HubFile ask_about(const HubName& name, const std::string& url, const std::string& what) {
  WebRequest request;
  request.url = url;
  request.head = true;
  request.follows_elsewhere = false;  // the answer of the hub itself says what the file is
  request.token = hub_token();
  request.retries = kRetries;
  const WebAnswer answer = send(request);
  if (answer.fault != WebAnswer::Fault::kNone) throw DataError(sentence(name, what, answer));
  const bool is_linked = !header(answer, "x-linked-etag").empty();
  std::string etag = header(answer, is_linked ? "x-linked-etag" : "etag");
  if (etag.starts_with("W/")) etag.erase(0, 2);
  std::erase(etag, '"');
  const bool is_name = !etag.empty() && etag.front() != '.' && std::ranges::all_of(etag, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.';
  });
  if (!is_name || header(answer, "x-repo-commit").empty()) {
    throw DataError(what + ": " + hub_endpoint() +
                    " does not answer as Hugging Face's hub does: it names no ETag or commit; check HF_ENDPOINT");
  }
  HubFile file{etag, std::nullopt};
  const std::string size = header(answer, is_linked ? "x-linked-size" : "content-length");
  if (!size.empty() && size.size() < 19 && std::ranges::all_of(size, [](unsigned char c) { return std::isdigit(c); }))
    file.size = std::stoll(size);
  return file;
}

void verify(const HubFile& file, const std::string& path) {
  constexpr size_t kSha256Digits = 64;
  constexpr size_t kSha1Digits = 40;
  const auto size = static_cast<int64_t>(fs::file_size(path));
  if (file.size && size != *file.size) {
    throw DataError("it is " + std::to_string(size) + " bytes long, but should be " + std::to_string(*file.size));
  }
  const bool is_hex = std::ranges::all_of(file.etag, [](unsigned char c) { return std::isxdigit(c); });
  std::string found = file.etag;
  if (is_hex && file.etag.size() == kSha256Digits) found = digest_file(path).sha256;
  if (is_hex && file.etag.size() == kSha1Digits) found = git_blob_sha1(path);
  if (found != file.etag) throw DataError("its content is damaged: its digest is " + found + ", not " + file.etag);
}

/// How the cache keeps the listing, as huggingface_hub's _tree_cache.py writes it. "" where a size or digest is not said.
std::string tree_of(const json& siblings) {
  json files = json::object();
  for (const json& sibling : siblings) {
    const bool is_whole = sibling.is_object() && sibling.value("rfilename", json()).is_string() &&
                          sibling.value("size", json()).is_number_integer() &&
                          sibling.value("blobId", json()).is_string();
    if (!is_whole) return "";
    json file = {{"size", sibling["size"]}, {"blob_id", sibling["blobId"]}};
    const json large = sibling.value("lfs", json());
    if (large.is_object() && large.contains("sha256") && large.contains("size")) {
      file["lfs_sha256"] = large["sha256"];
      file["lfs_size"] = large["size"];
    }
    if (sibling.value("xetHash", json()).is_string()) file["xet_hash"] = sibling["xetHash"];
    files[sibling["rfilename"].get<std::string>()] = file;
  }
  return json{{"format_version", 1}, {"files", files}}.dump(1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

bool is_repository_path(const std::string& file) {
  const fs::path path(file);
  return !file.empty() && path.is_relative() && file.find('\\') == std::string::npos &&
         std::ranges::none_of(path, [](const fs::path& part) { return part == ".." || part == "." || part.empty(); });
}

bool HubListing::has(const std::string& file) const { return std::ranges::find(files, file) != files.end(); }

HubListing list_hub_files(const HubName& name) {
  WebRequest request;
  const bool is_model = name.kind == HubKind::kModel;
  request.url = hub_endpoint() + (is_model ? "/api/models/" : "/api/datasets/") + name.id + "/revision/" +
                escaped(name.revision, /*keeps_slashes=*/false) + (is_model ? "" : "?blobs=true");
  request.token = hub_token();
  request.retries = kRetries;
  std::string body;
  request.on_data = [&](const char* data, size_t size) {
    body.append(data, size);
    return body.size() <= kMostListingBytes;
  };
  const WebAnswer answer = send(request);
  if (answer.fault != WebAnswer::Fault::kNone) throw DataError(sentence(name, name.text(), answer));
  const json content = json::parse(body, nullptr, /*allow_exceptions=*/false);
  HubListing listing;
  if (content.is_object()) listing.commit = content.value("sha", json()).is_string() ? content["sha"] : "";
  if (!is_commit(listing.commit) || !content.value("siblings", json()).is_array()) {
    throw DataError(name.text() + ": " + hub_endpoint() +
                    " does not answer as Hugging Face's hub does; check HF_ENDPOINT");
  }
  for (const json& sibling : content["siblings"]) {
    const json file = sibling.is_object() ? sibling.value("rfilename", json()) : json();
    if (file.is_string() && is_repository_path(file.get<std::string>()))
      listing.files.push_back(file.get<std::string>());
  }
  if (!is_model) listing.tree = tree_of(content["siblings"]);
  return listing;
}

void fetch_hub_file(const HubName& name, const HubCache& cache, const HubListing& listing, const std::string& file) {
  std::error_code not_there;
  if (fs::exists(fs::path(cache.snapshot(listing.commit)) / file, not_there)) return;
  if (!is_repository_path(file))
    throw DataError(name.text() + ": " + file + " is not a name that a file of a repository can have");
  const std::string what = name.text() + ": " + file;
  const std::string url = hub_page(name) + "/resolve/" + listing.commit + "/" + escaped(file, /*keeps_slashes=*/true);
  const HubFile found = ask_about(name, url, what);
  create_folders(fs::path(cache.blob(found.etag)).parent_path().string());
  create_folders(fs::path(cache.lock(found.etag)).parent_path().string());
  const FileLock lock(cache.lock(found.etag));
  Download job;
  job.urls = {url};
  job.destination = cache.blob(found.etag);
  job.part = job.destination + ".incomplete";
  job.token = hub_token();
  job.retries = kRetries;
  job.verify = [&](const std::string& path) { verify(found, path); };
  try {
    download(job, {file, name.text(), 0, found.size.value_or(0)});
  } catch (const DataError& error) {
    throw DataError(what + ": cannot be fetched; what came so far is kept, and the next attempt goes on from there: " +
                    error.what());
  }
  cache.link(listing.commit, file, found.etag);
}

}  // namespace trainrun
