#include "runner/loggers/mlflow.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "runner/base/secrets.h"
#include "runner/base/text.h"
#include "runner/loggers/mlflow_outbox.h"
#include "runner/loggers/mlflow_sender.h"
#include "runner/recipe/yaml.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience(10);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int64_t milliseconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool is_http(const std::string& uri) { return uri.starts_with("http://") || uri.starts_with("https://"); }

/// The recipe's values by their paths: {"model.layers.0.type", "Linear"}. MLflow allows no brackets in a name.
void add_params(const Value& value, const std::string& path, MlflowTexts& params) {
  for (const Value::Entry& entry : value.entries()) {
    add_params(entry.value, path.empty() ? entry.key : path + "." + entry.key, params);
  }
  for (size_t i = 0; i < value.items().size(); ++i) {
    add_params(value.items()[i], path + "." + std::to_string(i), params);
  }
  if (!value.entries().empty() || !value.items().empty()) return;
  params.emplace_back(path, value.is_list() ? "[]" : value.is_map() ? "{}" : value.is_scalar() ? value.text() : "null");
}

/// As MLflow takes them. What is cut or renamed is counted in `cut`.
MlflowTexts params_of(const std::string& recipe, int64_t& cut) {
  std::vector<Problem> problems;
  MlflowTexts params;
  add_params(parse_yaml(recipe, std::make_shared<const std::string>("recipe.yaml"), problems), "", params);
  for (auto& [key, value] : params) {
    value = without_secrets(value);
    const std::string allowed = mlflow_key(key);
    const bool is_whole = allowed == key && value.size() <= MlflowClient::kLongestParam;
    if (is_whole) continue;
    ++cut;
    key = allowed;
    size_t size = std::min(value.size(), MlflowClient::kLongestParam);
    while (size > 0 && size < value.size() && (static_cast<unsigned char>(value[size]) & 0xC0) == 0x80) --size;
    value.resize(size);
  }
  return params;
}

/// The server that the recipe or the environment names, and who asks it.
MlflowServer server_at(std::string uri) {
  MlflowServer server;
  while (uri.ends_with('/')) uri.pop_back();
  const auto host = uri.find("://") + 3;
  const auto at = uri.substr(0, uri.find('/', host)).rfind('@');
  if (at != std::string::npos && at > host) {  // http://user:password@host
    server.login = uri.substr(host, at - host);
    hide_secret(server.login, "…");
    uri.erase(host, at + 1 - host);
  }
  server.uri = uri;
  server.token = variable("MLFLOW_TRACKING_TOKEN");
  hide_secret(server.token, "${env:MLFLOW_TRACKING_TOKEN}");
  const std::string password = variable("MLFLOW_TRACKING_PASSWORD");
  hide_secret(password, "${env:MLFLOW_TRACKING_PASSWORD}");
  const std::string user = variable("MLFLOW_TRACKING_USERNAME");
  if (server.login.empty() && !user.empty()) server.login = user + ":" + password;
  return server;
}

struct MlflowOptions {
  MlflowServer server;
  std::string experiment;
  std::string run_name;  // "": the recipe's name
  bool log_model = false;
};

class MlflowLogger : public Logger {
 public:
  MlflowLogger(MlflowOptions options, std::string output_dir)
      : options_(std::move(options)),
        output_dir_(std::move(output_dir)),
        outbox_(std::make_shared<MlflowOutbox>(output_dir_ + "/mlflow")) {}

  /// What a checkpoint was saved after is in the outbox when the checkpoint is there; another thread sends it.
  bool is_told_at_once() const override { return true; }

  void on_start(const RunInfo& info) override {
    outbox_->keep_until(info.start_step, info.evaluation_due);
    MlflowPlan plan;
    plan.server = options_.server;
    plan.experiment = options_.experiment;
    plan.run_name = options_.run_name.empty() ? info.name : options_.run_name;
    int64_t cut = 0;
    plan.params = params_of(info.recipe, cut);
    if (cut > 0) {
      spdlog::warn(
          "mlflow: {} of the recipe's {} parameters are cut, or have other names, since MLflow does not take them "
          "as they are; the artifact recipe.yaml is whole",
          grouped(cut), grouped(static_cast<int64_t>(plan.params.size())));
    }
    plan.tags = tags_of(info);
    plan.first_artifacts = {{"recipe.yaml", output_dir_ + "/recipe.yaml"}};
    sender_ = std::make_unique<MlflowSender>(std::move(plan), outbox_, output_dir_ + "/mlflow");
  }

  void on_progress(int64_t, double) override { say_what_happened(); }
  void on_step(const StepRecord& record) override {
    add({false, record.step, milliseconds_since_1970(), record.figures()});
  }
  void on_evaluation(const EvaluationRecord& record) override {
    add({true, record.step, milliseconds_since_1970(), record.metrics});
  }

