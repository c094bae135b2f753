#include "runner/loggers/mlflow_client.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "registry/formats/web/transfer.h"
#include "registry/language/text_view.h"
#include "runner/base/ascii_name.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr int64_t kConnectSeconds = 5;
constexpr int64_t kStallSeconds = 30;
constexpr const char* kProxied = "mlflow-artifacts:";

/// What a server says of its fault: {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "…"}.
struct Said {
  std::string code;
  std::string message;
};

Said said_in(const std::string& text) {
  const json body = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) return {};
  const auto member = [&](const char* key) {
    const auto found = body.find(key);
    return found != body.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  return {member("error_code"), member("message")};
}

MlflowError error_of(const std::string& what, const WebAnswer& answer) {
  constexpr size_t kMostOfMessage = 300;
  constexpr long kFirstOfClient = 400;
  constexpr long kFirstOfServer = 500;
  const bool may_pass = answer.status == 401 || answer.status == 403 || answer.status == 408 || answer.status == 429;
  const Said said = said_in(answer.error_text);
  std::string text = what + ": " + answer.message;
  if (answer.status == 401) text += "; give MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD";
  if (!said.message.empty()) text += ": " + said.message.substr(0, kMostOfMessage);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return {text, said.code, answer.status >= kFirstOfClient && answer.status < kFirstOfServer && !may_pass,
          answer.status != 0};
}

/// JSON has no such numbers; the server reads these texts for them.
json number_json(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number;
}

json pairs_json(const MlflowTexts& texts) {
  json list = json::array();
  for (const auto& [key, value] : texts) list.push_back({{"key", key}, {"value", value}});
  return list;
}

}  // namespace

std::string mlflow_key(const std::string& name) {
  return ascii_name(name, "_-. /", '_').substr(0, MlflowClient::kLongestKey);
}

std::string url_encoded(const std::string& text, bool keeps_slashes) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool stays = (byte < 0x80 && std::isalnum(byte)) || c == '-' || c == '.' || c == '_' || c == '~';
    if (stays || (keeps_slashes && c == '/')) {
      encoded += c;
    } else {
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return encoded;
}

MlflowClient::MlflowClient(MlflowServer server, std::function<void()> on_progress)
    : server_(std::move(server)), on_progress_(std::move(on_progress)) {}

json MlflowClient::ask(const std::string& method, const std::string& endpoint, const json& body) const {
  WebRequest request;
  request.url = server_.uri + "/api/2.0/mlflow/" + endpoint;
  request.token = server_.token;
  request.login = server_.login;
  request.connect_seconds = kConnectSeconds;
  request.stall_seconds = kStallSeconds;
  request.keeps_error_text = true;
  if (method == "POST") {
    request.method = method;
    request.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
    request.content_type = "application/json";
  }
  std::string text;
  request.on_data = [&](const char* data, size_t size) {
    text.append(data, size);
    return true;
  };
  const WebAnswer answer = send(request);
  if (answer.fault != WebAnswer::Fault::kNone) throw error_of(endpoint.substr(0, endpoint.find('?')), answer);
  on_progress_();
  json result = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (result.is_discarded()) {
    throw MlflowError(request.url + " answers with what is not JSON: is this an MLflow server?", "", false);
  }
  return result;
}

std::string MlflowClient::experiment(const std::string& name) const {
  const auto find = [&] {
    const json found = ask("GET", "experiments/get-by-name?experiment_name=" + url_encoded(name), {});
    const json experiment = found.value("experiment", json::object());
    if (experiment.value("lifecycle_stage", "active") != "active") {
      throw MlflowError("the experiment \"" + name + "\" was deleted at the server: restore it, or name another", "",
                        true);
    }
    return experiment.value("experiment_id", std::string());
  };
  try {
    return find();
  } catch (const MlflowError& error) {
    if (error.code() != "RESOURCE_DOES_NOT_EXIST") throw;
  }
  try {
    return ask("POST", "experiments/create", {{"name", name}}).value("experiment_id", std::string());
  } catch (const MlflowError& error) {
    if (error.code() != "RESOURCE_ALREADY_EXISTS") throw;
    return find();  // another run has made it meanwhile
  }
}

MlflowRun MlflowClient::create_run(const std::string& experiment_id, const std::string& name, int64_t start_time,
                                   const MlflowTexts& tags) const {
  const json made = ask(
      "POST", "runs/create",
      {{"experiment_id", experiment_id}, {"run_name", name}, {"start_time", start_time}, {"tags", pairs_json(tags)}});
  const json info = made.value("run", json::object()).value("info", json::object());
  const MlflowRun run = {experiment_id, info.value("run_id", std::string()), info.value("artifact_uri", std::string())};
  if (run.run_id.empty()) throw MlflowError(server_.uri + " made a run without a run_id", "", false);
  return run;
}

void MlflowClient::set_status(const std::string& run_id, const std::string& status, int64_t end_time) const {
  json body = {{"run_id", run_id}, {"status", status}};
  if (end_time > 0) body["end_time"] = end_time;
  ask("POST", "runs/update", body);
}

void MlflowClient::log_params(const std::string& run_id, const MlflowTexts& params) const {
  for (size_t i = 0; i < params.size(); i += kMostParams) {
    const auto first = params.begin() + static_cast<std::ptrdiff_t>(i);
    const auto last = first + static_cast<std::ptrdiff_t>(std::min(kMostParams, params.size() - i));
    ask("POST", "runs/log-batch", {{"run_id", run_id}, {"params", pairs_json({first, last})}});
  }
}

void MlflowClient::log_metrics(const std::string& run_id, const std::vector<MlflowMetric>& metrics) const {
  json list = json::array();
  for (const MlflowMetric& metric : metrics) {
    list.push_back({{"key", metric.key},
                    {"value", number_json(metric.value)},
                    {"step", metric.step},
                    {"timestamp", metric.timestamp}});
  }
  ask("POST", "runs/log-batch", {{"run_id", run_id}, {"metrics", list}});
}

bool MlflowClient::takes_artifacts(const MlflowRun& run) { return run.artifact_uri.starts_with(kProxied); }

void MlflowClient::put_artifact(const MlflowRun& run, const std::string& name, const std::string& path) const {
  // "mlflow-artifacts:/0/RUN/artifacts", or with the server's name, "mlflow-artifacts://host:port/0/RUN/artifacts"
  std::string folder = run.artifact_uri.substr(std::string_view(kProxied).size());
  if (folder.starts_with("//")) {
    const auto slash = folder.find('/', 2);
    folder = slash == std::string::npos ? "" : folder.substr(slash);
  }
  folder.erase(0, folder.find_first_not_of('/'));
  WebRequest request;
  request.url =
      server_.uri + "/api/2.0/mlflow-artifacts/artifacts/" + url_encoded(folder + "/" + name, /*keeps_slashes=*/true);
  request.token = server_.token;
  request.login = server_.login;
  request.connect_seconds = kConnectSeconds;
  request.stall_seconds = kStallSeconds;
  request.keeps_error_text = true;
  request.method = "PUT";
  request.body_path = path;
  request.content_type = "application/octet-stream";
  request.on_progress = [this, last = int64_t{-1}](int64_t done, int64_t) mutable {
    if (std::exchange(last, done) != done) on_progress_();
  };
  const WebAnswer answer = send(request);
  if (answer.fault != WebAnswer::Fault::kNone) throw error_of("the artifact " + name, answer);
  on_progress_();
}

std::string MlflowClient::page_of(const MlflowRun& run) const {
  return server_.uri + "/#/experiments/" + run.experiment_id + "/runs/" + run.run_id;
}

}  // namespace trainrun
