#include "runner/control/run_status.h"

#include <cmath>

#include "registry/language/codec.h"

namespace trainrun {
namespace {

nlohmann::ordered_json number_or_null(double number) {
  return std::isfinite(number) ? nlohmann::ordered_json(number) : nlohmann::ordered_json();
}

nlohmann::ordered_json figures_or_null(const Figures& figures) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [name, value] : figures) object[name] = number_or_null(value);
  return object;
}

/// A label's value, in quotes.
std::string label_text(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string sample_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return detail::number_text(value);
}

/// One metric: its HELP and TYPE, and its samples, one for each set of labels.
class Exposition {
 public:
  explicit Exposition(const RunStatus& status) : run_("run=" + label_text(status.name)) {}

  void begin(const std::string& name, const char* type, const char* help) {
    name_ = "trainrun_" + name;
    text_ += "# HELP " + name_ + " " + help + "\n# TYPE " + name_ + " " + type + "\n";
  }
  void add(double value, const std::string& labels = "") {
    text_ += name_ + "{" + run_ + (labels.empty() ? "" : ",") + labels + "} " + sample_text(value) + "\n";
  }
  void gauge(const std::string& name, const char* help, double value) {
    begin(name, "gauge", help);
    add(value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string run_;
  std::string name_;
  std::string text_;
};

}  // namespace

double RunStatus::seconds_left() const {
  if (steps_per_second <= 0) return -1;
  return static_cast<double>(total_steps - step) / steps_per_second;
}

nlohmann::ordered_json to_json(const RunStatus& status) {
  nlohmann::ordered_json json = {{"name", status.name},
                                 {"output_dir", status.output_dir},
                                 {"state", status.state},
                                 {"pid", status.pid},
                                 {"step", status.step},
                                 {"total_steps", status.total_steps},
                                 {"epoch", status.epoch},
                                 {"saved_step", nullptr},
                                 {"loss", number_or_null(status.loss)},
                                 {"seconds", status.seconds},
                                 {"seconds_left", nullptr},
                                 {"samples_per_second", number_or_null(status.samples_per_second)},
                                 {"steps_per_second", number_or_null(status.steps_per_second)},
                                 {"memory", status.memory},
                                 {"training", figures_or_null(status.training)},
                                 {"evaluation", figures_or_null(status.evaluation)},
                                 {"changes", status.changes}};
  if (status.saved_step >= 0) json["saved_step"] = status.saved_step;
  if (const double left = status.seconds_left(); left >= 0) json["seconds_left"] = left;
  return json;
}

std::string prometheus_text(const RunStatus& status) {
  Exposition all(status);
  all.begin("steps_total", "counter", "Finished optimizer steps of the run, those before a resume included.");
  all.add(static_cast<double>(status.step));
  all.gauge("planned_steps", "Optimizer steps of the whole job.", static_cast<double>(status.total_steps));
  all.gauge("epoch", "The epoch, counted from 0.", static_cast<double>(status.epoch));
  all.gauge("saved_step", "The step of the newest checkpoint of this process, -1 for none.",
            static_cast<double>(status.saved_step));
  all.gauge("loss", "The loss of the newest step.", status.loss);
  all.gauge("samples_per_second", "Samples a second, by the newest line of the log.", status.samples_per_second);
  all.gauge("resident_memory_bytes", "Resident memory of rank 0.", static_cast<double>(status.memory));
  all.begin("figure", "gauge", "Figures of the newest line of the log and of the last evaluation, by their names.");
  for (const Figures* figures : {&status.training, &status.evaluation}) {
    for (const auto& [name, value] : *figures) all.add(value, "figure=" + label_text(name));
  }
  return all.text();
}

}  // namespace trainrun