  void on_end(const EndRecord& record) override {
    if (!sender_) return;
    const bool has_failed = record.reason.starts_with("error");
    MlflowEnd end = {record.reason.empty() ? "FINISHED" : has_failed ? "FAILED" : "KILLED", {}};
    for (const char* file : {"log.txt", "summary.json"}) end.artifacts.emplace_back(file, output_dir_ + "/" + file);
    if (options_.log_model) end.artifacts.emplace_back("model.safetensors", newest_model());
    const bool is_sent = sender_->finish(std::move(end), kPatience);
    say_what_happened();
    if (is_sent) return;
    const std::string when = record.reason.empty() ? "" : "; a resumed run sends them";
    if (const auto steps = outbox_->steps()) {
      return spdlog::warn("mlflow: {} lines, of the steps {} to {}, were not sent, and are kept in {}{}",
                          grouped(outbox_->size()), steps->first, steps->second, output_dir_ + "/mlflow", when);
    }
    spdlog::warn(
        "mlflow: every figure was sent, but the server was not told how the run ended, and may lack its last "
        "artifacts");
  }

 private:
  static MlflowTexts tags_of(const RunInfo& info) {
    const std::string user = variable("USER");
    return {{"mlflow.user", user.empty() ? std::to_string(::getuid()) : user},
            {"mlflow.source.name", "trainrun"},
            {"mlflow.source.type", "LOCAL"},
            {"trainrun.version", TRAINRUN_VERSION},
            {"trainrun.output_dir", info.output_dir},
            {"trainrun.device", info.device},
            {"trainrun.num_parameters", std::to_string(info.num_parameters)}};
  }

  /// Of the best checkpoint, or else of the newest.
  std::string newest_model() const {
    const std::string best = output_dir_ + "/checkpoints/best/model.safetensors";
    return fs::exists(best) ? best : output_dir_ + "/checkpoints/latest/model.safetensors";
  }

  void add(const MlflowLine& line) {
    say_what_happened();
    outbox_->add(line);
    if (sender_) sender_->wake();
  }

  void say_what_happened() {
    if (!sender_) return;
    for (const MlflowSender::Saying& saying : sender_->take_sayings()) {
      if (saying.is_warning) {
        spdlog::warn("mlflow: {}", saying.text);
      } else {
        spdlog::info("mlflow: {}", saying.text);
      }
    }
  }

  MlflowOptions options_;
  std::string output_dir_;
  std::shared_ptr<MlflowOutbox> outbox_;
  std::unique_ptr<MlflowSender> sender_;  // from on_start on
};

struct Mlflow {
  std::optional<std::string> tracking_uri;
  std::optional<std::string> experiment;
  std::optional<std::string> run_name;
  bool log_model = false;

  static void describe(Fields<Mlflow>& f) {
    f.optional("tracking_uri", &Mlflow::tracking_uri)
        .doc("the server, http://… or https://…; null: the value of MLFLOW_TRACKING_URI");
    f.optional("experiment", &Mlflow::experiment)
        .doc(
            "the name of its experiment, which is created if it does not exist; null: MLFLOW_EXPERIMENT_NAME, or else "
            "Default");
    f.optional("run_name", &Mlflow::run_name).doc("the run's name; null: the recipe's name");
    f.optional("log_model", &Mlflow::log_model)
        .doc(
            "whether model.safetensors of the best checkpoint, or else of the last, is sent as an artifact at the end");
  }

  void check(Checker& checker) const {
    if (!tracking_uri || is_http(*tracking_uri)) return;
    checker.fail("tracking_uri", "must be a server's, http://… or https://…, and is \"" + *tracking_uri +
                                     "\"; `mlflow server` starts one over a folder or a database");
  }

  std::unique_ptr<Logger> build(const LoggerInputs& inputs) const {
    MlflowOptions options;
    const std::string uri = tracking_uri.value_or(variable("MLFLOW_TRACKING_URI"));
    if (uri.empty()) throw Error("no server: write tracking_uri, or set MLFLOW_TRACKING_URI");
    if (!is_http(uri))
      throw Error("MLFLOW_TRACKING_URI must be a server's, http://… or https://…, and is \"" + uri + "\"");
    options.server = server_at(uri);
    const std::string named = variable("MLFLOW_EXPERIMENT_NAME");
    options.experiment = experiment.value_or(named.empty() ? "Default" : named);
    options.run_name = run_name.value_or("");
    options.log_model = log_model;
    return std::make_unique<MlflowLogger>(std::move(options), inputs.output_dir);
  }
};

}  // namespace

void add_mlflow(LoggerRegistry& loggers) {
  loggers.add<Mlflow>("mlflow",
                      "figures, parameters and artifacts, for an MLflow server; a resumed run is one run there");
}

}  // namespace trainrun
