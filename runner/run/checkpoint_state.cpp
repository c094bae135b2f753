#include "runner/run/checkpoint_state.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "registry/formats/files/json_depth.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kFloat = "$float";
constexpr std::string_view kBeforeDigest = "{\n  \"digest\": \"";
constexpr std::string_view kAfterDigest = "\",\n";
constexpr std::string_view kBodyStart = "{\n";  // what the lines after the digest begin with, taken by themselves
constexpr size_t kDigestDigits = 64;

/// Replaces numbers that JSON lacks by what `restore_floats` knows.
void name_floats(json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    value = {{kFloat, std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
  } else if (value.is_structured()) {
    for (json& item : value) name_floats(item);
  }
}

void restore_floats(json& value) {
  if (value.is_object() && value.size() == 1 && value.contains(kFloat)) {
    const auto name = value[kFloat].get<std::string>();
    const double infinity = std::numeric_limits<double>::infinity();
    value = name == "nan" ? std::numeric_limits<double>::quiet_NaN() : name == "inf" ? infinity : -infinity;
  } else if (value.is_structured()) {
    for (json& item : value) restore_floats(item);
  }
}

/// Throws NewerFormatError where `whole` says that it is of a format to come.
void refuse_newer(const json& whole) {
  const auto format = whole.find("format");
  if (format == whole.end() || !format->is_number_integer() || format->get<int64_t>() <= kFormat) return;
  const json versions = whole.value("versions", json::object());
  const auto by = versions.is_object() ? versions.find("trainrun") : versions.end();
  const bool named = versions.is_object() && by != versions.end() && by->is_string();
  throw NewerFormatError("state.json has format " + std::to_string(format->get<int64_t>()) +
                         (named ? ", written by trainrun " + by->get<std::string>() : std::string()) +
                         "; this is trainrun " TRAINRUN_VERSION ", which knows formats up to " +
                         std::to_string(kFormat) + "; use a newer trainrun");
}

CheckpointState from_json(json whole) {
  refuse_newer(whole);
  if (whole.at("format").get<int64_t>() < 1) throw DataError("state.json has a format below 1");
  CheckpointState state;
  state.is_best = whole.at("is_best").get<bool>();
  for (const auto& [name, digest] : whole.at("files").items()) {
    state.files[name] = {digest.at("sha256").get<std::string>(), digest.at("bytes").get<int64_t>()};
  }
  for (const char* own : {"format", "files", "is_best"}) whole.erase(own);
  restore_floats(whole);
  state.content = std::move(whole);
  if (!state.content.at("step").is_number_integer() || state.step() < 0) {
    throw DataError("state.json is not the state of a checkpoint: its step is not a number >= 0");
  }
  return state;
}

}  // namespace

std::string plain_message(const json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.starts_with("[json.exception") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

int64_t CheckpointState::step() const { return content.at("step").get<int64_t>(); }

std::string to_text(const CheckpointState& state) {
  json whole = state.content;
  if (!whole.is_object() || !whole.contains("step") || !whole["step"].is_number_integer()) {
    throw Error("the state of a checkpoint needs an integer 'step'");
  }
  for (const char* own : {"digest", "format", "files", "is_best"}) {
    if (whole.contains(own)) throw Error(std::string("the state of a checkpoint may not have a key '") + own + "'");
  }
  name_floats(whole);
  whole["format"] = kFormat;
  whole["is_best"] = state.is_best;
  whole["files"] = json::object();
  for (const auto& [name, digest] : state.files) {
    whole["files"][name] = {{"sha256", digest.sha256}, {"bytes", digest.bytes}};
  }
  std::string body;
  try {
    body = whole.dump(2) + "\n";
  } catch (const json::exception& error) {
    throw Error(std::string("the state of a checkpoint cannot be written: ") + error.what());
  }
  std::string text(kBeforeDigest);
  text += sha256(body);
  text += kAfterDigest;
  return text + body.substr(kBodyStart.size());
}

CheckpointState parse_checkpoint_state(const std::string& text) {
  const size_t body_start = kBeforeDigest.size() + kDigestDigits + kAfterDigest.size();
  const std::string_view view = text;
  constexpr int kDeepest = 100;
  check_json_depth(text, kDeepest, "state.json");
  const bool begins_right =
      view.size() > body_start && view.starts_with(kBeforeDigest) && view.substr(0, body_start).ends_with(kAfterDigest);
  if (!begins_right) {
    refuse_newer(json::parse(text, nullptr, /*allow_exceptions=*/false));  // it may begin otherwise some day
    throw DataError("state.json is damaged: it does not begin with its digest");
  }
  const std::string_view expected = view.substr(kBeforeDigest.size(), kDigestDigits);
  const std::string body = std::string(kBodyStart) + text.substr(body_start);
  const std::string found = sha256(body);
  if (found != expected) {
    throw DataError("state.json is damaged: expected SHA-256 " + std::string(expected) + ", found " + found);
  }
  try {
    return from_json(json::parse(body));
  } catch (const json::exception& error) {
    throw DataError("state.json is not the state of a checkpoint: " + plain_message(error));
  }
}

}  // namespace trainrun
