#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "registry/language/error.h"

namespace trainrun {

/// An MLflow server, and who asks it.
struct MlflowServer {
  std::string uri;    // "http://localhost:5000", without a slash at its end
  std::string token;  // MLFLOW_TRACKING_TOKEN; "" for none
  std::string login;  // "user:password"; "" for none
};

/// A request that failed.
class MlflowError : public Error {
 public:
  /// `code`: MLflow's name of the error, or "". `is_refusal`: it would be refused again. `is_answer`: the server is there.
  MlflowError(const std::string& text, std::string code, bool is_refusal, bool is_answer = true)
      : Error(text), code_(std::move(code)), is_refusal_(is_refusal), is_answer_(is_answer) {}
  const std::string& code() const { return code_; }
  bool is_refusal() const { return is_refusal_; }
  bool is_answer() const { return is_answer_; }

 private:
  std::string code_;
  bool is_refusal_;
  bool is_answer_;
};

/// One figure at one step.
struct MlflowMetric {
  std::string key;
  double value = 0;
  int64_t step = 0;
  int64_t timestamp = 0;  // milliseconds since 1970
};

/// Where a run is at the server.
struct MlflowRun {
  std::string experiment_id;
  std::string run_id;
  std::string artifact_uri;  // "mlflow-artifacts:/0/RUN/artifacts"
};

using MlflowTexts = std::vector<std::pair<std::string, std::string>>;

/// Requests of MLflow's REST interface, version 2.0, as its own client makes them. Every member that asks the server
/// throws MlflowError. Source: https://mlflow.org/docs/latest/rest-api.html
class MlflowClient {
 public:
  static constexpr size_t kMostMetrics = 1000;   // of one request
  static constexpr size_t kMostParams = 100;     // likewise
  static constexpr size_t kLongestParam = 6000;  // characters
  static constexpr size_t kLongestKey = 250;

  /// `on_progress` is called while something is sent.
  MlflowClient(MlflowServer server, std::function<void()> on_progress);

  const MlflowServer& server() const { return server_; }
  /// The number of the experiment, which is made where it is missing.
  std::string experiment(const std::string& name) const;
  MlflowRun create_run(const std::string& experiment_id, const std::string& name, int64_t start_time,
                       const MlflowTexts& tags) const;
  /// `end_time`: 0 while it goes on.
  void set_status(const std::string& run_id, const std::string& status, int64_t end_time) const;
  void log_params(const std::string& run_id, const MlflowTexts& params) const;
  void log_metrics(const std::string& run_id, const std::vector<MlflowMetric>& metrics) const;
  /// Sends a file through the server to where it keeps artifacts. Throws DataError where the file cannot be read.
  void put_artifact(const MlflowRun& run, const std::string& name, const std::string& path) const;
  /// Whether the server passes artifacts on.
  static bool takes_artifacts(const MlflowRun& run);
  /// A page for people.
  std::string page_of(const MlflowRun& run) const;

 private:
  nlohmann::json ask(const std::string& method, const std::string& endpoint, const nlohmann::json& body) const;

  MlflowServer server_;
  std::function<void()> on_progress_;
};

/// A name of which MLflow allows every character: others become '_'.
std::string mlflow_key(const std::string& name);
/// "experiment 1" or "a b" as part of a URL.
std::string url_encoded(const std::string& text, bool keeps_slashes = false);

}  // namespace trainrun
