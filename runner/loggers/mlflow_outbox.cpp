#include "runner/loggers/mlflow_outbox.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "registry/formats/files/file_io.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t{1} << 32;

/// JSON has no number that is not finite: those are texts.
json figure_json(double figure) {
  if (std::isnan(figure)) return "nan";
  if (std::isinf(figure)) return figure > 0 ? "inf" : "-inf";
  return figure;
}

double figure_from(const json& figure) {
  if (figure.is_number()) return figure.get<double>();
  const std::string text = figure.is_string() ? figure.get<std::string>() : "nan";
  return text == "inf" ? INFINITY : text == "-inf" ? -INFINITY : NAN;
}

std::string outbox_text(const MlflowLine& line) {
  json figures = json::array();
  for (const auto& [name, value] : line.figures) figures.push_back({name, figure_json(value)});
  return json({{"evaluation", line.is_evaluation}, {"step", line.step}, {"time", line.time}, {"figures", figures}})
             .dump(-1, ' ', false, json::error_handler_t::replace) +
         "\n";
}

/// Nothing for what is no whole line.
std::optional<MlflowLine> outbox_line(const std::string& text) {
  try {
    const json object = json::parse(text);
    MlflowLine line;
    line.is_evaluation = object.at("evaluation");
    line.step = object.at("step");
    line.time = object.at("time");
    for (const json& figure : object.at("figures"))
      line.figures.emplace_back(figure.at(0).get<std::string>(), figure_from(figure.at(1)));
    return line;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::vector<MlflowLine> lines_in(const std::string& path) {
  std::vector<MlflowLine> lines;
  if (!std::filesystem::exists(path)) return lines;
  const std::string text = read_file(path, kMostBytes);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (auto line = outbox_line(text.substr(begin, end - begin))) lines.push_back(std::move(*line));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

MlflowOutbox::MlflowOutbox(std::string folder) : folder_(std::move(folder)) { create_folders(folder_); }

void MlflowOutbox::keep_until(int64_t step, bool evaluation_due) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string kept;
  unsent_ = 0;
  for (const MlflowLine& line : lines_in(unsent_path())) {
    const bool comes_again = line.step > step || (evaluation_due && line.is_evaluation && line.step == step);
    if (comes_again) continue;
    kept += outbox_text(line);
    ++unsent_;
  }
  file_.reset();
  write_file_atomically(unsent_path(), kept);
  sending_ = static_cast<int64_t>(lines_in(sending_path()).size());
  was_interrupted_ = sending_ > 0;
}

bool MlflowOutbox::was_interrupted() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return was_interrupted_;
}

void MlflowOutbox::add(const MlflowLine& line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!file_) {
    std::error_code gone;  // with the run's folder, which is there again after the next checkpoint
    std::filesystem::create_directory(folder_, gone);
    file_.emplace(unsent_path());
  }
  if (file_->made_anew()) unsent_ = 0;
  file_->append(outbox_text(line));
  ++unsent_;
}

std::vector<MlflowLine> MlflowOutbox::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (sending_ == 0 && unsent_ > 0 && !std::filesystem::exists(unsent_path())) unsent_ = 0;  // it was removed
  if (sending_ == 0 && unsent_ > 0) {
    rename_path(unsent_path(), sending_path());
    file_.reset();
    sending_ = std::exchange(unsent_, 0);
  }
  if (sending_ == 0) return {};
  std::vector<MlflowLine> lines = lines_in(sending_path());
  sending_ = static_cast<int64_t>(lines.size());
  return lines;
}

void MlflowOutbox::sent() {
  const std::lock_guard<std::mutex> lock(mutex_);
  remove_all(sending_path());
  sending_ = 0;
  was_interrupted_ = false;
}

int64_t MlflowOutbox::size() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return unsent_ + sending_;
}

std::optional<std::pair<int64_t, int64_t>> MlflowOutbox::steps() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<MlflowLine> lines = lines_in(sending_path());
  for (MlflowLine& line : lines_in(unsent_path())) lines.push_back(std::move(line));
  if (lines.empty()) return std::nullopt;
  return std::pair(lines.front().step, lines.back().step);
}

}  // namespace trainrun
