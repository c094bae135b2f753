#include "runner/train/random_states.h"

#include <ATen/Context.h>

namespace trainrun {

std::vector<at::Device> random_sources(at::Device device) {
  if (device.is_cpu()) return {at::kCPU};
  return {at::kCPU, device};
}

at::Tensor random_state(at::Device source) {
  at::Generator generator = at::globalContext().defaultGenerator(source);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(at::Device source, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(source);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace trainrun
