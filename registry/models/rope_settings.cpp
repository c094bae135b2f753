#include "registry/models/rope_settings.h"

#include <cmath>

#include "registry/formats/files/settings_file.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr double kDefaultTheta = 10000;

/// A number above 0 under `key` of the mapping `scaling`, which is the file's under `name`.
double rope_number(const ModelConfig& config, const std::string& name, const json& scaling, const char* key,
                   const std::optional<double>& fallback = std::nullopt) {
  const json value = scaling.value(key, json());
  if (value.is_null() && fallback) return *fallback;
  if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > 1e15) {
    config.fail(name + "." + key,
                "expected a number above 0, found " + (value.is_null() ? "nothing" : shown_json(value)));
  }
  return value.get<double>();
}

double log_factor(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

/// YaRN's own settings, as RotaryEmbedding and as transformers has them.
void read_yarn(const ModelConfig& config, const std::string& name, const json& scaling, json& rotary, json& written) {
  for (const auto& [key, fallback] : {std::pair("beta_fast", 32.0), {"beta_slow", 1.0}}) {
    rotary[key] = written[key] = rope_number(config, name, scaling, key, fallback);
  }
  if (rotary["beta_fast"] < rotary["beta_slow"]) config.fail(name + ".beta_fast", "must be at least beta_slow");
  if (rotary["base"] <= 1.0) config.fail("rope_theta", "must be greater than 1 for yarn");
  const json truncate = scaling.value("truncate", json(true));
  if (!truncate.is_boolean()) config.fail(name + ".truncate", "expected true or false, found " + shown_json(truncate));
  rotary["truncate"] = written["truncate"] = truncate;
  const auto given = [&](const char* key) { return scaling.contains(key) && !scaling[key].is_null(); };
  if (given("attention_factor")) {
    rotary["attention_factor"] = rope_number(config, name, scaling, "attention_factor");
  } else if (given("mscale") && given("mscale_all_dim")) {
    const double factor = rotary["factor"];
    rotary["attention_factor"] = log_factor(factor, rope_number(config, name, scaling, "mscale")) /
                                 log_factor(factor, rope_number(config, name, scaling, "mscale_all_dim"));
  }
  if (rotary.contains("attention_factor")) written["attention_factor"] = rotary["attention_factor"];
}

}  // namespace

json rope_settings(ModelConfig& config, const std::optional<double>& own_theta, int64_t head_dim, int64_t longest) {
  config.know({"rope_scaling", "rope_theta"});  // both spellings may be there
  const json parameters = config.in_file("rope_parameters");
  const std::string name = parameters.is_null() ? "rope_scaling" : "rope_parameters";
  json scaling = config.in_file(name);
  if (scaling.is_null()) scaling = json::object();
  if (!scaling.is_object()) config.fail(name, "expected a mapping");
  for (const auto& [key, value] : scaling.items()) {
    if (value.is_structured()) config.fail(name + "." + key, "rotary positions that differ by layer are not available");
  }
  double theta = kDefaultTheta;
  if (own_theta) {
    theta = *own_theta;
  } else if (scaling.contains("rope_theta")) {
    theta = rope_number(config, name, scaling, "rope_theta");
  } else {
    theta = config.number("rope_theta", std::nullopt, kDefaultTheta);
  }
  if (theta <= 0) config.fail("rope_theta", "must be above 0");
  for (const json& partial :
       {config.in_file("partial_rotary_factor"), scaling.value("partial_rotary_factor", json())}) {
    if (!partial.is_null() && partial != 1.0) config.fail("partial_rotary_factor", "only 1 is available");
  }
  const json type = scaling.value("rope_type", scaling.value("type", json("default")));
  json rotary = {{"head_dim", head_dim}, {"base", theta}};
  json written = {{"rope_type", type}, {"rope_theta", theta}};
  if (type == "linear" || type == "llama3" || type == "yarn") {
    rotary["scaling"] = type;
    rotary["factor"] = written["factor"] = rope_number(config, name, scaling, "factor");
    if (rotary["factor"] < 1.0) config.fail(name + ".factor", "must be at least 1");
  } else if (type != "default") {
    config.fail(name + ".rope_type", "is " + shown_json(type) + "; available: default, linear, llama3, yarn");
  }
  if (type == "llama3") {
    const double low = rope_number(config, name, scaling, "low_freq_factor");
    const double high = rope_number(config, name, scaling, "high_freq_factor");
    if (high <= low) config.fail(name + ".high_freq_factor", "must be greater than low_freq_factor");
    rotary["low_freq_factor"] = written["low_freq_factor"] = low;
    rotary["high_freq_factor"] = written["high_freq_factor"] = high;
  }
  if (type == "yarn") read_yarn(config, name, scaling, rotary, written);
  if (type == "llama3" || type == "yarn") {
    const double original =
        rope_number(config, name, scaling, "original_max_position_embeddings", static_cast<double>(longest));
    rotary["original_max_position_embeddings"] = static_cast<int64_t>(original);
    written["original_max_position_embeddings"] = static_cast<int64_t>(original);
  }
  // Both spellings, for transformers 4 and 5.
  config.set("rope_theta", theta);
  config.set("rope_parameters", written);
  config.set("rope_scaling", type == "default" ? json() : written);
  return rotary;
}

}  // namespace trainrun
