#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "runner/model/recipe_loader.h"

namespace trainrun {

/// The seconds that a step spends in one layer, or in several that are fused.
struct LayerTime {
  std::string name;  // in the state dict: "layer1.0.conv2", "1 + 2"
  std::string type;
  double forward = 0;
  double backward = 0;
};

/// Where the time of a training step goes: means over steps, in seconds. The parts are all there is; they add up to
/// `step` but for what measuring itself takes.
struct Profile {
  std::string name;
  std::string path;
  std::string device;
  std::string optimizer;
  int64_t steps = 0;   // that were measured
  double samples = 0;  // of a step
  double faults = 0;   // pages of memory that the process touches in a step for the first time
  double step = 0;     // by a clock that knows of no parts
  std::vector<LayerTime> layers;
  double loss = 0;  // losses, forward and backward, and what else is between the layers' two passes
  double optimizing = 0;
  double data = 0;       // waiting for batches
  double rest = 0;       // clipping, counting, gradients set to zero, …
  double parts() const;  // the sum
};

/// Does `steps` optimizer steps of one process, after some that do not count, and measures them; writes nothing. On a
/// GPU each layer is waited for, so that its time is its own; a step without measuring is faster then. Throws what
/// building and training throw.
Profile profile(const LoadedRecipe& loaded, int64_t steps);

/// For people, within 100 columns unless names are long.
std::string to_text(const Profile& profile);
nlohmann::ordered_json to_json(const Profile& profile);

}  // namespace trainrun
