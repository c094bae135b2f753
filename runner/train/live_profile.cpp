#include "runner/train/live_profile.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <set>
#include <utility>

#include "registry/formats/files/file_io.h"
#include "registry/tensors/component_error.h"

namespace trainrun {
namespace {

using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

}  // namespace

LiveProfile::~LiveProfile() {
  if (is_on()) torch::autograd::profiler::disableProfiler();
}

void LiveProfile::begin(int64_t steps, std::string path, std::function<void(bool, const std::string&)> on_written) {
  const ProfilerConfig config(ProfilerState::KINETO);
  const std::set<ActivityType> activities = {ActivityType::CPU};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(
      config, activities, {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  left_ = steps_ = steps;
  path_ = std::move(path);
  on_written_ = std::move(on_written);
}

void LiveProfile::after_step() {
  if (!is_on() || --left_ > 0) return;
  const auto result = torch::autograd::profiler::disableProfiler();
  const std::string temporary = temporary_path(path_);
  try {
    result->save(temporary);
    rename_path(temporary, path_);
    on_written_(true, std::to_string(steps_) + " steps are in " + path_ + "; open it at https://ui.perfetto.dev");
  } catch (const std::exception& error) {
    on_written_(false, path_ + " could not be written: " + error_text(error));
  }
}

}  // namespace trainrun
