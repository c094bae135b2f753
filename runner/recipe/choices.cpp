#include "runner/recipe/choices.h"

namespace trainrun {
namespace {

constexpr std::array kDeviceWords = {"auto", "cpu", "cuda"};
constexpr int64_t kMostGpus = 100;

}  // namespace

std::string DeviceChoice::text() const {
  return kDeviceWords[static_cast<size_t>(kind)] + (number ? ":" + std::to_string(*number) : "");
}

std::optional<DeviceChoice> DeviceChoice::parse(const std::string& text) {
  for (size_t i = 0; i < kDeviceWords.size(); ++i) {
    if (text == kDeviceWords[i]) return DeviceChoice{static_cast<Kind>(i), std::nullopt};
  }
  for (int64_t number = 0; number < kMostGpus; ++number) {
    const DeviceChoice gpu = {Kind::kCuda, number};
    if (text == gpu.text()) return gpu;
  }
  return std::nullopt;
}

std::optional<DeviceChoice> Codec<DeviceChoice>::read(const Value& value, Reader& reader) {
  const auto text = Codec<std::string>::read(value, reader);
  if (!text) return std::nullopt;
  const auto choice = DeviceChoice::parse(*text);
  if (!choice) {
    reader.error(value.place(), "expected auto, cpu, cuda, or cuda:0 for the first GPU, found '" + *text + "'");
  }
  return choice;
}

}  // namespace trainrun
